// The convolution as a matrix product on an NVIDIA GPU's matrix units, by the instruction that all of them
// have since compute capability 8.0. Hopper's own instructions are implicit_gemm_sm90's.
#include <algorithm>

#include <fmt/core.h>

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/gathered_product.hpp"
#include "src/algorithms/implicit_gemm_mma.hpp"
#include "src/algorithms/implicit_gemm_mma_weights.hpp"
#include "src/algorithms/pass_time.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace implicit_gemm_mma_gpu {
namespace {

using i64 = std::int64_t;
using mma::kStepBytes;

// A block's pixels and channels, its warps along each, and how many tiles of the sum it holds.
struct Tile {
  int pixels, channels, warps_p, warps_c, stages;
  int registers;  // of a thread
  double gflops;  // of a multiprocessor that such blocks fill, 16-bit
  int threads() const { return 32 * warps_p * warps_c; }
  template <class Name>
  void spell(Name& name) {
    name.key("bt", pixels, channels);
    name.key("wp", warps_p, warps_c);
    name.key("st", stages);
  }
  // 128 bytes of steps for each pixel and as many steps of each channel, in every stage; later the results.
  int local_bytes(DType dtype) const {
    const int element = size_of(dtype);
    const int staged = stages * (pixels * kStepBytes + kStepBytes * channels);
    const int results = std::max(pixels * (channels + 8), channels * (pixels + 8)) * element;
    const int steps = 2 * kStepBytes / element * 32;
    return pixels * 20 + steps + std::max(staged, results);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 2, 2, 3, 240, 2990}, {128, 128, 4, 2, 3, 128, 2160}, {128, 64, 2, 2, 3, 178, 2620},
    {64, 128, 2, 2, 3, 160, 3000},  {64, 64, 2, 2, 4, 112, 2580},
};

constexpr int kMostSplits = 64;
constexpr TileTable<Tile> kTable("implicit_gemm_mma_gpu", kTiles, kMostSplits);
using Choice = TileChoice<Tile>;

// Whether the steps of a pixel are no aligned 16 bytes in memory.
bool gathers(const Problem& p) {
  return p.layout == Layout::nchw || gpu::gathered_product(p).in % mma::elements_of_chunk(p.dtype) != 0;
}

// Whether what a filter's row reads lies together: a few channels, as a network's first layer has them.
bool gathers_rows(const Problem& p) {
  return gathers(p) && p.layout == Layout::nhwc && p.direction == Direction::forward && p.groups == 1 &&
         p.dilation_w == 1 && p.c * p.s * size_of(p.dtype) <= 4 * kStepBytes;
}

// Whether tiles of the sum cross taps, because one tap's channels would leave most of a tile empty.
bool crosses_taps(const Problem& p) {
  const i64 in = gpu::gathered_product(p).in, steps = mma::steps_of_tile(p.dtype);
  return gathers(p) && !gathers_rows(p) && in % steps != 0 && in < 2 * steps;
}

// Of the sum, in tiles; of the phase that has the most.
i64 tiles_of_sum(const Problem& p) {
  const i64 steps = mma::steps_of_tile(p.dtype), in = gpu::gathered_product(p).in;
  if (gathers_rows(p)) return ceil_div(p.r * round_up(p.s * p.c, mma::elements_of_chunk(p.dtype)), steps);
  if (crosses_taps(p)) return ceil_div(p.r * p.s * in, steps);
  const bool forward = p.direction == Direction::forward;
  return (forward ? p.r * p.s : ceil_div(p.r, p.stride_h) * ceil_div(p.s, p.stride_w)) * ceil_div(in, steps);
}

i64 blocks_of(const Problem& p, const Tile& t) { return gpu::blocks_of(p, t.pixels, t.channels); }

std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  std::vector<Choice> choices;
  for (const int splits : gpu::splits_of(p, blocks_of(p, t), tiles_of_sum(p), device))
    choices.push_back({&t, splits});
  return choices;
}

double predicted_ms(const Problem& p, const Choice& c, const Target& target) {
  const DeviceInfo& device = target.device;
  constexpr double kLaunchMs = 0.0012, kLeastMs = 0.00048, kUnitGbps = 22, kExchangeGbps = 40, kApart = 1.25;
  constexpr int kReserved = 1024;  // bytes of local memory that a block takes beside its own
  const Tile& t = *c.tile;
  const int units = std::max(1, device.units);
  const int room = device.unit.known()
                       ? device.unit.blocks(t.threads(), t.registers, t.local_bytes(p.dtype) + kReserved)
                       : 1;
  const mma::Rounds rounds = {ceil_div(blocks_of(p, t) * c.splits, units),
                              std::max(1, room),
                              ceil_div(tiles_of_sum(p), c.splits),
                              t.pixels * t.channels,
                              t.gflops,
                              kLeastMs,
                              gathers_rows(p) ? 1.5
                              : gathers(p)    ? 2
                                              : 1};
  const double bytes_ms = min_bytes(p) / (kUnitGbps * units * memory_beside_fitted(target)) * 1e-6;
  const double exchanged = 2.0 * static_cast<double>(gpu::shared_sum_bytes(p, c.splits));
  // Results of strides lie apart in a row of planes: four rows of upsampling took 1.2 to 2.1 times as long.
  const bool apart = p.layout == Layout::nchw && p.direction == Direction::backward_data && p.stride_w > 1;
  return kLaunchMs + std::max(rounds.ms(p.dtype), bytes_ms) * (apart ? kApart : 1) +
         exchanged / (kExchangeGbps * units) * 1e-6;
}

class ImplicitGemmMmaGpu : public Algorithm {
 public:
  ImplicitGemmMmaGpu()
      : Algorithm({"implicit_gemm_mma_gpu",
                   "a matrix product on the matrix units of NVIDIA's GPUs since Ampere (mma.sync)", "gpu"}) {}

  Support accepts(const Problem& p, const Target& target) const override {
    if (target.device.dialect != "cuda")
      return Support::declined("mma.sync is CUDA's: OpenCL C has no matrix units");
    if (!target.device.has("mma_sync")) return Support::declined("needs compute capability 8.0 or higher");
    if (p.math == Math::f32 || (p.dtype == DType::f32 && p.math != Math::tf32)) {
      return Support::declined(
          "the matrix units take f16, bf16 and tf32 operands, less than f32 math promises");
    }
    const Support product = gpu::fits_a_product(p);
    if (!product.yes) return product;
    if (p.direction == Direction::backward_weights) return mma_weights::supports(p);
    return gpu::fits_a_grid(p, 64);
  }

 private:
  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device;
    if (p.direction == Direction::backward_weights) return mma_weights::list(p, target);
    std::vector<Candidate> all;
    for (const Tile& t : kTable) {
      // 64 x 64 results a warp leave no registers for what is gathered.
      if (gathers(p) && t.pixels * t.channels > 96 * 64 * t.warps_p * t.warps_c / 2) continue;
      for (const Choice& c : choices(p, t, device)) all.push_back(candidate_of(p, c, target));
    }
    return all;
  }

  Maker parse(const std::string& config, Direction direction) const override {
    return direction == Direction::backward_weights ? mma_weights::parse(config)
                                                    : maker(kTable.parse(config));
  }

  static Maker maker(const Choice& choice) {
    return [choice](const Problem& p, const Target& target) { return candidate_of(p, choice, target); };
  }

  static Candidate candidate_of(const Problem& p, const Choice& choice, const Target& target) {
    const DeviceInfo& device = target.device;
    Candidate c = gpu::gathered_candidate(p, choice, predicted_ms(p, choice, target),
                                          gpu::packed_bytes(p, out_pad(p, *choice.tile), device));
    c.recipe = [p, choice, &device] { return recipe(p, choice, device); };
    c.maker = maker(choice);
    return c;
  }

  static i64 out_pad(const Problem& p, const Tile& tile) {
    return round_up(gpu::gathered_product(p).out, tile.channels);
  }

  static Recipe recipe(const Problem& p, const Choice& choice, const DeviceInfo& device) {
    const Tile& tile = *choice.tile;
    const std::string kernel = "implicit_gemm_mma_gpu/" + choice.name();
    const bool split = choice.splits > 1;
    const gpu::GatheredProduct g = gpu::gathered_product(p);
    const auto n = [](i64 value) { return std::to_string(value); };
    const gpu::Constants own = {gpu::direction_constant(p),
                                {"COMPACT", "0"},
                                {"BP", n(tile.pixels)},
                                {"BC", n(tile.channels)},
                                {"WARPS_P", n(tile.warps_p)},
                                {"WARPS_C", n(tile.warps_c)},
                                {"STAGES", n(tile.stages)},
                                {"GATHER", gathers(p) ? "1" : "0"},
                                {"FLAT", crosses_taps(p) ? "1" : "0"},
                                {"ROW_CHANNELS", n(gathers_rows(p) ? p.c : 0)},
                                {"EXACT", g.in % mma::steps_of_tile(p.dtype) == 0 ? "1" : "0"},
                                {"SPLIT", split ? "1" : "0"},
                                {"THREADS", n(tile.threads())}};
    const i64 pad = out_pad(p, tile);
    const gpu::GatheredLaunch launched = {pad, choice.splits,
                                          gpu::grid(ceil_div(g.pixels, tile.pixels), pad / tile.channels,
                                                    g.products * choice.splits, tile.threads())};
    return gpu::gathered_recipe(
        p, kernel,
        gpu::source(device, kernel, "implicit_gemm_mma.cu", "implicit_gemm_mma",
                    gpu::constants(split ? gpu::without_epilogue(p) : p, own), tile.local_bytes(p.dtype)),
        launched, gpu::packed_weights(p, kernel, pad, device), device);
  }
};

}  // namespace
}  // namespace implicit_gemm_mma_gpu

std::unique_ptr<Algorithm> make_implicit_gemm_mma_gpu() {
  return std::make_unique<implicit_gemm_mma_gpu::ImplicitGemmMmaGpu>();
}

}  // namespace faltung
