// Each input channel on its own: what memory allows, if neighbours share what they read.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr int kLines[] = {4, 8, 1};  // results of a row a thread, in any problem and direction
constexpr int kThreads = 64;

// Rows x columns of results a thread, of a vector of channels in nhwc: forward with an output channel a
// channel.
struct Tile {
  int rows, columns, channels;
  std::string name() const {
    return fmt::format("t{}x{}{}", rows, columns, channels > 1 ? fmt::format("c{}", channels) : "");
  }
};
constexpr Tile kTiles[] = {
    {4, 4, 4}, {4, 2, 4}, {2, 4, 4}, {2, 2, 4}, {1, 4, 4}, {1, 2, 4}, {1, 1, 4}, {4, 2, 8}, {2, 4, 8},
    {2, 2, 8}, {1, 4, 8}, {1, 2, 8}, {1, 1, 8}, {8, 1, 1}, {7, 1, 1}, {4, 1, 1}, {2, 1, 1},
};
constexpr int kTileThreads = 128;

std::vector<Tile> tiles(const Problem& p, const DeviceInfo& device) {
  if (p.direction != Direction::forward || p.k != p.c) return {};
  const bool nhwc = p.layout == Layout::nhwc;
  constexpr i64 kMostBlocks = 65535, kMostPositions = 1 << 26;
  // All is unrolled: a large program takes long to compile, and CPUs gain nothing by it. What a tile reads of
  // x is in registers at once, as words of two elements or of one.
  const i64 most_products = device.has("runs_on_cpu") ? 256 : 900;
  constexpr i64 kMostWords = 176;
  if (p.n > kMostBlocks || p.p() > kMostBlocks || p.k * p.p() * p.q() > kMostPositions) return {};
  std::vector<Tile> serving;
  for (const Tile& t : kTiles) {
    // A vector is at most 16 bytes.
    if (nhwc != (t.channels > 1) || p.c % t.channels != 0 || t.channels * info(p.dtype).bytes > 16) continue;
    const i64 rows = (t.rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
    const i64 columns = (t.columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
    const i64 results = t.rows * t.columns * t.channels,
              words = ceil_div(t.channels * info(p.dtype).bytes, 4);
    if (results * p.r * p.s > most_products || rows * columns * words + results > kMostWords) continue;
    // No tile is far larger than the image.
    if ((t.rows > 1 && t.rows >= 2 * p.p()) || (t.columns > 1 && t.columns >= 2 * p.q())) continue;
    serving.push_back(t);
  }
  return serving;
}

i64 tile_threads(const Problem& p, const Tile& t) {
  return p.n * (p.k / t.channels) * ceil_div(p.p(), t.rows) * ceil_div(p.q(), t.columns);
}

// The least bytes or the products at the rates that tiles reach; which tile is the fastest. Measured on an
// H200.
double tile_ms(const Problem& p, const Tile& t, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0025, kUnitGbps = 29, kUnitProductsPerMs = 53e6, kLarge = 200e6;
  const bool strided = p.stride_h > 1 || p.stride_w > 1, wide_filter = p.r * p.s > 9;
  const bool halves = info(p.dtype).bytes == 2;
  const int channels = p.layout == Layout::nhwc ? 4 : 1;
  Tile best{2, 2, channels};
  if (p.layout == Layout::nchw) {
    best = {7, 1, channels};
  } else if (strided) {
    best = {wide_filter && halves ? 2 : 1, 2, channels};
  } else if (halves || min_bytes(p) > kLarge) {
    best = {4, 2, channels};
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

class DepthwiseGpu : public Algorithm {
 public:
  std::string_view name() const override { return "depthwise_gpu"; }
  std::string_view description() const override {
    return "each input channel on its own; a thread's neighbouring results share what they read";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& problem, const Target&) const override {
    if (!is_depthwise(problem)) {
      return Support::declined(
          fmt::format("groups = {} and c = {}: depthwise has a group for each of several channels",
                      problem.groups, problem.c));
    }
    return gpu::fits(problem);
  }

  std::vector<Config> configs(const Problem& problem, const Target& target) const override {
    std::vector<Config> configs;
    for (const Tile& tile : tiles(problem, target.device.info())) {
      configs.push_back({tile.name(), tile_ms(problem, tile, target.device.info()), "bytes", 0});
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    double share = 0.1;  // of the device's arithmetic: it waits for memory
    for (const int line : kLines) {
      if (problem.direction == Direction::backward_weights && line != kLines[0]) continue;
      const double ms = gpu::arithmetic_ms(problem, target.device, share);
      configs.push_back({fmt::format("w{}", line),
                         configs.empty() ? ms : std::max(ms, 1.5 * configs.back().predicted_ms), "bytes", 0});
      share *= 0.8;
    }
    return configs;
  }

  Recipe plan(const Problem& problem, const std::string& config, const Target& target) const override {
    for (const Tile& tile : tiles(problem, target.device.info())) {
      if (config == tile.name()) return plan_tile(problem, tile, target);
    }
    const int line = parse(config);
    const jit::Built built = gpu::build(
        target.device, kernel_name(*this, config), "depthwise.cl", "depthwise",
        gpu::constants(problem, {{std::string("DIRECTION_") + faltung::name(problem.direction), "1"},
                                 {"THREADS", std::to_string(kThreads)},
                                 {"TILE", std::to_string(line)}}));
    const TensorShape result = result_shape(problem);
    const bool weights = problem.direction == Direction::backward_weights;
    const LaunchShape shape =
        weights ? gpu::one_dimension(result.elements() * kThreads, kThreads)  // a block for each
                : gpu::one_dimension(result.n * result.c * result.h * ceil_div(result.w, line), kThreads);
    Device& device = target.device;
    Recipe recipe;
    recipe.compile_ms = built.compile_ms;
    recipe.steps.push_back(
        {"depthwise", [&device, kernel = built.kernel, shape, z = gpu::sizes(problem),
                       forward = problem.direction == Direction::forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           if (forward) {
             device.launch(*kernel, shape, {t.x, t.w, t.y, t.bias, t.residual, z}, i.stream);
           } else {
             device.launch(*kernel, shape, {t.x, t.w, t.y, z}, i.stream);
           }
         }});
    return recipe;
  }

 private:
  Recipe plan_tile(const Problem& p, const Tile& tile, const Target& target) const {
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, tile.name());
    const bool nhwc = p.layout == Layout::nhwc;
    const gpu::Sizes z = gpu::sizes(p);
    Recipe recipe;
    const jit::Built main = gpu::build(device, kernel, "depthwise_tile.cl", "depthwise_tile",
                                       gpu::constants(p, {{"THREADS", std::to_string(kTileThreads)},
                                                          {"TP", std::to_string(tile.rows)},
                                                          {"TQ", std::to_string(tile.columns)},
                                                          {"CV", std::to_string(tile.channels)}}));
    recipe.compile_ms = main.compile_ms;
    if (nhwc) {
      Problem bare = p;
      bare.epilogue = Epilogue{};
      const jit::Built pack = gpu::build(device, kernel, "pack_depthwise.cl", "pack_depthwise",
                                         gpu::constants(bare, {{"THREADS", std::to_string(kThreads)}}));
      recipe.compile_ms += pack.compile_ms;
      recipe.packed_bytes = static_cast<std::size_t>(bytes_of(p, w_shape(p)));
      recipe.pack.push_back({"pack weights", [&device, kernel = pack.kernel, z,
                                              shape = gpu::one_dimension(w_shape(p).elements(), kThreads)](
                                                 const Invocation& i) {
                               device.launch(*kernel, shape, {i.tensors.w, i.packed, z}, i.stream);
                             }});
    }
    LaunchShape shape = gpu::one_dimension(
        nhwc ? p.k / tile.channels * ceil_div(p.q(), tile.columns) : p.k * p.q() * ceil_div(p.p(), tile.rows),
        kTileThreads);
    shape.grid[1] = nhwc ? static_cast<unsigned>(ceil_div(p.p(), tile.rows)) : 1;
    shape.grid[2] = static_cast<unsigned>(p.n);
    recipe.steps.push_back(
        {"depthwise", [&device, kernel = main.kernel, shape, z, nhwc](const Invocation& i) {
           const Tensors& t = i.tensors;
           const void* w = nhwc ? i.packed : t.w;
           device.launch(*kernel, shape, {t.x, w, t.y, t.bias, t.residual, z}, i.stream);
         }});
    return recipe;
  }

  int parse(const std::string& config) const {
    for (const int line : kLines) {
      if (config == fmt::format("w{}", line)) return line;
    }
    throw Error(
        Status::bad_problem,
        "depthwise_gpu has the configs w4, w8, w1, and forward with as many channels out as in t4x4 to "
        "t1x1 in nhwc and t8x1 to t2x1 in nchw; not '" +
            config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_depthwise_gpu() { return std::make_unique<DepthwiseGpu>(); }

}  // namespace faltung
