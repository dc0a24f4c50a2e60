// Convolutions, pools and their layouts.
#include <algorithm>

#include "src/network/epilogue.hpp"
#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"
#include "src/network/picks.hpp"
#include "src/network/reduction.hpp"
#include "src/network/window.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

bool is_forward(const Node& node) {
  return node.op == "Conv" && (node.domain.empty() || node.domain == "faltung");
}
bool is_transposed(const Node& node) { return node.op == "ConvTranspose" && node.domain.empty(); }
bool is_pool(const Node& node) {
  return node.domain.empty() && (node.op == "MaxPool" || node.op == "AveragePool");
}

// One spatial dimension is a height of 1.
void require_two(const Site& site, const Window& w) {
  if (w.dimensions > 2) site.decline("three spatial dimensions are not known");
}

// f16 and bf16 have one accuracy, and a fast one.
void set_elements(Problem& p, const Lowering& lowering, const Node& node, ValueId of) {
  p.dtype = dtype_of(lowering.graph().at(of).type, node.title());
  p.math = lowering.settings().math;
  if (p.dtype != DType::f32 && p.math == Math::f32) p.math = Math::of_dtype;
}

void set_window(Problem& p, const Site& site, const Window& w) {
  require_two(site, w);
  p.r = w.kernel[1], p.s = w.kernel[2];
  p.stride_h = w.stride[1], p.stride_w = w.stride[2];
  p.dilation_h = w.dilation[1], p.dilation_w = w.dilation[2];
  p.pad_top = w.before[1], p.pad_left = w.before[2], p.pad_bottom = w.after[1], p.pad_right = w.after[2];
  for (const i64 pad : {p.pad_top, p.pad_left, p.pad_bottom, p.pad_right}) {
    if (pad < 0) site.decline("negative padding is not known");
  }
}

void set_pool(Pool& pool, const Site& site, const Window& w, bool max) {
  require_two(site, w);
  if (w.dilation != Triple{1, 1, 1}) site.decline("a dilated pooling window is not known");
  pool.kind = max ? PoolKind::max : PoolKind::average;
  pool.size_h = w.kernel[1], pool.size_w = w.kernel[2];
  pool.stride_h = w.stride[1], pool.stride_w = w.stride[2];
  pool.pad_top = w.before[1], pool.pad_left = w.before[2], pool.pad_bottom = w.after[1],
  pool.pad_right = w.after[2];
}

}  // namespace

Problem forward_problem(const Lowering& lowering, const Node& node, Layout layout) {
  const Site site = lowering.site(node);
  const Shape &x = site.in(0).shape, &f = site.in(1).shape;
  const Window w = read_window(site, &f);
  Problem p;
  p.layout = layout;
  set_elements(p, lowering, node, node.inputs[0]);
  p.n = x[0], p.c = x[1], p.k = f[0], p.h = w.image[1], p.w = w.image[2];
  p.groups = node.integer("group", 1);
  set_window(p, site, w);
  p.epilogue = epilogue_of(node, p.dtype, {site.has(2), site.has(3)});
  if (node.has("pool")) {
    Node pool;
    pool.op = node.text("pool", "");
    pool.name = node.name;
    for (const auto& [key, value] : node.attributes) {
      if (key.starts_with("pool_")) pool.attributes.emplace(key.substr(5), value);
    }
    const Operand conv{Type::f32, with_image(p.n, p.k, w.out, w.dimensions), nullptr};
    const Site pool_site(pool, site.opset(), {&conv});
    set_pool(p.epilogue.pool, pool_site, read_window(pool_site), pool.op == "MaxPool");
  }
  return p;
}

ConvolutionWork Lowering::convolution(const Node& node, const Problem& problem, const Request& request,
                                      bool packs) {
  if (wanted_ != nullptr) return wanted_->push_back(problem), ConvolutionWork{};
  const bool is_own = request.threads == settings_.request.threads;  // all that requests differ in
  const auto known = is_own ? priced_.find(to_string(problem)) : priced_.end();
  const std::shared_ptr<const PlanImpl> plan = settings_.engine.plan(
      problem, request, known != priced_.end() ? known->second.considered.get() : nullptr);
  ConvolutionWork work;
  work.plan = plan;
  const Weights::Packed weights =
      settings_.weights.pack(graph_.at(node.inputs[1]).constant, plan, settings_.planners, packs);
  work.packed = weights.packed, work.w = weights.w;
  if (plan->problem().epilogue.bias)
    work.bias =
        settings_.weights.of_channels(graph_.at(node.inputs[2]).constant, bias_dtype(plan->problem()), *plan);
  if (has_slopes(plan->problem()))
    work.slopes = settings_.weights.of_channels(read_activation(node).slopes, DType::f32, *plan);
  return work;
}

namespace {

// As the gradient of a convolution's input. Rows that no window reaches are as an input's that is larger than
// the walk over it.
Problem transposed_problem(const Lowering& lowering, const Node& node, Layout layout) {
  const Site site = lowering.site(node);
  const Shape &x = site.in(0).shape, &f = site.in(1).shape;
  const Window w = read_transposed_window(site, f);
  Problem p;
  p.direction = Direction::backward_data;
  p.layout = layout;
  set_elements(p, lowering, node, node.inputs[0]);
  p.groups = node.integer("group", 1);
  p.n = x[0], p.k = x[1], p.c = f[1] * p.groups, p.h = w.out[1], p.w = w.out[2];
  set_window(p, site, w);
  if (p.p() != w.image[1] || p.q() != w.image[2]) site.decline("its result is more than a stride too large");
  return p;
}

Problem problem_of(const Lowering& lowering, const Node& node, Layout layout) {
  return is_forward(node) ? forward_problem(lowering, node, layout)
                          : transposed_problem(lowering, node, layout);
}

// A pool alone is the epilogue of a convolution that has been done. Padding that counts is put around the
// image first; what ceil_mode reaches beyond it does not count.
struct LonePool {
  Problem problem;
  Triple before{}, after{};  // of the image
};
LonePool lone_pool(const Lowering& lowering, const Node& node, Layout layout) {
  const Site site = lowering.site(node);
  Window w = read_window(site);
  const Shape& x = site.in(0).shape;
  LonePool pool;
  const bool padded = w.before != Triple{} || w.after != Triple{};
  if (padded && node.op == "AveragePool" && node.integer("count_include_pad", 0) != 0) {
    pool.before = w.before;
    for (std::size_t d = 0; d < 3; ++d) {
      pool.after[d] = w.after[d] - w.beyond[d];
      w.image[d] += pool.before[d] + pool.after[d];
      w.before[d] = 0, w.after[d] = w.beyond[d];
    }
  }
  Problem& p = pool.problem;
  p.layout = layout;
  set_elements(p, lowering, node, node.inputs[0]);
  p.n = x[0], p.c = p.k = p.groups = x[1], p.h = w.image[1], p.w = w.image[2];
  set_pool(p.epilogue.pool, site, w, node.op == "MaxPool");
  return pool;
}

// Zeros around an image.
Ref surround(Lowering& lowering, const Node& node, Ref from, const LonePool& pool) {
  const Problem& p = pool.problem;
  const auto table = [](i64 size, i64 before, i64 after) {
    std::vector<std::int32_t> index;
    for (i64 i = -before; i < size - before && (before != 0 || after != 0); ++i)
      index.push_back(i < 0 || i >= size - before - after ? -1 : static_cast<std::int32_t>(i));
    return index;
  };
  const i64 h = p.h - pool.before[1] - pool.after[1], w = p.w - pool.before[2] - pool.after[2];
  const auto bytes = static_cast<std::size_t>(faltung::size_of(p.dtype));
  Picked picked{{p.n, p.c, h, w}, std::vector<std::vector<std::int32_t>>(4), bytes, 0};
  std::size_t rows = 2;
  if (p.layout == Layout::nhwc) picked.shape = {p.n, h, w, p.c}, rows = 1;
  picked.tables[rows] = table(p.h, pool.before[1], pool.after[1]);
  picked.tables[rows + 1] = table(p.w, pool.before[2], pool.after[2]);
  Ref to = from;  // where nothing is added
  const auto result = [&] {
    return to = lowering.scratch(static_cast<std::size_t>(p.n * p.c * p.h * p.w) * bytes);
  };
  lower_picked(lowering, node, std::move(picked), from, result, p.layout);
  return to;
}

Layout image_layout(const Lowering& lowering, const Node& node) {
  return is_image(lowering.shape(node.inputs[0])) ? lowering.layout_of(node) : Layout::nchw;
}

// Which of its tensors it reads and writes as slices of larger ones.
struct Sliced {
  Problem problem;
  bool x = false;
  std::optional<Ref> y;  // the residual's pitch is y's
};

// By what the cost model, or what was measured, says of each way, and what copies cost.
Sliced choose_slices(Lowering& lowering, const Node& node, Layout layout) {
  const Problem whole = forward_problem(lowering, node, layout);
  Sliced best{whole, false, std::nullopt};
  if (!is_image(lowering.shape(node.inputs[0]))) return best;
  const ValueId x = node.inputs[0], y = node.outputs[0];
  const bool pools = whole.epilogue.pool.kind != PoolKind::none;
  const std::optional<i64> x_slice = lowering.slice_pitch(x, layout);
  std::optional<Ref> y_slice = pools ? std::nullopt : lowering.slice_of_join(y, layout);
  if (y_slice && whole.epilogue.residual) {
    const ValueId residual = node.inputs[3];
    const bool there = lowering.lies_whole(residual, layout);
    const i64 pitch = there ? 0 : lowering.slice_pitch(residual, layout).value_or(0);
    if (pitch != y_slice->pitch) y_slice.reset();
  }
  i64 least = -1;
  for (const bool slices_x : {true, false}) {
    if (slices_x && !x_slice) continue;
    for (const bool slices_y : {true, false}) {
      if (slices_y && !y_slice) continue;
      Problem p = whole;
      if (slices_x) p.x_pitch = *x_slice;
      if (slices_y) p.y_pitch = y_slice->pitch;
      i64 cost = x_slice || y_slice ? lowering.cost(p) : 0;
      if (!slices_x && x_slice) cost += lowering.copying_cost(x);
      if (!slices_y && y_slice) cost += lowering.copying_cost(y);
      if (least >= 0 && cost >= least) continue;
      least = cost;
      best = {p, slices_x, slices_y ? y_slice : std::nullopt};
    }
  }
  return best;
}

void lower_forward(Lowering& lowering, const Node& node) {
  const Graph& graph = lowering.graph();
  if (!graph.is_constant(node.inputs[1]))
    lowering.site(node).decline("weights that are not constant are not known");
  if (node.inputs.size() > 2 && node.inputs[2] != kNone && !graph.is_constant(node.inputs[2]))
    lowering.site(node).decline("a bias that is not constant is not known");
  const Layout layout = image_layout(lowering, node);
  const Sliced sliced = choose_slices(lowering, node, layout);
  ConvolutionWork work = lowering.convolution(node, sliced.problem, lowering.settings().request);
  const auto read = [&](ValueId id, bool slice) {
    return slice ? lowering.read_slice(id, layout) : lowering.read(id, layout);
  };
  std::vector<Ref> reads{read(node.inputs[0], sliced.x)};
  if (sliced.problem.epilogue.residual) reads.push_back(read(node.inputs[3], sliced.y.has_value()));
  if (sliced.y) lowering.write_slice(node.outputs[0], *sliced.y, layout);
  const Ref to = sliced.y ? *sliced.y : lowering.write(node.outputs[0], layout);
  lowering.emit(node, std::move(work), std::move(reads), to, layout);
}

void lower_transposed(Lowering& lowering, const Node& node) {
  const Graph& graph = lowering.graph();
  if (!graph.is_constant(node.inputs[1]))
    lowering.site(node).decline("weights that are not constant are not known");
  const Layout layout = image_layout(lowering, node);
  ConvolutionWork work =
      lowering.convolution(node, transposed_problem(lowering, node, layout), lowering.settings().request);
  const std::vector<Ref> reads{lowering.read(node.inputs[0], layout)};
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone;
  const Ref to = lowering.write(node.outputs[0], layout);
  lowering.emit(node, std::move(work), reads, to, layout);
  if (!biased) return;
  // The bias is added in place.
  const Shape& shape = lowering.shape(node.outputs[0]);
  Shape strides(shape.size(), 0);
  strides[1] = 1;
  const Shape own = strides_in(shape, layout);
  const StridedOperand y{graph.at(node.outputs[0]).type, own, 0};
  MapCall add = make_map(shape, {y, {graph.at(node.inputs[2]).type, strides, 0}}, y,
                         {{MapOp::add, 2, 0, 1, 0, 0, 0}}, node.title());
  lowering.emit(node, std::move(add), {to, lowering.read(node.inputs[2], Layout::nchw)}, to, layout);
}

}  // namespace

NodeCosts node_costs(Lowering& lowering, const Node& node, const std::vector<Problem>& problems) {
  if (node.domain.empty() && node.op == "Transpose") {  // a view in nhwc, a copy in nchw
    const Shape& shape = lowering.shape(node.outputs[0]);
    return {elements(shape) * 8 / 3 + 500, 0};
  }
  if (problems.empty()) return {};
  return {lowering.cost(problems[0]), lowering.cost(problems[1])};
}

std::vector<Problem> node_problems(const Lowering& lowering, const Node& node) {
  if (!is_forward(node) && !is_transposed(node)) return {};
  if (elements(lowering.shape(node.outputs[0])) == 0) return {};  // which is no step
  return {problem_of(lowering, node, Layout::nchw), problem_of(lowering, node, Layout::nhwc)};
}

bool lower_convolution(Lowering& lowering, const Node& node) {
  if (is_forward(node)) return lower_forward(lowering, node), true;
  if (is_transposed(node)) return lower_transposed(lowering, node), true;
  if (!is_pool(node)) return false;
  const Layout layout = image_layout(lowering, node);
  const LonePool pool = lone_pool(lowering, node, layout);
  const bool surrounded = pool.before != Triple{} || pool.after != Triple{};
  const bool slice = layout == Layout::nhwc && !surrounded && is_image(lowering.shape(node.inputs[0]));
  const ValueId x = node.inputs[0];
  const Ref from =
      surround(lowering, node, slice ? lowering.read_slice(x, layout) : lowering.read(x, layout), pool);
  const ValueId y = node.outputs[0];
  const std::optional<Ref> place = slice ? lowering.slice_of_join(y, layout) : std::nullopt;
  if (place) lowering.write_slice(y, *place, layout);
  const Ref to = place ? *place : lowering.write(y, layout);
  const i64 k = pool.problem.k;
  const PoolPitches pitches{from.pitch != 0 ? from.pitch : k, to.pitch != 0 ? to.pitch : k};
  lowering.emit(node, PoolWork{pool.problem, pitches}, {from}, to, layout);
  return true;
}

}  // namespace faltung::network
