// Each input channel on its own: what memory allows, if neighbours share what they read.
#include <algorithm>

#include <fmt/core.h>

#include "src/algorithms/depthwise_gpu_tile.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace depthwise_gpu {
namespace {

using i64 = std::int64_t;

using depthwise::Fit, depthwise::Kind, depthwise::Tile, depthwise::fit;

constexpr Tile tile(int rows, int columns, int channels) { return {Kind::tile, rows, columns, channels}; }
constexpr Tile walk(int rows, int columns, int channels) { return {Kind::walk, rows, columns, channels}; }
constexpr Tile lines(int columns) { return {Kind::lines, 1, columns, 1}; }
constexpr Tile kTiles[] = {
    tile(4, 4, 4),  tile(4, 2, 4),  tile(2, 4, 4),  tile(2, 2, 4), tile(1, 4, 4),  tile(1, 2, 4),
    tile(1, 1, 4),  tile(4, 4, 2),  tile(2, 4, 2),  tile(1, 7, 2), tile(1, 8, 2),  tile(2, 2, 2),
    tile(4, 8, 1),  tile(2, 8, 1),  tile(1, 8, 1),  tile(8, 4, 1), tile(4, 4, 1),  tile(2, 4, 1),
    tile(7, 2, 1),  tile(4, 2, 1),  tile(2, 2, 1),  tile(8, 1, 1), tile(7, 1, 1),  tile(4, 1, 1),
    tile(2, 1, 1),  walk(28, 4, 4), walk(14, 4, 4), walk(7, 4, 4), walk(28, 2, 4), walk(14, 2, 4),
    walk(7, 2, 4),  walk(28, 4, 2), walk(14, 4, 2), walk(7, 4, 2), walk(14, 2, 2), walk(28, 8, 1),
    walk(14, 8, 1), walk(28, 4, 1), walk(14, 4, 1), walk(7, 4, 1), walk(14, 2, 1), walk(7, 2, 1),
    walk(7, 1, 1),  lines(4),       lines(8),       lines(1)};
constexpr TileTable<Tile> kTable("depthwise_gpu", kTiles);
constexpr int kThreads = 64;

bool is_lines(const Tile& t) { return t.kind == Kind::lines; }
bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  return is_lines(t) || fit(t, p, device).has_value();
}

// Of the tiles that serve: what the best and the worst take.
struct Range {
  double best = 0, worst = 0;
};
Range tiles_ms(const Problem& p, const Target& target) {
  Range range;
  for (const Tile& t : kTable) {
    const auto tile = t.kind == Kind::tile ? fit(t, p, target.device) : std::nullopt;
    if (!tile) continue;
    const double ms = predicted_ms(*tile, p, target);
    range.best = range.best > 0 ? std::min(range.best, ms) : ms;
    range.worst = std::max(range.worst, ms);
  }
  return range;
}

// Timed on an H200, 16 bits: walks win in NHWC for filters of 5x5 and more, those of four columns by more
// than the model has it; and where the gradient of large filters is summed over planes, as it has it.
// Elsewhere they come after the best tile.
double walk_ms(const Fit& walk, const Problem& p, const Target& target) {
  constexpr double kBehind = 1.01, kFourColumns = 0.8, kTwoColumns = 1.03;
  const double ms = predicted_ms(walk, p, target);
  const bool weights = p.direction == Direction::backward_weights;
  if (weights && p.layout == Layout::nchw && depthwise::has_large_filter(p)) return ms;
  if (!weights && p.layout == Layout::nhwc && p.s >= 5 && size_of(p.dtype) == 2)
    return ms * (walk.tile.columns == 4 ? kFourColumns : kTwoColumns);
  return std::max(ms, kBehind * tiles_ms(p, target).best);
}

// Slower than every tile that serves, and than the lines before it in the table.
double lines_ms(const Problem& p, const Tile& t, const Target& target) {
  constexpr double kBehind = 1.5;
  double share = 0.1;  // of the device's arithmetic: it waits for memory
  double slowest = tiles_ms(p, target).worst;
  for (const Tile& other : kTable) {
    if (!is_lines(other)) continue;
    slowest = std::max(gpu::arithmetic_ms(p, target.device, share), kBehind * slowest);
    if (other.columns == t.columns) break;
    share *= 0.8;
  }
  return slowest;
}

class DepthwiseGpu : public Algorithm {
 public:
  DepthwiseGpu()
      : Algorithm({"depthwise_gpu",
                   "each input channel on its own; a thread's neighbouring results share what they read",
                   "gpu"}) {}

  Support accepts(const Problem& problem, const Target&) const override {
    if (!is_depthwise(problem)) {
      return Support::declined(
          fmt::format("groups = {} and c = {}: depthwise has a group for each of several channels",
                      problem.groups, problem.c));
    }
    return gpu::fits(problem);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const Tile& t : kTable) {
      // In backward_weights a block has one result, whatever the lines.
      if (p.direction == Direction::backward_weights && is_lines(t) && t.columns != 4) continue;
      if (serves(t, p, target.device)) all.push_back(candidate_of(p, t, target));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kTable.parse(config).tile);
  }

  static Maker maker(const Tile& t) {
    return [t](const Problem& p, const Target& target) {
      if (serves(t, p, target.device)) return candidate_of(p, t, target);
      throw Error(
          Status::bad_problem,
          "depthwise_gpu/" + config_name(t) + " does not compute " + to_string(p) +
              ": tiles (tt) are for as many channels out as in, of whole vectors (v) in nhwc and none in "
              "nchw, of whole strides in bwd_d, and for filters that leave them room; ln4 computes it");
    };
  }

  static Candidate candidate_of(const Problem& p, const Tile& t, const Target& target) {
    const DeviceInfo& device = target.device;
    Candidate c;
    c.config = config_name(t);
    c.accuracy = dot_product_accuracy(p);
    c.maker = maker(t);
    if (is_lines(t)) {
      c.cost = {lines_ms(p, t, target), Bound::bytes};
      c.recipe = [p, t, &device] { return lines_recipe(p, t, device); };
      return c;
    }
    const Fit f = *fit(t, p, device);
    c.cost = {t.kind == Kind::walk ? walk_ms(f, p, target) : predicted_ms(f, p, target), Bound::bytes};
    if (p.direction == Direction::backward_weights) {
      c.workspace_bytes = gpu::shared_sum_bytes(p, splits(f, device));
      c.recipe = [p, f, &device] { return weights_recipe(p, f, device); };
    } else {
      c.recipe = [p, f, &device] { return tile_recipe(p, f, device); };
    }
    return c;
  }

  static std::string kernel(const Tile& t) { return "depthwise_gpu/" + config_name(t); }

  static Recipe lines_recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const gpu::Constants constants = gpu::constants(p, {gpu::direction_constant(p),
                                                        {"THREADS", std::to_string(kThreads)},
                                                        {"TILE", std::to_string(t.columns)}});
    const TensorShape result = result_shape(p);
    const i64 threads = p.direction == Direction::backward_weights
                            ? result.elements() * kThreads  // a block for each
                            : result.n * result.c * result.h * ceil_div(result.w, t.columns);
    std::vector<StepArgument> arguments = gpu::tensors(p);
    arguments.push_back(value(gpu::sizes(p)));
    LaunchShape shape = gpu::one_dimension(threads, kThreads);
    shape.overlaps_previous = device.has("sm_90");
    Recipe recipe;
    recipe.steps.push_back(launch("depthwise",
                                  gpu::source(device, kernel(t), "depthwise.cl", "depthwise", constants),
                                  shape, std::move(arguments)));
    return recipe;
  }

  static Recipe tile_recipe(const Problem& p, const Fit& f, const DeviceInfo& device) {
    gpu::Constants own = depthwise::constants(f, p);
    const bool walks = f.tile.kind == Kind::walk;
    own.emplace_back("AHEAD", std::to_string(f.ahead));
    const std::string entry = walks ? "depthwise_walk" : "depthwise_tile";
    LaunchShape shape = gpu::grid(f.chunks * ceil_div(f.tiles, f.slices()), 1, 1, depthwise::kTileThreads);
    shape.overlaps_previous = device.has("sm_90");
    Recipe recipe;
    recipe.steps.push_back(launch(
        "depthwise", gpu::source(device, kernel(f.tile), entry + ".cl", entry, gpu::constants(p, own)), shape,
        {in(gpu::gathered_place(p)), in(Place::w), out(result_place(p)), in(Place::bias), in(Place::residual),
         in(Place::slopes), value(gpu::sizes(p))}));
    return recipe;
  }

  static Recipe weights_recipe(const Problem& p, const Fit& f, const DeviceInfo& device) {
    const i64 parts = splits(f, device);
    gpu::Constants own = depthwise::constants(f, p);
    own.insert(own.end(), {{"SPLIT", parts > 1 ? "1" : "0"},
                           {"EXACT", f.exact ? "1" : "0"},
                           {"WALKS", f.tile.kind == Kind::walk ? "1" : "0"},
                           {"AHEAD", std::to_string(f.ahead)}});
    Recipe recipe;
    recipe.workspace_bytes = gpu::shared_sum_bytes(p, parts);
    recipe.steps.push_back(launch("depthwise",
                                  gpu::source(device, kernel(f.tile), "depthwise_weights.cl",
                                              "depthwise_weights", gpu::constants(p, own)),
                                  gpu::grid(f.chunks, parts, f.tap_groups, depthwise::kTileThreads),
                                  {in(Place::x), in(Place::y), out(gpu::shared_sum(p, parts)),
                                   gpu::number(parts), value(gpu::sizes(p))}));
    if (parts > 1) recipe.steps.push_back(gpu::sum_many_parts_step(p, kernel(f.tile), parts, device));
    return recipe;
  }
};

}  // namespace
}  // namespace depthwise_gpu

std::unique_ptr<Algorithm> make_depthwise_gpu() { return std::make_unique<depthwise_gpu::DepthwiseGpu>(); }

}  // namespace faltung
