// The convolution as a matrix product on an NVIDIA GPU's matrix units, by the instruction that all of them
// have since compute capability 8.0. Hopper's own instructions are implicit_gemm_sm90's.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/implicit_gemm_mma_weights.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr int kStepBytes = 128;  // of a pixel's steps of the sum in a tile

// A block's pixels and channels, its warps along each, and how many tiles of the sum it holds.
struct Tile {
  int pixels, channels, warps_p, warps_c, stages;
  int registers;  // of a thread
  double gflops;  // of a multiprocessor that such blocks fill, 16-bit
  int threads() const { return 32 * warps_p * warps_c; }
  std::string name() const {
    return fmt::format("b{}x{}_w{}x{}_st{}", pixels, channels, warps_p, warps_c, stages);
  }
  // 128 bytes of steps for each pixel and as many steps of each channel, in every stage; later the results.
  int local_bytes(DType dtype) const {
    const int element = info(dtype).bytes;
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

// A tile, and among how many blocks a result's sum is shared.
struct Choice {
  const Tile* tile;
  i64 splits;
  std::string name() const { return tile->name() + (splits > 1 ? fmt::format("_s{}", splits) : ""); }
};

constexpr int kPackThreads = 64;
constexpr i64 kMostBlocks = 65535;

bool has_matrix_units(const DeviceInfo& device) {
  return std::any_of(device.features.begin(), device.features.end(), [](const std::string& feature) {
    return feature.starts_with("sm_") && std::atoi(feature.c_str() + 3) >= 80;
  });
}

// The product for one group and one phase of backward_data.
struct Shape {
  i64 pixels, in, out;
  i64 products;      // groups times phases
  i64 steps;         // of the sum, in tiles of kStepBytes; of the phase that has the most
  i64 out_elements;  // of the result
};

// Whether the steps of a pixel are no aligned 16 bytes in memory.
bool gathers(const Problem& p) {
  const i64 chunk = 16 / info(p.dtype).bytes;
  const i64 in = (p.direction == Direction::forward ? p.c : p.k) / p.groups;
  return p.layout == Layout::nchw || in % chunk != 0;
}

// Whether what a filter's row reads lies together: a few channels, as a network's first layer has them.
bool gathers_rows(const Problem& p) {
  return gathers(p) && p.layout == Layout::nhwc && p.direction == Direction::forward && p.groups == 1 &&
         p.dilation_w == 1 && p.c * p.s * info(p.dtype).bytes <= 4 * kStepBytes;
}

// Whether tiles of the sum cross taps, because one tap's channels would leave most of a tile empty.
bool crosses_taps(const Problem& p) {
  const i64 in = (p.direction == Direction::forward ? p.c : p.k) / p.groups,
            steps = kStepBytes / info(p.dtype).bytes;
  return gathers(p) && !gathers_rows(p) && in % steps != 0 && in < 2 * steps;
}

Shape shape_of(const Problem& p) {
  const bool forward = p.direction == Direction::forward;
  const i64 phases = forward ? 1 : p.stride_h * p.stride_w;
  const i64 in = (forward ? p.c : p.k) / p.groups, tile = kStepBytes / info(p.dtype).bytes, chunk = tile / 8;
  const i64 taps = forward ? p.r * p.s : ceil_div(p.r, p.stride_h) * ceil_div(p.s, p.stride_w);
  return {forward ? p.n * p.p() * p.q() : p.n * ceil_div(p.h, p.stride_h) * ceil_div(p.w, p.stride_w),
          in,
          (forward ? p.k : p.c) / p.groups,
          p.groups * phases,
          gathers_rows(p)   ? ceil_div(p.r * round_up(p.s * p.c, chunk), tile)
          : crosses_taps(p) ? ceil_div(p.r * p.s * in, tile)
                            : taps * ceil_div(in, tile),
          forward ? conv_shape(p).elements() : x_shape(p).elements()};
}

// As many parts as the sum has tiles, at most.
std::vector<Choice> choices(const Problem& p, const Tile& t, const DeviceInfo& device) {
  const Shape s = shape_of(p);
  const i64 blocks = ceil_div(s.pixels, t.pixels) * ceil_div(s.out, t.channels) * s.products;
  std::vector<Choice> choices = {{&t, 1}};
  // While the device has units with little to do, and each block a sum worth the exchange.
  for (const i64 splits : {2, 3, 4, 6, 8}) {
    if (blocks * splits > 4 * std::max(1, device.units) || s.steps < 4 * splits) break;
    if (s.products * splits <= kMostBlocks) choices.push_back({&t, splits});
  }
  return choices;
}

// Rounds of as many blocks as a multiprocessor holds; the constants are fitted to resnet50's rows on an H200.
double predicted_ms(const Problem& p, const Choice& c, const DeviceInfo& device) {
  constexpr double kLaunchMs = 0.0012, kRoundMs = 0.0034;  // a round begins, fills its stages, and writes
  constexpr double kStepMs = 0.00048;                      // a tile of the sum, if nothing else is in the way
  constexpr double kUnitGbps = 22, kExchangeGbps = 40;
  constexpr int kReserved = 1024;  // bytes of local memory that a block takes beside its own
  const Tile& t = *c.tile;
  const Shape s = shape_of(p);
  const int units = std::max(1, device.units), element = info(p.dtype).bytes;
  const i64 blocks = ceil_div(s.pixels, t.pixels) * ceil_div(s.out, t.channels) * s.products * c.splits;
  const i64 of_unit = ceil_div(blocks, units);
  const i64 resident =
      std::max(1, device.unit.known()
                      ? device.unit.blocks(t.threads(), t.registers, t.local_bytes(p.dtype) + kReserved)
                      : 1);
  const double gflops = t.gflops * (element == 2 ? 1 : 0.45);
  const double step_ms =
      2.0 * t.pixels * t.channels * static_cast<double>(kStepBytes / element) / gflops * 1e-6;
  const double gathering = gathers_rows(p) ? 1.5 : gathers(p) ? 2 : 1;
  const auto round_ms = [&](i64 count) {
    if (count == 0) return 0.0;
    return kRoundMs + static_cast<double>(ceil_div(s.steps, c.splits)) *
                          std::max(static_cast<double>(count) * step_ms, kStepMs) * gathering;
  };
  const double arithmetic_ms =
      static_cast<double>(of_unit / resident) * round_ms(resident) + round_ms(of_unit % resident);
  const double bytes_ms = min_bytes(p) / (kUnitGbps * units) * 1e-6;
  const double exchanged =
      c.splits > 1 ? 2.0 * sizeof(float) * static_cast<double>(c.splits * s.out_elements) : 0;
  return kLaunchMs + std::max(arithmetic_ms, bytes_ms) + exchanged / (kExchangeGbps * units) * 1e-6;
}

class ImplicitGemmMmaGpu : public Algorithm {
 public:
  std::string_view name() const override { return "implicit_gemm_mma_gpu"; }
  std::string_view description() const override {
    return "a matrix product on the matrix units of NVIDIA's GPUs since Ampere (mma.sync)";
  }
  std::string_view device_kind() const override { return "gpu"; }

  Support supports(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device.info();
    if (device.has("opencl")) return Support::declined("mma.sync is CUDA's: OpenCL C has no matrix units");
    if (!has_matrix_units(device)) return Support::declined("needs compute capability 8.0 or higher");
    if (p.math == Math::f32 || (p.dtype == DType::f32 && p.math != Math::tf32)) {
      return Support::declined(
          "the matrix units take f16, bf16 and tf32 operands, less than f32 math promises");
    }
    if (is_depthwise(p)) {
      return Support::declined("a depthwise group is a product with one row: nothing is shared");
    }
    const Support size = gpu::fits(p);
    if (!size.yes) return size;
    if (p.direction == Direction::backward_weights) return mma_weights::supports(p);
    const Shape s = shape_of(p);
    if (ceil_div(s.out, 64) > kMostBlocks || s.products > kMostBlocks) {
      return Support::declined(
          fmt::format("{} channels and {} groups or phases: at most {} blocks of each are "
                      "launched at once",
                      s.out, s.products, kMostBlocks));
    }
    return Support::supported();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    const DeviceInfo& device = target.device.info();
    if (p.direction == Direction::backward_weights) return mma_weights::configs(p, device);
    std::vector<Config> configs;
    for (const Tile& t : kTiles) {
      // 64 x 64 results a warp leave no registers for what is gathered.
      if (gathers(p) && t.pixels * t.channels > 96 * 64 * t.warps_p * t.warps_c / 2) continue;
      for (const Choice& c : choices(p, t, device)) {
        configs.push_back({c.name(), predicted_ms(p, c, device), "arithmetic", workspace_bytes(p, c)});
      }
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    if (p.direction == Direction::backward_weights) return mma_weights::plan(p, config, target.device);
    const Choice choice = parse(config);
    const Tile& tile = *choice.tile;
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, config);
    const bool forward = p.direction == Direction::forward, split = choice.splits > 1;
    const Shape s = shape_of(p);
    const auto n = [](i64 value) { return std::to_string(value); };
    const gpu::Constants shared = {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                                   {"COMPACT", "0"}};
    gpu::Constants own = shared;
    const i64 steps = kStepBytes / info(p.dtype).bytes;
    const bool rows = gathers_rows(p);
    own.insert(own.end(), {{"BP", n(tile.pixels)},
                           {"BC", n(tile.channels)},
                           {"WARPS_P", n(tile.warps_p)},
                           {"WARPS_C", n(tile.warps_c)},
                           {"STAGES", n(tile.stages)},
                           {"GATHER", gathers(p) ? "1" : "0"},
                           {"FLAT", crosses_taps(p) ? "1" : "0"},
                           {"ROW_CHANNELS", n(rows ? p.c : 0)},
                           {"EXACT", s.in % steps == 0 ? "1" : "0"},
                           {"SPLIT", split ? "1" : "0"},
                           {"THREADS", n(tile.threads())}});
    Problem bare = p;
    bare.epilogue = Epilogue{};
    const jit::Built main = gpu::build(device, kernel, "implicit_gemm_mma.cu", "implicit_gemm_mma",
                                       gpu::constants(split ? bare : p, own), tile.local_bytes(p.dtype));
    gpu::Constants packing = shared;
    packing.push_back({"THREADS", n(kPackThreads)});
    const jit::Built pack =
        gpu::build(device, kernel, "pack_weights.cl", "pack_weights", gpu::constants(bare, packing));

    const i64 out_pad = round_up(s.out, tile.channels);
    const i64 packed = p.groups * p.r * p.s * s.in * out_pad;
    const gpu::Sizes z = gpu::sizes(p);
    const auto pad = static_cast<std::int32_t>(out_pad);
    LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(ceil_div(s.pixels, tile.pixels));
    shape.grid[1] = static_cast<unsigned>(out_pad / tile.channels);
    shape.grid[2] = static_cast<unsigned>(s.products * choice.splits);
    shape.block[0] = static_cast<unsigned>(tile.threads());
    shape.shared_bytes = static_cast<unsigned>(tile.local_bytes(p.dtype));
    Recipe recipe;
    recipe.compile_ms = pack.compile_ms + main.compile_ms;
    recipe.packed_bytes = static_cast<std::size_t>(packed * info(p.dtype).bytes);
    recipe.pack.push_back(
        {"pack weights", [&device, kernel = pack.kernel, z, pad,
                          pack_shape = gpu::one_dimension(packed, kPackThreads)](const Invocation& i) {
           device.launch(*kernel, pack_shape, {i.tensors.w, i.packed, pad, z}, i.stream);
         }});
    const auto splits = static_cast<std::int32_t>(choice.splits);
    recipe.workspace_bytes = workspace_bytes(p, choice);
    recipe.steps.push_back(
        {"product", [&device, kernel = main.kernel, z, pad, splits, shape, forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           const void* in = forward ? t.x : t.y;
           void* out = splits > 1 ? static_cast<void*>(i.workspace) : forward ? t.y : t.x;
           device.launch(*kernel, shape, {in, i.packed, out, t.bias, t.residual, pad, splits, z}, i.stream);
         }});
    if (split) gpu::add_finish_step(recipe, p, kernel, choice.splits, device);
    return recipe;
  }

 private:
  static std::size_t workspace_bytes(const Problem& p, const Choice& c) {
    if (c.splits == 1) return 0;
    return sizeof(float) * static_cast<std::size_t>(c.splits * shape_of(p).out_elements);
  }

  static Choice parse(const std::string& config) {
    std::string names;
    for (const Tile& tile : kTiles) {
      const std::string name = tile.name();
      if (config == name) return {&tile, 1};
      if (config.starts_with(name + "_s")) {
        i64 splits = 0;
        const char *const begin = config.data() + name.size() + 2, *const end = config.data() + config.size();
        if (std::from_chars(begin, end, splits).ptr == end && splits > 1 && splits <= 64)
          return {&tile, splits};
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(Status::bad_problem, "implicit_gemm_mma_gpu has the configs " + names +
                                         ", and each with _s<splits, 2 to 64>; not '" + config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_mma_gpu() { return std::make_unique<ImplicitGemmMmaGpu>(); }

}  // namespace faltung
