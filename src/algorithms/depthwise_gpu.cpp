// Each input channel on its own: what memory allows, if neighbours share what they read.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gpu.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// lines: results of a row a thread, in any problem and direction. tile: rows x columns of results a thread,
// of a vector of channels in nhwc; forward with an output channel a channel.
enum class Kind { tile, lines };
struct Tile {
  Kind kind;
  int rows, columns, channels;
  template <class Name>
  void spell(Name& name) {
    if (kind == Kind::lines) {
      name.key("ln", columns);
    } else {
      name.key("tt", rows, columns);
      name.optional("v", 1, channels);
    }
  }
};
constexpr Tile tile(int rows, int columns, int channels) { return {Kind::tile, rows, columns, channels}; }
constexpr Tile lines(int columns) { return {Kind::lines, 1, columns, 1}; }
constexpr Tile kTiles[] = {
    tile(4, 4, 4), tile(4, 2, 4), tile(2, 4, 4), tile(2, 2, 4), tile(1, 4, 4), tile(1, 2, 4), tile(1, 1, 4),
    tile(4, 2, 8), tile(2, 4, 8), tile(2, 2, 8), tile(1, 4, 8), tile(1, 2, 8), tile(1, 1, 8), tile(8, 1, 1),
    tile(7, 1, 1), tile(4, 1, 1), tile(2, 1, 1), lines(4),      lines(8),      lines(1),
};
constexpr TileTable<Tile> kTable("depthwise_gpu", kTiles);
constexpr int kThreads = 64, kTileThreads = 128;

bool is_lines(const Tile& t) { return t.kind == Kind::lines; }
bool packs(const Problem& p, const Tile& t) { return !is_lines(t) && p.layout == Layout::nhwc; }

bool serves(const Tile& t, const Problem& p, const DeviceInfo& device) {
  if (is_lines(t)) return true;
  if (p.direction != Direction::forward || p.k != p.c) return false;
  constexpr i64 kMostBlocks = 65535, kMostPositions = 1 << 26;
  if (p.n > kMostBlocks || p.p() > kMostBlocks || p.k * p.p() * p.q() > kMostPositions) return false;
  // A vector is at most 16 bytes.
  const bool nhwc = p.layout == Layout::nhwc;
  if (nhwc != (t.channels > 1) || p.c % t.channels != 0 || t.channels * size_of(p.dtype) > 16) return false;
  // All is unrolled: a large program takes long to compile, and CPUs gain nothing by it. What a tile reads of
  // x is in registers at once, as words of two elements or of one.
  const i64 most_products = device.has("runs_on_cpu") ? 256 : 900;
  constexpr i64 kMostWords = 176;
  const i64 rows = (t.rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
  const i64 columns = (t.columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
  const i64 results = t.rows * t.columns * t.channels, words = ceil_div(t.channels * size_of(p.dtype), 4);
  if (results * p.r * p.s > most_products || rows * columns * words + results > kMostWords) return false;
  // No tile is far larger than the image.
  return (t.rows == 1 || t.rows < 2 * p.p()) && (t.columns == 1 || t.columns < 2 * p.q());
}

i64 tile_threads(const Problem& p, const Tile& t) {
  return p.n * (p.k / t.channels) * ceil_div(p.p(), t.rows) * ceil_div(p.q(), t.columns);
}

// The least bytes or the products at the rates that tiles reach; which tile is the fastest. Measured on an
// H200.
double tile_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0025, kUnitGbps = 29, kUnitProductsPerMs = 53e6, kLarge = 200e6;
  const bool strided = p.stride_h > 1 || p.stride_w > 1, wide_filter = p.r * p.s > 9;
  const bool halves = size_of(p.dtype) == 2;
  Tile best = tile(2, 2, 4);
  if (p.layout == Layout::nchw) {
    best = tile(7, 1, 1);
  } else if (strided) {
    best = tile(wide_filter && halves ? 2 : 1, 2, 4);
  } else if (halves || min_bytes(p) > kLarge) {
    best = tile(4, 2, 4);
  }
  // How far this tile is from it, in doublings of each side.
  const auto apart = [](int a, int b) { return std::abs(std::log2(a) - std::log2(b)); };
  const double distance = apart(t.rows, best.rows) + 0.6 * apart(t.columns, best.columns) +
                          0.8 * apart(t.channels, best.channels);
  // Too few threads leave units without work.
  const double busy = std::min(1.0, static_cast<double>(tile_threads(p, t)) / (128.0 * device.units));
  const double products = static_cast<double>(conv_shape(p).elements() * p.r * p.s);
  const double ms = std::max(min_bytes(p) / kUnitGbps * 1e-6, products / kUnitProductsPerMs) / device.units;
  return kLaunchMs + ms / busy * (1 + 0.15 * distance);
}

// Slower than every tile that serves, and than the lines before it in the table.
double lines_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kBehind = 1.5;
  double share = 0.1, slowest = 0;  // of the device's arithmetic: it waits for memory
  for (const Tile& other : kTable) {
    if (!serves(other, p, device)) continue;
    if (!is_lines(other)) {
      slowest = std::max(slowest, tile_ms(p, other, device));
      continue;
    }
    slowest = std::max(gpu::arithmetic_ms(p, device, share), kBehind * slowest);
    if (other.columns == t.columns) break;
    share *= 0.8;
  }
  return slowest;
}

class DepthwiseGpu : public Algorithm {
 public:
  std::string_view name() const override { return "depthwise_gpu"; }
  std::string_view description() const override {
    return "each input channel on its own; a thread's neighbouring results share what they read";
  }
  std::string_view device_kind() const override { return "gpu"; }

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
      if (serves(t, p, target.device)) all.push_back(candidate_of(p, t, target.device));
    }
    return all;
  }

  Candidate parse(const std::string& config, const Problem& p, const Target& target) const override {
    const Tile& t = *kTable.parse(config).tile;
    if (serves(t, p, target.device)) return candidate_of(p, t, target.device);
    throw Error(Status::bad_problem,
                "depthwise_gpu/" + config + " does not compute " + to_string(p) +
                    ": tiles (tt) are for forward with as many channels out as in, of whole vectors (v) in "
                    "nhwc and none in nchw, and for filters that leave them room; ln4 computes it");
  }

  static Candidate candidate_of(const Problem& p, const Tile& t, const DeviceInfo& device) {
    Candidate c;
    c.config = config_name(t);
    c.cost = {is_lines(t) ? lines_ms(p, t, device) : tile_ms(p, t, device), Bound::bytes};
    c.packed_bytes = packed_bytes(p, t);
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [p, t, &device] {
      return is_lines(t) ? lines_recipe(p, t, device) : tile_recipe(p, t, device);
    };
    return c;
  }

  static std::size_t packed_bytes(const Problem& p, const Tile& t) {
    return packs(p, t) ? static_cast<std::size_t>(bytes_of(p, w_shape(p))) : 0;
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
    Recipe recipe;
    recipe.steps.push_back(launch("depthwise",
                                  gpu::source(device, kernel(t), "depthwise.cl", "depthwise", constants),
                                  gpu::one_dimension(threads, kThreads), std::move(arguments)));
    return recipe;
  }

  static Recipe tile_recipe(const Problem& p, const Tile& t, const DeviceInfo& device) {
    const bool nhwc = p.layout == Layout::nhwc;
    Recipe recipe;
    if (packs(p, t)) {
      recipe.packed_bytes = packed_bytes(p, t);
      recipe.packing = packing_of(p);
      recipe.pack.push_back(launch(
          "pack weights",
          gpu::source(device, kernel(t), "pack_depthwise.cl", "pack_depthwise",
                      gpu::constants(gpu::without_epilogue(p), {{"THREADS", std::to_string(kThreads)}})),
          gpu::one_dimension(w_shape(p).elements(), kThreads),
          {in(Place::w), out(Place::packed), value(gpu::sizes(p))}));
    }
    const gpu::Constants constants = gpu::constants(p, {{"THREADS", std::to_string(kTileThreads)},
                                                        {"TP", std::to_string(t.rows)},
                                                        {"TQ", std::to_string(t.columns)},
                                                        {"CV", std::to_string(t.channels)}});
    const i64 rows = ceil_div(p.p(), t.rows);
    LaunchShape shape = gpu::one_dimension(
        nhwc ? p.k / t.channels * ceil_div(p.q(), t.columns) : p.k * p.q() * rows, kTileThreads);
    shape.grid[1] = nhwc ? static_cast<unsigned>(rows) : 1;
    shape.grid[2] = static_cast<unsigned>(p.n);
    recipe.steps.push_back(launch(
        "depthwise", gpu::source(device, kernel(t), "depthwise_tile.cl", "depthwise_tile", constants), shape,
        {in(Place::x), in(packs(p, t) ? Place::packed : Place::w), out(Place::y), in(Place::bias),
         in(Place::residual), value(gpu::sizes(p))}));
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_depthwise_gpu() { return std::make_unique<DepthwiseGpu>(); }

}  // namespace faltung
