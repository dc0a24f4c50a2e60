// Which 1x1 convolutions scale their filter by what squeeze-excite finds, instead of the image that they
// read.
#include <algorithm>

#include "src/network/lowering.hpp"
#include "src/plan/recipe.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Scaling a filter's element and packing it anew takes as long as reading, scaling and writing this many of
// an image's.
constexpr i64 kPixelsAWeight = 6;

}  // namespace

// The convolution's problem, if it may.
std::optional<Problem> Lowering::scaled_problem(const Node& node) const {
  if (node.op != "Conv" || node.has("pool")) return std::nullopt;
  const ValueId y = node.outputs[0];
  if (!is_image(shape(y)) || joins_[static_cast<std::size_t>(y)].node != nullptr) return std::nullopt;
  for (std::size_t i = 1; i < std::min<std::size_t>(node.inputs.size(), 3); ++i) {
    if (node.inputs[i] != kNone && !graph_.is_constant(node.inputs[i])) return std::nullopt;
  }
  try {
    const Problem p = forward_problem(*this, node, layout_of(node));
    const bool is_pointwise =
        p.r * p.s == 1 && p.stride_h * p.stride_w == 1 && p.groups == 1 && p.p() == p.h && p.q() == p.w;
    if (is_pointwise && p.dtype == DType::f32 && kPixelsAWeight * p.k <= p.h * p.w) return p;
  } catch (const Error&) {  // said where it is lowered
  }
  return std::nullopt;
}

void Lowering::find_scaled() {
  const std::vector<int> uses = count_uses(graph_);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (absorbed_.contains(i) || strips_.contains(i) || node.inputs.empty() || node.inputs[0] == kNone)
      continue;
    const auto x = static_cast<std::size_t>(node.inputs[0]);
    const int maker = uses[x] == 1 ? makers_[x] : -1;
    if (maker < 0 || groups_[static_cast<std::size_t>(maker)] != maker) continue;
    const Node& product = graph_.nodes[static_cast<std::size_t>(maker)];
    if (product.op != "Mul" || !product.domain.empty() ||
        chain(static_cast<std::size_t>(maker)).size() != 1 || layout_of(product) != layout_of(node) ||
        joins_[x].node != nullptr || !scaled_problem(node))
      continue;
    const Shape& all = shape(node.inputs[0]);
    for (const std::size_t in : {std::size_t{0}, std::size_t{1}}) {
      const ValueId image = product.inputs[in], scales = product.inputs[1 - in];
      if (graph_.is_constant(image) || shape(image) != all || shape(scales) != Shape{all[0], all[1], 1, 1})
        continue;
      scaled_.emplace(i, Scaled{maker, image, scales});
      absorbed_.insert(static_cast<std::size_t>(maker));
      break;
    }
  }
}

void Lowering::lower_scaled(std::size_t i, const Scaled& scaled) {
  const Node& node = graph_.nodes[i];
  const Layout layout = layout_of(node);
  ScaledWork work;
  const Problem p = work.problem = *scaled_problem(node);
  const int threads = std::max(1, settings_.request.threads);
  work.is_workers_own = p.n % threads == 0 || p.n >= i64{4} * threads;
  Problem image = p;
  image.n = 1;
  Request request = settings_.request;
  if (work.is_workers_own) request.threads = 1;
  work.image = convolution(node, image, request, false);
  work.x_bytes = static_cast<std::size_t>(p.c * p.h * p.w) * sizeof(float);
  work.y_bytes = static_cast<std::size_t>(p.k * p.h * p.w) * sizeof(float);
  work.filter_bytes = aligned(static_cast<std::size_t>(p.k * p.c) * sizeof(float));
  work.worker_bytes = work.filter_bytes + aligned(work.image.plan->workspace_bytes(false));
  const std::size_t workspace =
      work.worker_bytes * static_cast<std::size_t>(work.is_workers_own ? threads : 1);
  std::vector<Ref> reads{read(scaled.image, layout), read(scaled.scales, Layout::nchw)};
  if (p.epilogue.residual) reads.push_back(read(node.inputs[3], layout));
  emit(node, std::move(work), std::move(reads), write(node.outputs[0], layout), layout, workspace);
  const Node& product = graph_.nodes[static_cast<std::size_t>(scaled.product)];
  drafts.back().name = product.op + " " + product.name + ", " + drafts.back().name;
}

}  // namespace faltung::network
