// FFT convolution: overlapping tiles of T x T pixels, transformed, multiplied with the filter's frequencies
// as a matrix product over channels for each frequency, and transformed back. The work does not grow with the
// filter.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "src/algorithms/matrix_product.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr int kLogTiles[] = {4, 5};  // log2 T
// What the frequencies of a batch of tiles may take; on CPUs, to stay in a cache.
constexpr i64 kBatchBytes = 256 << 20, kBatchBytesOnCpu = 4 << 20;
constexpr i64 kMost = 0x3fffffff;  // elements of a matrix

// The product's tile: one that compiles quickly, and serves few channels too.
const gpu::ProductTile* product_tile(const DeviceInfo& device) {
  for (const gpu::ProductTile& tile : gpu::product_tiles()) {
    if (tile.scalars <= (device.has("runs_on_cpu") ? 16 : 64) && gpu::serves(tile, device)) return &tile;
  }
  return nullptr;
}

// A problem cut into tiles. backward_data is forward on the gradient with the filter turned around.
struct Tiles {
  Tiles(const Problem& p, int log_t, const gpu::ProductTile& product, const DeviceInfo& device)
      : log_t(log_t) {
    const bool forward = p.direction == Direction::forward;
    const i64 t = size(), out_h = forward ? p.p() : p.h, out_w = forward ? p.q() : p.w;
    ins = forward ? p.c : p.k, outs = forward ? p.k : p.c;
    frequencies = t * (t / 2 + 1);
    all = p.n * ceil_div(out_h, t - p.r + 1) * ceil_div(out_w, t - p.s + 1);
    const i64 bytes = device.has("runs_on_cpu") ? kBatchBytesOnCpu : kBatchBytes;
    const i64 fit = bytes / (frequencies * 2 * (ins + outs) * 4);
    batch = std::min(all, std::max<i64>(product.vectors, fit / product.vectors * product.vectors));
    pitch = round_up(batch, product.vectors), filter_pitch = round_up(2 * outs, product.scalars);
  }
  i64 size() const { return i64{1} << log_t; }
  int tiles_a_block() const { return log_t == 4 ? 8 : 4; }
  int threads() const { return tiles_a_block() * static_cast<int>(size()); }
  std::size_t local_bytes() const { return static_cast<std::size_t>(8 * tiles_a_block() * frequencies); }
  i64 input_floats() const { return frequencies * 2 * ins * pitch; }
  i64 result_floats() const { return frequencies * 2 * outs * pitch; }
  i64 filter_floats() const { return frequencies * 2 * ins * filter_pitch; }
  std::size_t result_at() const { return aligned(static_cast<std::size_t>(input_floats()) * 4); }
  std::size_t workspace_bytes() const {
    return result_at() + aligned(static_cast<std::size_t>(result_floats()) * 4);
  }

  int log_t;
  i64 frequencies, ins, outs;
  i64 all, batch;           // tiles: of the problem, and in the workspace at a time
  i64 pitch, filter_pitch;  // of the matrices
};

// docs/accuracy.md derives it: the transforms of the input, of the filter and back, and the product.
double growth(const Problem& p, int log_t) {
  const double channels = static_cast<double>(p.direction == Direction::forward ? p.c : p.k);
  return std::ldexp(3 * 8.6 * log_t + std::sqrt(2.0) * (2 * channels + 1), log_t);
}

// A tile of which the filter leaves a quarter in each dimension.
bool fits(const Problem& p, int log_t) { return std::max(p.r, p.s) * 4 <= (i64{3} << log_t); }

std::string limit(const Tiles& t, const DeviceInfo& device) {
  if (t.threads() > device.block_threads || t.local_bytes() > device.local_bytes) {
    return fmt::format("a block has {} threads and {} bytes of local memory, too few for a tile",
                       device.block_threads, device.local_bytes);
  }
  const i64 largest = std::max({t.input_floats(), t.result_floats(), t.filter_floats(), t.all});
  if (largest > kMost) return fmt::format("a matrix has {} elements: at most {} are indexed", largest, kMost);
  if (std::max(t.ins, t.outs) > 65535) return "at most 65535 channels are launched at once";
  return "";
}

double predicted_ms(const Problem& p, const Tiles& t, const DeviceInfo& device) {
  const bool cpu = device.has("runs_on_cpu");
  const double tiles = static_cast<double>(t.all), ins = static_cast<double>(t.ins),
               outs = static_cast<double>(t.outs);
  const double frequencies = static_cast<double>(t.frequencies);
  const double products = 4 * frequencies * tiles * ins * outs;
  const double transforms = (ins + outs) * tiles * 2 * frequencies * 10 * t.log_t;
  const double bytes = 2 * 4 * 2 * frequencies * tiles * (ins + outs);
  const double lanes_per_ms = device.units * (cpu ? 16e6 : 192e6),
               bytes_per_ms = device.units * (cpu ? 2e6 : 2e7);
  constexpr double kLaunchMs = 0.005;
  return 3 * kLaunchMs * static_cast<double>(ceil_div(t.all, t.batch)) +
         (products / (cpu ? 0.1 : 0.8) + transforms / (cpu ? 0.2 : 0.8)) / lanes_per_ms +
         (bytes + min_bytes(p)) / bytes_per_ms;
}

class FftGpu : public Algorithm {
 public:
  std::string_view name() const override { return "fft_gpu"; }
  std::string_view description() const override {
    return "overlapping tiles multiplied by frequency; its work does not grow with the filter";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& p, const Target& target) const override {
    const Support size = gpu::fits(p);
    if (!size.yes) return size;
    if (p.direction == Direction::backward_weights) {
      return Support::declined("it computes fwd and bwd_d, not bwd_w");
    }
    if (p.groups != 1) return Support::declined("it has no groups; use depthwise_gpu or direct_gpu");
    if (p.stride_h != 1 || p.stride_w != 1) return Support::declined("it computes stride 1 alone");
    if (p.dilation_h != 1 || p.dilation_w != 1) return Support::declined("it computes dilation 1 alone");
    if (std::max(p.r, p.s) > 24) return Support::declined("its filters are at most 24 x 24");
    const DeviceInfo& device = target.device.info();
    const gpu::ProductTile* product = product_tile(device);
    if (product == nullptr)
      return Support::declined("a block has too few threads for any tile of the product");
    std::string why = std::string("its bound on the error is beyond that of math ") + faltung::name(p.math) +
                      " for a filter this small; ask for math fast";
    for (const int log_t : kLogTiles) {
      if (!admitted(p, log_t)) continue;
      why = limit(Tiles(p, log_t, *product, device), device);
      if (why.empty()) return Support::supported();
    }
    return Support::declined(why);
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    const DeviceInfo& device = target.device.info();
    for (const int log_t : kLogTiles) {
      const Tiles tiles(p, log_t, *product_tile(device), device);
      if (!admitted(p, log_t) || !limit(tiles, device).empty()) continue;
      configs.push_back({fmt::format("tile{}", tiles.size()), predicted_ms(p, tiles, device), "bytes",
                         tiles.workspace_bytes()});
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, config);
    const gpu::ProductTile& product_of = *product_tile(device.info());
    const Tiles t(p, parse(p, config), product_of, device.info());
    const bool forward = p.direction == Direction::forward;
    Problem bare = p;  // what the epilogue does not touch is the same for every one
    bare.epilogue = Epilogue{};
    Problem floats = bare;
    floats.dtype = DType::f32;
    Recipe recipe;
    const auto build = [&](const char* entry, const Problem& problem) {
      const jit::Built built =
          gpu::build(device, kernel, "fft.cl", entry, constants(problem, t, device.info()));
      recipe.compile_ms += built.compile_ms;
      return built.kernel;
    };
    const auto filter = build("fft_filter", bare), input = build("fft_input", bare),
               output = build("fft_output", p);
    const jit::Built product = gpu::build_product(device, kernel, floats, product_of, false, true);
    recipe.compile_ms += product.compile_ms;
    recipe.workspace_bytes = t.workspace_bytes();
    recipe.packed_bytes = aligned(static_cast<std::size_t>(t.filter_floats()) * 4);
    const gpu::Sizes z = gpu::sizes(p);
    const auto number = [](i64 value) { return static_cast<std::int32_t>(value); };
    const auto shape = [t](i64 count, i64 channels) {
      LaunchShape s;
      s.grid[0] = static_cast<unsigned>(ceil_div(count, t.tiles_a_block())),
      s.grid[1] = static_cast<unsigned>(channels);
      s.block[0] = static_cast<unsigned>(t.threads());
      return s;
    };
    recipe.pack.push_back({"transform filter", [=, &device](const Invocation& i) {
                             device.launch(*filter, shape(t.outs, t.ins),
                                           {i.tensors.w, i.packed, number(t.filter_pitch), z}, i.stream);
                           }});
    recipe.steps.push_back(
        {"fft", [=, &device](const Invocation& v) {
           gpu::Sizes each_frequency = z;
           each_frequency.groups = number(t.frequencies);
           void* const result = v.workspace + t.result_at();
           const void* const from = forward ? v.tensors.x : v.tensors.y;
           void* const to = forward ? v.tensors.y : v.tensors.x;
           for (i64 first = 0; first < t.all; first += t.batch) {
             const i64 tiles = std::min(t.batch, t.all - first);
             device.launch(*input, shape(tiles, t.ins),
                           {from, v.workspace, number(first), number(tiles), number(t.pitch), z}, v.stream);
             gpu::Product each{v.packed,       v.workspace, result,     2 * t.ins,
                               t.filter_pitch, t.pitch,     2 * t.outs, tiles};
             each.pitch_out = t.pitch;
             gpu::launch_product(device, *product.kernel, product_of, each, v.tensors, each_frequency,
                                 v.stream);
             device.launch(*output, shape(tiles, t.outs),
                           {result, to, v.tensors.bias, v.tensors.residual, number(first), number(tiles),
                            number(t.pitch), z},
                           v.stream);
           }
         }});
    return recipe;
  }

  Accuracy accuracy(const Problem& p, const std::string& config) const override {
    const int log_t = parse(p, config), spread = (1 << log_t) - 1;
    return {growth(p, log_t), spread, spread, false};
  }

 private:
  static bool admitted(const Problem& p, int log_t) {
    return fits(p, log_t) && growth(p, log_t) <= admitted_growth(p);
  }

  static int parse(const Problem& p, const std::string& config) {
    for (const int log_t : kLogTiles) {
      if (config == fmt::format("tile{}", 1 << log_t) && fits(p, log_t)) return log_t;
    }
    throw Error(
        Status::bad_problem,
        "fft_gpu's configs are tile16 and tile32, the filter at most 3/4 of it; not '" + config + "'");
  }

  static gpu::Constants constants(const Problem& p, const Tiles& t, const DeviceInfo& device) {
    return gpu::constants(p, {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                              {"LOG_T", std::to_string(t.log_t)},
                              {"TILES", std::to_string(t.tiles_a_block())},
                              {"COMPACT", device.has("runs_on_cpu") ? "1" : "0"},
                              {"THREADS", std::to_string(t.threads())}});
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_fft_gpu() { return std::make_unique<FftGpu>(); }

}  // namespace faltung
