// Which convolutions by channel are computed by strips, with the 1x1 convolution before them, whose image
// would go to memory and back, and with the averages behind them.
#include <algorithm>

#include "src/algorithms/cpu_rates.hpp"
#include "src/network/lowering.hpp"
#include "src/plan/recipe.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// A strip between two convolutions, and the weights of either, which are read again for each strip, stay in
// the second-level cache; so do images that are smaller than these, from one step to the next.
i64 most_between() { return cpu_caches().level2 * 3 / 8; }
i64 most_weights() { return cpu_caches().level2 / 4; }
i64 least_image() { return cpu_caches().level2; }
i64 most_averaged() { return cpu_caches().level2 / 4; }  // of a strip whose averages are taken
constexpr i64 kMostOverlap = 8;                          // of so many rows one may be computed for two runs

bool is_pointwise(const Problem& p) {
  return p.r * p.s == 1 && p.stride_h * p.stride_w == 1 && p.groups == 1 && p.p() == p.h && p.q() == p.w;
}
bool is_by_channel(const Problem& p) {
  return p.groups == p.c && p.k == p.c && p.c > 1 && p.r > 1 && p.dilation_h == 1 && p.stride_h <= p.r;
}
i64 weight_bytes(const Problem& p) { return p.k * p.c / p.groups * p.r * p.s * 4; }
i64 row_bytes(const Problem& p) { return p.w * p.c * 4; }

// How many rows of the result a strip may have so that those between the two stay in the cache; 0: none.
i64 most_rows(const Problem& p) {
  const i64 between = most_between() / row_bytes(p);
  return between < p.r ? 0 : (between - p.r) / p.stride_h + 1;
}

// In how many runs an image is computed, each by one worker, of which all have as many; 0: it cannot be. The
// first rows of a run are computed for the one before, too.
i64 runs_an_image(const Problem& p, int threads) {
  const auto is_even = [&](i64 runs) { return p.n * runs % threads == 0 || p.n * runs >= i64{4} * threads; };
  const auto overlaps_little = [&](i64 runs) {
    return runs == 1 || kMostOverlap * (p.r - p.stride_h) <= p.p() / runs * p.stride_h;
  };
  for (i64 runs = threads == 1 ? 1 : ceil_div(i64{4} * threads, p.n); runs > 0; --runs) {
    if (is_even(runs) && overlaps_little(runs)) return runs;
  }
  return 0;
}

// Rows of the result of a convolution of one image, as a convolution, and the first row that it reads.
struct RowsOfResult {
  Problem problem;
  i64 x_row;
};
RowsOfResult rows_of(const Problem& image, i64 begin, i64 count) {
  const i64 first = begin * image.stride_h - image.pad_top;
  const i64 end = first + (count - 1) * image.stride_h + image.r;
  RowsOfResult rows{image, std::max<i64>(first, 0)};
  rows.problem.pad_top = rows.x_row - first;
  rows.problem.pad_bottom = std::max<i64>(end - image.h, 0);
  rows.problem.h = end - rows.problem.pad_bottom - rows.x_row;
  return rows;
}

// Rows of a strip: no more than `most`, and such that the workers have as many strips each.
i64 strip_rows(const Problem& p, i64 most, int threads) {
  i64 strips = ceil_div(p.p(), most);
  while (p.n * strips < i64{8} * threads && p.n * strips % threads != 0 && strips < p.p()) ++strips;
  return ceil_div(p.p(), strips);
}

}  // namespace

std::optional<Problem> Lowering::strips_problem(const Node& node) const {
  if (node.op != "Conv" || layout_of(node) != Layout::nhwc || node.has("pool")) return std::nullopt;
  if (!is_image(shape(node.inputs[0]))) return std::nullopt;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNone && !graph_.is_constant(node.inputs[i])) return std::nullopt;
  }
  for (const ValueId id : {node.inputs[0], node.outputs[0]}) {
    if (joins_[static_cast<std::size_t>(id)].node != nullptr) return std::nullopt;
  }
  try {
    const Problem p = forward_problem(*this, node, Layout::nhwc);
    if (p.dtype == DType::f32 && !p.epilogue.residual && weight_bytes(p) <= most_weights()) return p;
  } catch (const Error&) {  // said where it is lowered
  }
  return std::nullopt;
}

void Lowering::find_strips() {
  const std::vector<int> uses = count_uses(graph_);
  const int threads = std::max(1, settings_.request.threads);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const std::optional<Problem> p = strips_problem(node);
    if (!p || !is_by_channel(*p)) continue;
    const ValueId x = node.inputs[0];
    Strips strips;
    // Alone, a worker finds a small result in its cache. Several would share its channels, not its rows.
    const bool far = threads > 1 || elements(shape(node.outputs[0])) * 4 >= cpu_caches().level2 / 2;
    strips.averages = far && std::ranges::any_of(graph_.nodes, [&](const Node& reader) {
                        return reader.op == "GlobalAveragePool" && reader.domain.empty() &&
                               reader.inputs[0] == node.outputs[0];
                      });
    const int maker = uses[static_cast<std::size_t>(x)] == 1 ? makers_[static_cast<std::size_t>(x)] : -1;
    if (maker >= 0 && p->n * p->h * row_bytes(*p) / threads >= least_image() && most_rows(*p) > 0 &&
        runs_an_image(*p, threads) > 0) {
      const std::optional<Problem> first = strips_problem(graph_.nodes[static_cast<std::size_t>(maker)]);
      if (first && is_pointwise(*first)) strips.first = maker;
    }
    if (strips.first < 0 && !strips.averages) continue;
    if (strips.first >= 0) absorbed_.insert(static_cast<std::size_t>(strips.first));
    strips_.emplace(i, strips);
  }
}

StripsWork::Kind Lowering::strips_kind(const Node& node, const Node* first, const Problem& rows, i64 kept,
                                       StripsWork& work) {
  Request alone = settings_.request;  // a strip is one worker's
  alone.threads = 1;
  const auto convolution_of = [&](const Node& of, const Problem& problem) {
    ConvolutionWork made = convolution(of, problem, alone);
    work.plan_bytes = std::max(work.plan_bytes, aligned(made.plan->workspace_bytes(true)));
    return made;
  };
  StripsWork::Kind kind;
  if (first != nullptr) {
    Problem p = *strips_problem(*first);
    p.n = 1, p.h = rows.h - kept;
    kind.first = convolution_of(*first, p);
    kind.kept_bytes = static_cast<std::size_t>(kept * row_bytes(rows));
    work.between_bytes =
        std::max(work.between_bytes, aligned(static_cast<std::size_t>(rows.h * row_bytes(rows))));
  }
  kind.second = convolution_of(node, rows);
  kind.sums = {RowsOp::sum, {1, rows.p() * rows.q(), rows.k}, 0};
  return kind;
}

void Lowering::lower_strips(std::size_t i, const Strips& strips) {
  const Node& node = graph_.nodes[i];
  const Node* const first =
      strips.first < 0 ? nullptr : &graph_.nodes[static_cast<std::size_t>(strips.first)];
  const ValueId x = (first != nullptr ? *first : node).inputs[0], y = node.outputs[0];
  const int threads = std::max(1, settings_.request.threads);
  StripsWork work;
  const Problem p = work.problem = *strips_problem(node);
  Problem image = p;
  image.n = 1;
  const i64 x_row = p.w * shape(x)[1] * 4, y_row = p.q() * p.k * 4;
  i64 size = strip_rows(p, std::max<i64>(1, most_averaged() / y_row), threads), run = size;
  if (first != nullptr) {
    run = ceil_div(p.p(), runs_an_image(p, threads));
    size = ceil_div(run, ceil_div(run, most_rows(p)));
  }
  std::vector<std::pair<Problem, i64>> kinds;
  RowsOfResult before{};
  for (i64 begin = 0, end = 0; begin < p.p(); begin = std::min(begin + size, end)) {
    const bool continues = begin < end;
    if (!continues) end = std::min(begin + run, p.p()), work.runs.push_back(work.strips.size());
    const RowsOfResult rows = rows_of(image, begin, std::min(size, end - begin));
    // Of those rows that the strip before has; one at least is computed.
    const i64 kept =
        first == nullptr || !continues
            ? 0
            : std::clamp<i64>(before.x_row + before.problem.h - rows.x_row, 0, rows.problem.h - 1);
    const std::pair<Problem, i64> wanted(rows.problem, kept);
    const auto kind = static_cast<std::size_t>(std::ranges::find(kinds, wanted) - kinds.begin());
    if (kind == kinds.size()) {
      kinds.push_back(wanted);
      work.kinds.push_back(strips_kind(node, first, rows.problem, kept, work));
    }
    work.strips.push_back(
        {kind, static_cast<std::size_t>((rows.x_row + kept) * x_row), static_cast<std::size_t>(begin * y_row),
         kept == 0 ? 0 : static_cast<std::size_t>((rows.x_row - before.x_row) * row_bytes(p))});
    before = rows;
  }
  work.runs.push_back(work.strips.size());
  work.x_bytes = static_cast<std::size_t>(p.h * x_row);
  work.y_bytes = static_cast<std::size_t>(p.p() * y_row);
  const auto count = static_cast<i64>(work.strips.size());
  const std::size_t workspace = static_cast<std::size_t>(threads) * work.worker_bytes();
  emit(node, std::move(work), {read(x, Layout::nhwc)}, write(y, Layout::nhwc), Layout::nhwc, workspace);
  if (first != nullptr) drafts.back().name = first->op + " " + first->name + ", " + drafts.back().name;
  if (!strips.averages) return;
  const Ref parts = scratch(static_cast<std::size_t>(p.n * p.k * count) * sizeof(float));
  drafts.back().averages = parts;
  averages_.emplace(y, Averages{parts, count});
}

// An average of which a step of strips made the parts.
bool Lowering::lower_average(const Node& node) {
  if (node.op != "GlobalAveragePool" || !node.domain.empty()) return false;
  const auto parts = averages_.find(node.inputs[0]);
  if (parts == averages_.end()) return false;
  const Shape& all = shape(node.inputs[0]);
  const RowsCall call{RowsOp::sum, {all[0], parts->second.strips, all[1]}, 0};
  emit(node, call, {parts->second.parts}, write(node.outputs[0], Layout::nhwc), Layout::nhwc);
  return true;
}

}  // namespace faltung::network
