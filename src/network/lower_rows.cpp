// Reductions, normalizations, softmax and resizing.
#include <algorithm>
#include <cmath>

#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/moments.hpp"
#include "src/network/picks.hpp"
#include "src/network/reduction.hpp"
#include "src/network/resize.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

void require_floats(const Site& site) {
  if (!is_float(site.in(0).type) || site.in(0).type == Type::f64)
    site.decline(std::string("elements of type ") + name(site.in(0).type) + " are not known");
}

// These dimensions as one, in memory; none where something lies between them.
std::optional<Extent> memory_extent(const Shape& shape, const std::vector<std::size_t>& axes, Layout layout) {
  std::vector<std::size_t> places;
  for (const std::size_t axis : axes) places.push_back(memory_axis(axis, shape, layout));
  std::ranges::sort(places);
  const Shape lies = memory_shape(shape, layout);
  if (places.empty()) return std::nullopt;
  for (std::size_t d = places.front(); d <= places.back(); ++d) {
    if (!std::ranges::binary_search(places, d) && lies[d] != 1) return std::nullopt;
  }
  return extent(lies, places.front(), places.back() + 1);
}

std::optional<RowsOp> reduction(const Node& node) {
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "ReduceSum") return RowsOp::sum;
  if (node.op == "ReduceMean" || node.op == "GlobalAveragePool") return RowsOp::mean;
  if (node.op == "ReduceMax" || node.op == "GlobalMaxPool") return RowsOp::max;
  if (node.op == "ReduceMin") return RowsOp::min;
  if (node.op == "ReduceProd") return RowsOp::product;
  if (node.op == "ReduceL1") return RowsOp::sum_of_sizes;
  if (node.op == "ReduceSumSquare" || node.op == "ReduceL2") return RowsOp::sum_of_squares;
  return std::nullopt;
}

std::vector<std::size_t> range(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> axes;
  for (std::size_t d = begin; d < end; ++d) axes.push_back(d);
  return axes;
}

// The dimensions over which the node normalizes.
std::vector<std::size_t> normalized_axes(const Site& site) {
  const std::size_t rank = site.in(0).shape.size();
  const bool softmax = site.node().domain.empty();
  const i64 otherwise = softmax && site.opset() < 13 ? 1 : -1;
  const std::size_t axis = site.axis(site.node().integer("axis", otherwise), site.in(0).rank());
  return range(axis, softmax && site.opset() >= 13 ? axis + 1 : rank);
}
std::optional<RowsOp> normalization(const Node& node) {
  if (node.domain == "faltung")
    return node.op == "Standardize" || standardizes_groups(node) ? std::optional(RowsOp::standardize)
                                                                 : std::nullopt;
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "Softmax") return RowsOp::softmax;
  if (node.op == "LogSoftmax") return RowsOp::log_softmax;
  return std::nullopt;
}

bool is_best(const Node& node) { return node.domain.empty() && (node.op == "ArgMax" || node.op == "ArgMin"); }

void lower_best(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  require_floats(site);
  const std::size_t axis = site.axis(node.integer("axis", 0), site.in(0).rank());
  const Extent e = extent(site.in(0).shape, axis, axis + 1);
  const BestCall call{{e.outer, e.length, e.inner},
                      node.op == "ArgMax" ? BestKind::largest : BestKind::smallest,
                      node.integer("select_last_index", 0) != 0 ? OfEqual::last : OfEqual::first,
                      element_of(lowering, node.inputs[0], node)};
  const Ref from = lowering.read(node.inputs[0], Layout::nchw);
  lowering.emit(node, call, {from}, lowering.write(node.outputs[0], Layout::nchw), Layout::nchw);
}

// x · (bias + alpha / size · the sum of its neighbours' squares)^-beta: the sums are taps of weight 1.
void lower_local(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  require_floats(site);
  const Shape& shape = site.in(0).shape;
  const Extent e = extent(shape, 1, 2);
  const i64 size = node.integer("size", 1);
  TapsCall taps{{e.outer, e.length, e.inner}, e.length, size, {}, {}};
  for (i64 c = 0; c < e.length; ++c) {
    for (i64 t = 0; t < size; ++t) {
      const i64 at = c - (size - 1) / 2 + t;
      const bool inside = at >= 0 && at < e.length;
      taps.index.push_back(static_cast<std::int32_t>(inside ? at : c));
      taps.weight.push_back(inside ? 1.0f : 0.0f);
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(elements(shape)) * sizeof(float);
  const Ref x = lowering.read(node.inputs[0], Layout::nchw), squares = lowering.scratch(bytes),
            sums = lowering.scratch(bytes);
  const Ref to = lowering.write(node.outputs[0], Layout::nchw);
  const StridedOperand all{Type::f32, {1}, 0}, in{site.in(0).type, {1}, 0},
      out{lowering.graph().at(node.outputs[0]).type, {1}, 0};
  const Shape flat{elements(shape)};
  lowering.emit(node, make_map(flat, {in}, all, {{MapOp::mul, 1, 0, 0, 0, 0, 0}}, node.title()), {x}, squares,
                Layout::nchw);
  lowering.emit(node, std::move(taps), {squares}, sums, Layout::nchw);
  const float alpha = node.number("alpha", 1e-4f) / static_cast<float>(size);
  // exp(-beta · log(bias + alpha · sum)): the base is positive.
  lowering.emit(node,
                make_map(flat, {in, all}, out,
                         {{MapOp::affine, 2, 1, 0, 0, alpha, node.number("bias", 1)},
                          {MapOp::log, 3, 2, 0, 0, 0, 0},
                          {MapOp::affine, 4, 3, 0, 0, -node.number("beta", 0.75f), 0},
                          {MapOp::exp, 5, 4, 0, 0, 0, 0},
                          {MapOp::mul, 6, 0, 5, 0, 0, 0}},
                         node.title()),
                {x, sums}, to, Layout::nchw);
}

bool is_resize(const Node& node) {
  return node.domain.empty() && (node.op == "Resize" || node.op == "Upsample");
}

void lower_reduction(Lowering& lowering, const Node& node, RowsOp op) {
  const Site site = lowering.site(node);
  require_floats(site);
  const Shape& x = site.in(0).shape;
  const Layout layout = is_image(x) ? lowering.layout_of(node) : Layout::nchw;
  const std::vector<std::size_t> axes = reduced_axes(site);
  const ValueId y = node.outputs[0];
  // A result that is no image has one order of memory; it was made sure that it is the same.
  const Layout result = is_image(lowering.shape(y)) ? layout : Layout::nchw;
  const Ref from = lowering.read(node.inputs[0], layout);
  if (axes.empty()) {
    if (op == RowsOp::sum_of_squares || op == RowsOp::sum_of_sizes)
      site.decline("without axes it is not known");
    return lowering.alias(y, from, result);
  }
  const std::optional<Extent> e = memory_extent(x, axes, layout);
  const Ref to = lowering.write(y, result);
  const Type type = site.in(0).type;
  RowsCall call{op, {}, 0, element_of(lowering, node.inputs[0], node), element_of(lowering, y, node)};
  if (e) {
    call.extent = {e->outer, e->length, e->inner};
    lowering.emit(node, call, {from}, to, result);
  } else {
    // Moved together first.
    Shape sizes, strides;
    const Shape own = strides_in(x, layout);
    for (const bool reduced : {false, true}) {
      for (std::size_t d = 0; d < x.size(); ++d) {
        if (std::ranges::binary_search(axes, d) != reduced) continue;
        sizes.push_back(x[d]), strides.push_back(own[d]);
      }
    }
    const Extent all = extent(sizes, sizes.size() - axes.size(), sizes.size());
    const Ref moved = lowering.scratch(static_cast<std::size_t>(elements(x)) * size_of(type));
    lowering.emit(node,
                  make_copy(sizes, {type, strides, 0}, {type, contiguous_strides(sizes), 0}, node.title()),
                  {from}, moved, layout);
    call.extent = {all.outer, all.length, 1};
    lowering.emit(node, call, {moved}, to, result);
  }
  if (node.op != "ReduceL2") return;
  const i64 count = elements(lowering.shape(y));
  const StridedOperand all{lowering.graph().at(y).type, {1}, 0};
  lowering.emit(node, make_map({count}, {all}, all, {{MapOp::sqrt, 1, 0, 0, 0, 0, 0}}, node.title()), {to},
                to, result);
}

void lower_normalization(Lowering& lowering, const Node& node) {
  const Layout layout = is_image(lowering.shape(node.inputs[0])) ? lowering.layout_of(node) : Layout::nchw;
  const RowsCall call = normalization_call(lowering, node, layout);
  const Ref from = lowering.read(node.inputs[0], layout);
  lowering.emit(node, call, {from}, lowering.write(node.outputs[0], layout), layout);
  lowering.drafts.back().in_place = {0};
}

// One axis after the other: elements picked where one is enough, else weighted sums.
// How often each element of an axis stands beside itself; 0 where that is not all.
i64 repeats(const Taps& taps) {
  const i64 times = taps.taps == 1 && taps.in > 0 ? taps.out / taps.in : 0;
  for (i64 i = 0; i < taps.out; ++i) {
    if (times == 0 || taps.index[static_cast<std::size_t>(i)] != i / times) return 0;
  }
  return times;
}

// Images in nhwc whose pixels are repeated: one copy, in which rows and columns are two dimensions each, in
// the result's order.
std::optional<MapCall> repeated_pixels(const Site& site, const std::vector<Taps>& all) {
  constexpr i64 kChannels = 8;  // fewer are not worth a copy each
  const Shape& x = site.in(0).shape;
  if (x[1] < kChannels || !all[0].identity() || !all[1].identity()) return std::nullopt;
  const i64 down = repeats(all[2]), across = repeats(all[3]);
  if (down == 0 || across == 0) return std::nullopt;
  const Type type = site.in(0).type;
  const i64 pixel = x[1], row = x[3] * pixel, wide = across * row;
  return make_copy({x[0], x[2], down, x[3], across, pixel}, {type, {x[2] * row, row, 0, pixel, 0, 1}, 0},
                   {type, {x[2] * down * wide, down * wide, wide, across * pixel, pixel, 1}, 0},
                   site.node().title());
}

void lower_resize(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  require_floats(site);
  Shape shape = site.in(0).shape;
  const Layout layout = is_image(shape) ? lowering.layout_of(node) : Layout::nchw;
  const std::vector<Taps> all = resize_taps(site);
  std::vector<std::size_t> changed;
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (!all[d].identity()) changed.push_back(d);
  }
  // Those that make it smaller first, then the outer ones, which are the cheaper.
  std::ranges::stable_sort(changed, {}, [&](std::size_t d) { return all[d].out > all[d].in; });
  Ref from = lowering.read(node.inputs[0], layout);
  if (changed.empty()) return lowering.alias(node.outputs[0], from, layout);
  if (layout == Layout::nhwc) {
    if (std::optional<MapCall> copy = repeated_pixels(site, all)) {
      if (!lowering.on_gpu()) arrange_rows(*copy);
      return lowering.emit(node, std::move(*copy), {from}, lowering.write(node.outputs[0], layout), layout);
    }
  }
  const std::size_t size = size_of(site.in(0).type);
  if (std::ranges::all_of(changed, [&](std::size_t d) { return all[d].taps == 1; })) {
    Picked picked{memory_shape(shape, layout), std::vector<std::vector<std::int32_t>>(shape.size()), size, 0};
    for (const std::size_t d : changed)
      picked.tables[memory_axis(d, shape, layout)] = {all[d].index.begin(), all[d].index.end()};
    const auto result = [&] { return lowering.write(node.outputs[0], layout); };
    return lower_picked(lowering, node, std::move(picked), from, result, layout);
  }
  const MapElement element = element_of(lowering, node.inputs[0], node);
  for (const std::size_t d : changed) {
    const Taps& taps = all[d];
    const Extent e = *memory_extent(shape, {d}, layout);
    shape[d] = taps.out;
    const bool last = d == changed.back();
    const Ref to = last ? lowering.write(node.outputs[0], layout)
                        : lowering.scratch(static_cast<std::size_t>(elements(shape)) * size);
    const std::vector<std::int32_t> index(taps.index.begin(), taps.index.end());
    const RowsExtent extent{e.outer, e.length, e.inner};
    if (taps.taps == 1) {
      PickCall call{e.outer, {}, {e.length, index}, e.inner, size};
      lowering.emit(node, std::move(call), {from}, to, layout);
    } else {
      TapsCall call{extent,  taps.out, taps.taps, index, {taps.weight.begin(), taps.weight.end()},
                    element, element};
      lowering.emit(node, std::move(call), {from}, to, layout);
    }
    from = to;
  }
}

LayoutRule rows_rule(const Graph& graph, const Node& node, const std::vector<std::size_t>& axes) {
  const Shape& x = *graph.at(node.inputs[0]).shape;
  const bool fits = memory_extent(x, axes, Layout::nhwc).has_value();
  const Shape& y = *graph.at(node.outputs[0]).shape;
  if (!fits) return LayoutRule::plain;
  if (is_image(y)) return LayoutRule::any;
  // Without the reduced dimensions it must lie the same in both.
  return axes == std::vector<std::size_t>{2, 3} ? LayoutRule::to_plain : LayoutRule::plain;
}

}  // namespace

std::optional<Extent> standardized_rows(const Lowering& lowering, const Node& node, Layout layout) {
  const Site site = lowering.site(node);
  const Shape& x = site.in(0).shape;
  if (x.empty()) return Extent{};
  return standardizes_groups(node) ? rows_of_groups(x, node)
                                   : memory_extent(x, normalized_axes(site), layout);
}

bool normalizes(const Node& node) { return normalization(node).has_value(); }

RowsCall normalization_call(const Lowering& lowering, const Node& node, Layout layout) {
  const Site site = lowering.site(node);
  require_floats(site);
  const std::optional<Extent> e = standardized_rows(lowering, node, layout);
  if (!e) throw Error(Status::internal, node.title() + ": its layout does not fit its axes");
  return {*normalization(node),
          {e->outer, e->length, e->inner},
          node.number("epsilon", 1e-5f),
          element_of(lowering, node.inputs[0], node),
          element_of(lowering, node.outputs[0], node)};
}

LayoutRule layout_rule(const Graph& graph, const Node& node) {
  const auto image = [&](ValueId id) { return id != kNone && is_image(*graph.at(id).shape); };
  if (node.inputs.empty() || !image(node.inputs[0])) {
    // Of an elementwise node any input may be the image.
    const bool read =
        std::ranges::any_of(node.inputs, [&](ValueId id) { return image(id) && !graph.is_constant(id); });
    if (!read) return LayoutRule::plain;
  }
  const bool writes = image(node.outputs[0]);
  if (standardizes_groups(node)) return LayoutRule::plain;
  if (reduction(node) || normalizes(node)) {
    std::vector<Operand> operands;
    operands.reserve(node.inputs.size());
    std::vector<std::optional<Array>> constants;
    constants.reserve(node.inputs.size());
    std::vector<const Operand*> pointers;
    for (const ValueId id : node.inputs) {
      constants.push_back(id == kNone ? std::nullopt : graph.constant(id));
      const bool known = constants.back().has_value();
      operands.push_back(
          {graph.at(id).type, *graph.at(id).shape, known ? constants.back()->data.data() : nullptr});
      pointers.push_back(&operands.back());
    }
    const Site known(node, graph.opset, pointers);
    const std::vector<std::size_t> axes = reduction(node) ? reduced_axes(known) : normalized_axes(known);
    return axes.empty() ? LayoutRule::plain : rows_rule(graph, node, axes);
  }
  if (node.op == "Transpose" && node.domain.empty()) {
    const Shape order = node.integers("perm").value_or(Shape());
    if (order == Shape{0, 3, 1, 2}) return LayoutRule::from_plain;
    return order == Shape{0, 2, 3, 1} ? LayoutRule::to_plain : LayoutRule::plain;
  }
  static constexpr std::string_view kPlain[] = {
      "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile",   "Gather", "SpaceToDepth",
      "MatMul",  "Gemm",    "Linear",  "LRN",       "ArgMax", "ArgMin", "Shape",  "Size"};
  if (!writes || std::ranges::find(kPlain, node.op) != std::end(kPlain)) return LayoutRule::plain;
  return LayoutRule::any;
}

bool lower_rows(Lowering& lowering, const Node& node) {
  if (const auto op = reduction(node)) return lower_reduction(lowering, node, *op), true;
  if (normalizes(node)) return lower_normalization(lowering, node), true;
  if (is_best(node)) return lower_best(lowering, node), true;
  if (node.op == "LRN" && node.domain.empty()) return lower_local(lowering, node), true;
  if (is_resize(node)) return lower_resize(lowering, node), true;
  return false;
}

}  // namespace faltung::network
