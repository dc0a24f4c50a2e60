// The convolution as a matrix product on an NVIDIA GPU's matrix units, by the instruction that all of them
// have since compute capability 8.0. Hopper's own instructions are implicit_gemm_sm90's.
#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "src/algorithms/gpu.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

i64 div_up(i64 a, i64 b) { return (a + b - 1) / b; }

constexpr int kStepBytes = 128;  // of a pixel's steps of the sum in a tile

// A block's pixels and channels, its warps along each, and how many tiles of the sum it holds.
struct Tile {
  int pixels, channels, warps_p, warps_c, stages;
  double gflops;  // of a multiprocessor, 16-bit
  int threads() const { return 32 * warps_p * warps_c; }
  std::string name() const {
    return fmt::format("b{}x{}_w{}x{}_st{}", pixels, channels, warps_p, warps_c, stages);
  }
  // 128 bytes of steps for each pixel and as many steps of each channel, in every stage; later the results.
  int local_bytes(DType dtype) const {
    const int element = info(dtype).bytes;
    const int staged = stages * (pixels * kStepBytes + kStepBytes * channels);
    const int results = std::max(pixels * (channels + 8), channels * (pixels + 8)) * element;
    return pixels * 20 + std::max(staged, results);
  }
};

constexpr Tile kTiles[] = {
    {128, 128, 2, 2, 3, 2700}, {128, 128, 4, 2, 3, 2000}, {128, 64, 2, 2, 3, 2400},
    {64, 128, 2, 2, 3, 2500},  {64, 64, 2, 2, 4, 2100},
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
  i64 products;  // groups times phases
};

Shape shape_of(const Problem& p) {
  const bool forward = p.direction == Direction::forward;
  const i64 phases = forward ? 1 : p.stride_h * p.stride_w;
  return {forward ? p.n * p.p() * p.q() : p.n * div_up(p.h, p.stride_h) * div_up(p.w, p.stride_w),
          (forward ? p.c : p.k) / p.groups, (forward ? p.k : p.c) / p.groups, p.groups * phases};
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
    if (p.direction == Direction::backward_weights) return Support::declined("no gradient of the weights");
    if (p.math == Math::f32 || (p.dtype == DType::f32 && p.math != Math::tf32)) {
      return Support::declined(
          "the matrix units take f16, bf16 and tf32 operands, less than f32 math promises");
    }
    if (is_depthwise(p)) {
      return Support::declined("a depthwise group is a product with one row: nothing is shared");
    }
    const Support size = gpu::fits(p);
    if (!size.yes) return size;
    const Shape s = shape_of(p);
    if (div_up(s.out, 64) > kMostBlocks || s.products > kMostBlocks) {
      return Support::declined(
          fmt::format("{} channels and {} groups or phases: at most {} blocks of each are "
                      "launched at once",
                      s.out, s.products, kMostBlocks));
    }
    return Support::supported();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    const Shape s = shape_of(p);
    const int units = std::max(1, target.device.info().units), element = info(p.dtype).bytes;
    for (const Tile& t : kTiles) {
      // 64 x 64 results a warp leave no registers for what is gathered.
      if (gathers(p) && t.pixels * t.channels > 96 * 64 * t.warps_p * t.warps_c / 2) continue;
      // Constants fitted to resnet50's rows on an H200: a block that is alone on its multiprocessor waits
      // more, and beginning and ending a round of blocks takes its time.
      constexpr double kLaunchMs = 0.002, kRoundMs = 0.003, kAlone = 0.85, kLocalBytes = 232448;
      const double blocks =
          static_cast<double>(div_up(s.pixels, t.pixels) * div_up(s.out, t.channels) * s.products);
      const double steps =
          static_cast<double>(div_up(s.in * element, kStepBytes) * (kStepBytes / element) * p.r * p.s) /
          (p.direction == Direction::forward ? 1.0 : static_cast<double>(p.stride_h * p.stride_w));
      const double of_unit = std::ceil(blocks / units);
      const double resident = std::max(1.0, std::floor(kLocalBytes / t.local_bytes(p.dtype)));
      const double gflops =
          t.gflops * (element == 2 ? 1 : 0.45) * (gathers(p) ? 0.5 : 1) * (of_unit > 1 ? 1 : kAlone);
      const double arithmetic_ms = kRoundMs * std::ceil(of_unit / resident) +
                                   of_unit * 2.0 * t.pixels * t.channels * steps / gflops * 1e-6;
      constexpr double kUnitGbps = 20;
      const double bytes_ms = min_bytes(p) / (kUnitGbps * units) * 1e-6;
      configs.push_back({t.name(), kLaunchMs + std::max(arithmetic_ms, bytes_ms),
                         arithmetic_ms > bytes_ms ? "arithmetic" : "bytes", 0});
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    const Tile& tile = parse(config);
    Device& device = target.device;
    const std::string kernel = kernel_name(*this, tile.name());
    const bool forward = p.direction == Direction::forward;
    const Shape s = shape_of(p);
    const auto n = [](i64 value) { return std::to_string(value); };
    const gpu::Constants shared = {{std::string("DIRECTION_") + faltung::name(p.direction), "1"},
                                   {"COMPACT", "0"}};
    gpu::Constants own = shared;
    const i64 steps = kStepBytes / info(p.dtype).bytes;
    own.insert(own.end(), {{"BP", n(tile.pixels)},
                           {"BC", n(tile.channels)},
                           {"WARPS_P", n(tile.warps_p)},
                           {"WARPS_C", n(tile.warps_c)},
                           {"STAGES", n(tile.stages)},
                           {"GATHER", gathers(p) ? "1" : "0"},
                           {"FLAT", gathers(p) && s.in % steps != 0 && s.in < 2 * steps ? "1" : "0"},
                           {"EXACT", s.in % steps == 0 ? "1" : "0"},
                           {"THREADS", n(tile.threads())}});
    const jit::Built main =
        gpu::build(device, kernel, "implicit_gemm_mma.cu", "implicit_gemm_mma", gpu::constants(p, own));
    Problem bare = p;
    bare.epilogue = Epilogue{};
    gpu::Constants packing = shared;
    packing.push_back({"THREADS", n(kPackThreads)});
    const jit::Built pack =
        gpu::build(device, kernel, "pack_weights.cl", "pack_weights", gpu::constants(bare, packing));

    const i64 out_pad = div_up(s.out, tile.channels) * tile.channels;
    const i64 packed = p.groups * p.r * p.s * s.in * out_pad;
    const gpu::Sizes z = gpu::sizes(p);
    const auto pad = static_cast<std::int32_t>(out_pad);
    LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(div_up(s.pixels, tile.pixels));
    shape.grid[1] = static_cast<unsigned>(out_pad / tile.channels);
    shape.grid[2] = static_cast<unsigned>(s.products);
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
    recipe.steps.push_back(
        {"product", [&device, kernel = main.kernel, z, pad, shape, forward](const Invocation& i) {
           const Tensors& t = i.tensors;
           const void* in = forward ? t.x : t.y;
           void* out = forward ? t.y : t.x;
           device.launch(*kernel, shape, {in, i.packed, out, t.bias, t.residual, pad, z}, i.stream);
         }});
    return recipe;
  }

 private:
  // Whether the steps of a pixel are no aligned 16 bytes in memory.
  static bool gathers(const Problem& p) {
    const i64 chunk = 16 / info(p.dtype).bytes;
    return p.layout == Layout::nchw || shape_of(p).in % chunk != 0;
  }

  const Tile& parse(const std::string& config) const {
    std::string names;
    for (const Tile& tile : kTiles) {
      if (config == tile.name()) return tile;
      names += (names.empty() ? "" : ", ") + tile.name();
    }
    throw Error(Status::bad_problem,
                "implicit_gemm_mma_gpu has the configs " + names + "; not '" + config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_implicit_gemm_mma_gpu() { return std::make_unique<ImplicitGemmMmaGpu>(); }

}  // namespace faltung
