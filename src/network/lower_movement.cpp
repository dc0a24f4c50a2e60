// Nodes that move elements: copies between strides, and elements picked along an axis.
#include <algorithm>
#include <cstring>

#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/pads.hpp"
#include "src/network/picks.hpp"
#include "src/network/reduction.hpp"
#include "src/network/views.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

Layout layout_of(const Lowering& lowering, const Node& node, ValueId image) {
  return is_image(lowering.shape(image)) ? lowering.layout_of(node) : Layout::nchw;
}

// The element that stands for a number.
std::uint64_t bits_of(Type type, double value) {
  const Constant one = encode({type, {}, {value}});
  std::uint64_t bits = 0;
  std::memcpy(&bits, one.data, size_of(type));
  return bits;
}

void require_pickable(const Site& site, Type type) { map_element(type, site.node().title()); }

// ---- views

// A view that reads its input as it lies in nchw, and writes so.
void lower_view(Lowering& lowering, const Node& node, const View& view) {
  const ValueId y = node.outputs[0];
  const Type type = lowering.graph().at(y).type;
  const Ref from = lowering.read(node.inputs[0], Layout::nchw);
  lowering.emit(node,
                make_copy(view.shape, {type, view.strides, view.begin},
                          {type, contiguous_strides(view.shape), 0}, node.title()),
                {from}, lowering.write(y, Layout::nchw), Layout::nchw);
}

void lower_depth_to_space(Lowering& lowering, const Node& node) {
  const ValueId y = node.outputs[0];
  const Type type = lowering.graph().at(y).type;
  const Layout layout = lowering.layout_of(node);
  const View view =
      depth_to_space_view(lowering.site(node), strides_in(lowering.shape(node.inputs[0]), layout));
  const i64 block = view.shape.back();
  const Shape to = strides_in(lowering.shape(y), layout);
  const Shape in_blocks{to[0], to[1], block * to[2], to[2], block * to[3], to[3]};
  const Ref from = lowering.read(node.inputs[0], layout);
  lowering.emit(node,
                make_copy(view.shape, {type, view.strides, view.begin}, {type, in_blocks, 0}, node.title()),
                {from}, lowering.write(y, layout), layout);
}

void lower_transpose(Lowering& lowering, const Node& node) {
  const Layout layout = lowering.layout_of(node);
  const LayoutRule rule = layout_rule(lowering.graph(), node);
  // In nhwc it is what is there already, under another name.
  if (layout == Layout::nhwc && rule == LayoutRule::from_plain)
    return lowering.alias(node.outputs[0], lowering.read(node.inputs[0], Layout::nchw), Layout::nhwc);
  if (layout == Layout::nhwc && rule == LayoutRule::to_plain)
    return lowering.alias(node.outputs[0], lowering.read(node.inputs[0], Layout::nhwc), Layout::nchw);
  const View view = transpose_view(lowering.site(node));
  // Where only dimensions of size 1 change places nothing moves.
  i64 expected = 1;
  bool moves = false;
  for (std::size_t d = view.shape.size(); d-- > 0;) {
    moves = moves || (view.shape[d] != 1 && view.strides[d] != expected);
    expected *= view.shape[d];
  }
  if (!moves)
    return lowering.alias(node.outputs[0], lowering.read(node.inputs[0], Layout::nchw), Layout::nchw);
  lower_view(lowering, node, view);
}

// A part of the input, whose own layout is the result's.
void lower_part(Lowering& lowering, const Node& node, ValueId y, const Shape& shape, const Shape& begin,
                const Shape& step) {
  const Layout layout = layout_of(lowering, node, y);
  const Type type = lowering.graph().at(y).type;
  // Some of an image's channels are where they are, and some columns of rows.
  const Shape& all = lowering.shape(node.inputs[0]);
  const std::size_t sliced = is_image(shape) ? 1 : shape.size() - 1;
  bool is_slice = !shape.empty() && step[sliced] == 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    is_slice = is_slice && (d == sliced || (begin[d] == 0 && shape[d] == all[d]));
  if (is_slice) {
    if (const auto slice = lowering.slice_of(node.inputs[0], layout, begin[sliced], shape[sliced]))
      return lowering.write_slice(y, *slice, layout);
  }
  const Shape from = strides_in(all, layout);
  // And where all before the axis that is cut is of size 1, the rest is, unless it is turned around.
  const auto differs = std::ranges::mismatch(shape, all).in1 - shape.begin();
  const auto axis = static_cast<std::size_t>(differs);
  if (layout == Layout::nchw && axis < shape.size() && elements(shape) > 0 &&
      std::all_of(step.begin() + differs, step.end(), [](i64 s) { return s == 1; }) &&
      std::equal(shape.begin() + differs + 1, shape.end(), all.begin() + differs + 1) &&
      std::all_of(shape.begin(), shape.begin() + differs, [](i64 size) { return size == 1; })) {
    if (const auto run = lowering.run_of(node.inputs[0], begin[axis] * from[axis]))
      return lowering.alias(y, *run, layout);
  }
  StridedOperand input{type, from, 0};
  for (std::size_t d = 0; d < shape.size(); ++d)
    input.offset += begin[d] * from[d], input.strides[d] *= step[d];
  const Ref source = lowering.read(node.inputs[0], layout);
  lowering.emit(node, make_copy(shape, input, {type, strides_in(shape, layout), 0}, node.title()), {source},
                lowering.write(y, layout), layout);
}

void lower_slice(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  const View view = slice_view(site);
  // Begins and steps by dimension, from the view of what is contiguous.
  const Shape own = contiguous_strides(site.in(0).shape);
  Shape begin(view.shape.size()), step(view.shape.size(), 1);
  i64 rest = view.begin;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    begin[d] = own[d] == 0 ? 0 : rest / own[d], rest -= begin[d] * own[d];
    step[d] = view.shape[d] > 1 ? view.strides[d] / own[d] : 1;
  }
  lower_part(lowering, node, node.outputs[0], view.shape, begin, step);
}

void lower_split(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  const std::size_t axis = site.axis(node.integer("axis", 0), site.in(0).rank());
  Shape begin(site.in(0).shape.size(), 0);
  const Shape step(begin.size(), 1);
  for (const ValueId y : node.outputs) {
    if (y == kNone) site.decline("a part that nobody reads");
    if (elements(lowering.shape(y)) == 0) {  // of nothing no step is made
      lowering.write(y, Layout::nchw);
      continue;
    }
    lower_part(lowering, node, y, lowering.shape(y), begin, step);
    begin[axis] += lowering.shape(y)[axis];
  }
}

// ---- several inputs

void lower_concat(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  const ValueId y = node.outputs[0];
  const Layout layout = layout_of(lowering, node, y);
  const Type type = lowering.graph().at(y).type;
  const std::size_t axis = site.axis(node.integer("axis", 1), site.in(0).rank());
  const Shape strides = strides_in(lowering.shape(y), layout);
  if (axis == 1 && is_image(lowering.shape(y))) return lowering.join(node, layout);
  const Ref to = lowering.write(y, layout);
  i64 offset = 0;
  for (const ValueId x : node.inputs) {
    const Shape& shape = lowering.shape(x);
    if (elements(shape) > 0) {
      const Ref from = lowering.read(x, layout);
      lowering.emit(
          node, make_copy(shape, {type, strides_in(shape, layout), 0}, {type, strides, offset}, node.title()),
          {from}, to, layout);
    }
    offset += shape[axis] * strides[axis];
  }
}

// ---- tables

void lower_gather(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  require_pickable(site, site.in(0).type);
  const std::size_t axis = site.axis(node.integer("axis", 0), site.in(0).rank());
  const i64 size = site.in(0).shape[axis];
  std::vector<std::int32_t> index;
  for (const i64 i : site.integers(1)) {
    site.require(i >= -size && i < size, "an index lies outside of its axis");
    index.push_back(static_cast<std::int32_t>(i < 0 ? i + size : i));
  }
  Picked picked{site.in(0).shape, std::vector<std::vector<std::int32_t>>(site.in(0).shape.size()),
                size_of(site.in(0).type), 0};
  picked.tables[axis] = std::move(index);
  const Ref from = lowering.read(node.inputs[0], Layout::nchw);
  const auto result = [&] { return lowering.write(node.outputs[0], Layout::nchw); };
  lower_picked(lowering, node, std::move(picked), from, result, Layout::nchw);
}

// By a table an axis: `index_of` tells of which element each comes, -1 of none.
template <class IndexOf>
void lower_axes(Lowering& lowering, const Node& node, std::uint64_t fill, const IndexOf& index_of) {
  const Site site = lowering.site(node);
  require_pickable(site, site.in(0).type);
  const Shape& shape = site.in(0).shape;
  const Shape& target = lowering.shape(node.outputs[0]);
  const Layout layout = layout_of(lowering, node, node.outputs[0]);
  Picked picked{memory_shape(shape, layout), std::vector<std::vector<std::int32_t>>(shape.size()),
                size_of(site.in(0).type), fill};
  bool changes = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int32_t>& table = picked.tables[memory_axis(d, shape, layout)];
    bool same = shape[d] == target[d];
    for (i64 i = 0; i < target[d]; ++i) {
      table.push_back(static_cast<std::int32_t>(index_of(d, i)));
      same = same && table.back() == i;
    }
    if (same) table.clear();
    changes = changes || !same;
  }
  const Ref from = lowering.read(node.inputs[0], layout);
  if (!changes) return lowering.alias(node.outputs[0], from, layout);
  const auto result = [&] { return lowering.write(node.outputs[0], layout); };
  lower_picked(lowering, node, std::move(picked), from, result, layout);
}

void lower_pad(Lowering& lowering, const Node& node) {
  const Site site = lowering.site(node);
  const Pads pads = read_pads(site);
  const std::string mode = node.text("mode", "constant");
  const double value = site.has(2) ? site.numbers(2).at(0) : node.number("value", 0);
  const Shape shape = site.in(0).shape;
  lower_axes(lowering, node, bits_of(site.in(0).type, value),
             [&](std::size_t d, i64 i) { return padded_from(i - pads.before[d], shape[d], mode); });
}

void lower_tile(Lowering& lowering, const Node& node) {
  const Shape shape = lowering.site(node).in(0).shape;
  lower_axes(lowering, node, 0, [&](std::size_t d, i64 i) { return i % shape[d]; });
}

bool only_names(const Node& node) {
  return node.op == "Reshape" || node.op == "Flatten" || node.op == "Squeeze" || node.op == "Unsqueeze";
}

}  // namespace

bool lower_movement(Lowering& lowering, const Node& node) {
  if (!node.domain.empty()) return false;
  if (only_names(node)) {
    lowering.alias(node.outputs[0], lowering.read(node.inputs[0], Layout::nchw), Layout::nchw);
  } else if (node.op == "Transpose") {
    lower_transpose(lowering, node);
  } else if (node.op == "Expand") {
    lower_view(lowering, node, expand_view(lowering.site(node)));
  } else if (node.op == "DepthToSpace") {
    lower_depth_to_space(lowering, node);
  } else if (node.op == "SpaceToDepth") {
    lower_view(lowering, node, space_to_depth_view(lowering.site(node)));
  } else if (node.op == "Slice") {
    lower_slice(lowering, node);
  } else if (node.op == "Split") {
    lower_split(lowering, node);
  } else if (node.op == "Concat") {
    lower_concat(lowering, node);
  } else if (node.op == "Gather") {
    lower_gather(lowering, node);
  } else if (node.op == "Pad") {
    lower_pad(lowering, node);
  } else if (node.op == "Tile") {
    lower_tile(lowering, node);
  } else {
    return false;
  }
  return true;
}

}  // namespace faltung::network
