// FFT convolution on the CPU: overlapping tiles of T x T pixels, transformed, multiplied with the filter's
// frequencies as a matrix product over channels for each frequency, and transformed back. The work does not
// grow with the filter, so that large filters gain.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/fft.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr i64 kTiles[] = {16, 32, 64};

// A problem cut into tiles. backward_data is forward on the gradient with the filter turned around.
struct Plan {
  Problem problem;
  i64 tile, frequencies;
  i64 in_channels, in_h, in_w, out_channels, out_h, out_w;
  i64 top, left;                         // the input's row and column at output 0's first tap
  i64 step_h, step_w;                    // outputs of a tile
  i64 tiles_h, tiles_w, tiles;           // of an image, and of all
  i64 batch;                             // tiles that are in the workspace at a time
  i64 width, panels;                     // of the matrix products' right side
  std::size_t inputs, outputs, scratch;  // floats

  std::size_t packed_floats() const {
    return static_cast<std::size_t>(frequencies * 2 * panels * width * in_channels);
  }
  std::size_t workspace_bytes(int threads) const {
    return aligned(inputs * 4) + aligned(outputs * 4) +
           aligned(scratch * 4) * static_cast<std::size_t>(threads);
  }
};

Plan make_plan(const Problem& p, i64 tile) {
  constexpr i64 kWorkspaceFloats = 8 << 20;
  constexpr int kVectors = 2;  // a tile of the product
  Plan plan;
  plan.problem = p;
  plan.tile = tile;
  plan.frequencies = fft_frequencies(tile);
  if (p.direction == Direction::forward) {
    plan.in_channels = p.c, plan.in_h = p.h, plan.in_w = p.w;
    plan.out_channels = p.k, plan.out_h = p.p(), plan.out_w = p.q();
    plan.top = -p.pad_top, plan.left = -p.pad_left;
  } else {
    plan.in_channels = p.k, plan.in_h = p.p(), plan.in_w = p.q();
    plan.out_channels = p.c, plan.out_h = p.h, plan.out_w = p.w;
    plan.top = p.pad_top - (p.r - 1), plan.left = p.pad_left - (p.s - 1);
  }
  plan.step_h = tile - p.r + 1, plan.step_w = tile - p.s + 1;
  plan.tiles_h = (plan.out_h + plan.step_h - 1) / plan.step_h;
  plan.tiles_w = (plan.out_w + plan.step_w - 1) / plan.step_w;
  plan.tiles = p.n * plan.tiles_h * plan.tiles_w;
  const i64 per_tile = plan.frequencies * (3 * plan.in_channels + 2 * plan.out_channels);
  const i64 rows = brgemm_max_rows(kVectors);
  plan.batch = std::min(plan.tiles, std::max<i64>(1, kWorkspaceFloats / per_tile / rows) * rows);
  plan.width = kVectors * brgemm_lanes();
  plan.panels = (plan.out_channels + plan.width - 1) / plan.width;
  plan.inputs = static_cast<std::size_t>(plan.frequencies * plan.batch * 3 * plan.in_channels);
  plan.outputs = static_cast<std::size_t>(plan.frequencies * plan.batch * 2 * plan.out_channels);
  plan.scratch = fft_scratch_floats(tile);
  return plan;
}

// [frequency][real, imaginary][panel][input channel][width]
void pack_filter(const Plan& plan, const void* w, float* packed, const Parallel& parallel) {
  const Problem& p = plan.problem;
  const bool forward = p.direction == Direction::forward;
  std::fill_n(packed, plan.packed_floats(), 0.0f);
  parallel.each(plan.in_channels * plan.out_channels, [&](i64 pair, int) {
    const i64 in = pair / plan.out_channels, out = pair % plan.out_channels;
    const i64 k = forward ? out : in, c = forward ? in : out;
    double taps[64 * 64], real[64 * 33], imaginary[64 * 33];
    for (i64 r = 0; r < p.r; ++r) {
      for (i64 s = 0; s < p.s; ++s) {
        const i64 from_r = forward ? r : p.r - 1 - r, from_s = forward ? s : p.s - 1 - s;
        taps[r * p.s + s] = load_element(p.dtype, w, w_shape(p).offset(k, c, from_r, from_s));
      }
    }
    fft_filter(plan.tile, p.r, p.s, taps, real, imaginary);
    const i64 part = plan.panels * plan.in_channels * plan.width;
    const i64 at = (out / plan.width * plan.in_channels + in) * plan.width + out % plan.width;
    for (i64 f = 0; f < plan.frequencies; ++f) {
      packed[f * 2 * part + at] = static_cast<float>(real[f]);
      packed[(f * 2 + 1) * part + at] = static_cast<float>(imaginary[f]);
    }
  });
}

// outputs = inputs · filter, complex, for one frequency and `tiles` tiles:
//   real = real · real + (-imaginary) · imaginary, imaginary = imaginary · real + real · imaginary
void multiply(const Plan& plan, const float* inputs, const float* filter, float* outputs, i64 tiles) {
  const i64 c = plan.in_channels, k = plan.out_channels, part = plan.panels * c * plan.width;
  const BrgemmSegment real[] = {{0, 0}, {2 * c, part}}, imaginary[] = {{c, 0}, {0, part}};
  const i64 most = brgemm_max_rows(static_cast<int>(plan.width / brgemm_lanes()));
  for (i64 panel = 0; panel < plan.panels; ++panel) {
    const i64 first = panel * plan.width, columns = std::min(plan.width, k - first);
    const int vectors = static_cast<int>((columns + brgemm_lanes() - 1) / brgemm_lanes());
    for (i64 row = 0; row < tiles; row += most) {
      const i64 rows = std::min(most, tiles - row);
      const BrgemmKernel kernel =
          brgemm_kernel(BrgemmElement::f32, BrgemmRows::strided, static_cast<int>(rows), vectors);
      BrgemmCall call;
      call.a0 = inputs + row * 3 * c;
      call.a1 = inputs + (row + 7) * 3 * c;
      call.a_row_stride = 3 * c;
      call.b = filter + panel * c * plan.width;
      call.b_step = plan.width;
      call.segment_count = 2;
      call.length = c;
      call.c_row_stride = 2 * k;
      call.columns = static_cast<int>(columns);
      for (const bool is_real : {true, false}) {
        call.segments = is_real ? real : imaginary;
        call.c0 = outputs + row * 2 * k + (is_real ? 0 : k) + first;
        call.c1 = call.c0 + 7 * 2 * k;
        kernel(call);
      }
    }
  }
}

void run(const Plan& plan, const Invocation& v) {
  const Problem& p = plan.problem;
  const Parallel& parallel = *v.stream.parallel;
  const bool is_forward = p.direction == Direction::forward;
  auto* const inputs = reinterpret_cast<float*>(v.workspace);
  auto* const outputs = reinterpret_cast<float*>(v.workspace + aligned(plan.inputs * 4));
  std::byte* const scratches = reinterpret_cast<std::byte*>(outputs) + aligned(plan.outputs * 4);
  const auto scratch = [&](int worker) {
    return reinterpret_cast<float*>(scratches + aligned(plan.scratch * 4) * static_cast<std::size_t>(worker));
  };
  const auto image = [&](void* tensor, i64 n, i64 channels, i64 h, i64 w) {
    std::byte* data = static_cast<std::byte*>(tensor) + n * channels * h * w * size_of(p.dtype);
    return FftImage{p.dtype, p.layout, data, channels, h, w};
  };
  const i64 c = plan.in_channels, k = plan.out_channels, lanes = fft_channels();
  const i64 c_blocks = (c + lanes - 1) / lanes, k_blocks = (k + lanes - 1) / lanes;
  for (i64 first = 0; first < plan.tiles; first += plan.batch) {
    const i64 tiles = std::min(plan.batch, plan.tiles - first);
    parallel.each(tiles * c_blocks, [&](i64 item, int worker) {
      const i64 t = item / c_blocks, channel = item % c_blocks * lanes, tile = first + t;
      const i64 row = tile / plan.tiles_w % plan.tiles_h * plan.step_h + plan.top;
      const i64 column = tile % plan.tiles_w * plan.step_w + plan.left;
      const FftImage from = image(is_forward ? v.tensors.x : v.tensors.y, tile / plan.tiles_w / plan.tiles_h,
                                  c, plan.in_h, plan.in_w);
      fft_forward(plan.tile, from, channel, std::min(lanes, c - channel), row, column, inputs + t * 3 * c,
                  plan.batch * 3 * c, scratch(worker));
    });
    parallel.each(plan.frequencies, [&](i64 f, int) {
      multiply(plan, inputs + f * plan.batch * 3 * c,
               reinterpret_cast<const float*>(v.packed) + f * 2 * plan.panels * c * plan.width,
               outputs + f * plan.batch * 2 * k, tiles);
    });
    parallel.each(tiles * k_blocks, [&](i64 item, int worker) {
      const i64 t = item / k_blocks, channel = item % k_blocks * lanes, tile = first + t;
      const i64 row = tile / plan.tiles_w % plan.tiles_h * plan.step_h;
      const i64 column = tile % plan.tiles_w * plan.step_w;
      const i64 n = tile / plan.tiles_w / plan.tiles_h;
      const FftImage to = image(is_forward ? v.tensors.y : v.tensors.x, n, k, plan.out_h, plan.out_w);
      FftEpilogue epilogue;
      epilogue.activation = p.epilogue.activation, epilogue.slope = p.epilogue.slope;
      if (p.epilogue.bias) epilogue.bias = v.tensors.bias;
      if (p.epilogue.residual) {
        epilogue.residual = static_cast<const std::byte*>(v.tensors.residual) +
                            n * k * plan.out_h * plan.out_w * size_of(p.dtype);
      }
      fft_inverse(plan.tile, outputs + t * 2 * k, plan.batch * 2 * k, to, channel,
                  std::min(lanes, k - channel), row, column, std::min(plan.step_h, plan.out_h - row),
                  std::min(plan.step_w, plan.out_w - column), epilogue, scratch(worker));
    });
  }
}

// The error relative to the sum over channels of the tile's largest |x| times the filter's sum of |w|, in
// 2^-24.
//
// A pass of radix 2 adds (1 unit) a product with a rounded twiddle (sqrt(5) + 1 units) to a number: its
// result's 2-norm is off by at most 4.3 units of its own, and the 2 log2 T passes and the step that takes two
// real rows apart (2 units) of a transform by 8.6 log2 T + 2. The transform there and the one back each do
// that to a norm of T max|x| for each channel. The filter's frequencies are computed in double and rounded
// once (1 unit); none is larger than its sum of |w|. The product over C channels sums 2C terms a part, on
// vectors of two parts: sqrt(2) (2C + 1). An element is off by no more than the 2-norm.
double growth(const Problem& p, i64 tile) {
  const double passes = std::log2(static_cast<double>(tile));
  const double channels = static_cast<double>(p.direction == Direction::forward ? p.c : p.k);
  return static_cast<double>(tile) * (2 * (8.6 * passes + 2) + 1 + std::sqrt(2.0) * (2 * channels + 1));
}

class FftCpu : public Algorithm {
 public:
  std::string_view name() const override { return "fft_cpu"; }
  std::string_view description() const override {
    return "overlapping tiles multiplied by frequency; its work does not grow with the filter";
  }
  std::string_view device_kind() const override { return "cpu"; }

  Support supports(const Problem& p, const Target&) const override {
    if (p.direction == Direction::backward_weights) {
      return Support::declined("it computes fwd and bwd_d, not bwd_w");
    }
    if (p.groups != 1) return Support::declined("it has no groups; use depthwise_cpu or direct_cpu");
    if (p.stride_h != 1 || p.stride_w != 1) return Support::declined("it computes stride 1 alone");
    if (p.dilation_h != 1 || p.dilation_w != 1) return Support::declined("it computes dilation 1 alone");
    if (std::max(p.r, p.s) > 48) return Support::declined("its filters are at most 48 x 48");
    if (tiles_for(p).empty()) {
      return Support::declined(std::string("its bound on the error is beyond that of math ") +
                               name_of(p.math) + " for a filter this small; ask for math fast");
    }
    return Support::supported();
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> configs;
    for (const i64 tile : tiles_for(p)) {
      const Plan plan = make_plan(p, tile);
      constexpr double kTransformGflops = 8, kProductGflops = 45, kGbps = 8;  // a thread
      const double pixels = static_cast<double>(tile * tile), tiles = static_cast<double>(plan.tiles);
      const double lanes = static_cast<double>(fft_channels());
      const double c = static_cast<double>(plan.in_channels), k = static_cast<double>(plan.out_channels);
      const double transforms = tiles * (std::ceil(c / lanes) + std::ceil(k / lanes)) * lanes * 5 * pixels *
                                std::log2(static_cast<double>(tile));
      const double products = 8 * static_cast<double>(plan.frequencies) * tiles * c * k;
      const double passes = std::ceil(tiles / static_cast<double>(plan.batch));
      const double arithmetic = transforms / kTransformGflops + products / kProductGflops;
      const double bytes = (passes * static_cast<double>(plan.packed_floats()) * 4 + min_bytes(p)) / kGbps;
      configs.push_back({"tile" + std::to_string(tile), (arithmetic + bytes) * 1e-6 / target.threads + 0.01,
                         arithmetic > bytes ? "arithmetic" : "bytes", plan.workspace_bytes(target.threads)});
    }
    std::stable_sort(configs.begin(), configs.end(),
                     [](const Config& a, const Config& b) { return a.predicted_ms < b.predicted_ms; });
    return configs;
  }

  Recipe plan(const Problem& p, const std::string& config, const Target& target) const override {
    const auto plan = std::make_shared<const Plan>(make_plan(p, tile_of(p, config)));
    Recipe recipe;
    recipe.packed_bytes = plan->packed_floats() * sizeof(float);
    recipe.workspace_bytes = plan->workspace_bytes(target.threads);
    recipe.pack.push_back({"transform filter", [plan](const Invocation& v) {
                             pack_filter(*plan, v.tensors.w, reinterpret_cast<float*>(v.packed),
                                         *v.stream.parallel);
                           }});
    recipe.steps.push_back({"fft", [plan](const Invocation& v) { run(*plan, v); }});
    return recipe;
  }

  Accuracy accuracy(const Problem& p, const std::string& config) const override {
    const i64 tile = tile_of(p, config);
    return {growth(p, tile), static_cast<int>(tile - 1), static_cast<int>(tile - 1), false};
  }

 private:
  static const char* name_of(Math math) { return faltung::name(math); }

  // A tile of which the filter leaves a quarter in each dimension, and takes a quarter where a smaller tile
  // would do: larger ones gain little and their error is larger.
  static bool fits(const Problem& p, i64 tile) {
    const i64 filter = std::max(p.r, p.s);
    return filter <= tile * 3 / 4 && (tile == kTiles[0] || tile <= filter * 4);
  }

  static std::vector<i64> tiles_for(const Problem& p) {
    std::vector<i64> tiles;
    for (const i64 tile : kTiles) {
      if (fits(p, tile) && growth(p, tile) <= admitted_growth(p)) tiles.push_back(tile);
    }
    return tiles;
  }

  static i64 tile_of(const Problem& p, const std::string& config) {
    for (const i64 tile : kTiles) {
      if (config == "tile" + std::to_string(tile) && fits(p, tile)) return tile;
    }
    throw Error(Status::bad_problem,
                "fft_cpu's configs are tile16, tile32 and tile64, the filter at most 3/4 of it; not '" +
                    config + "'");
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_fft_cpu() { return std::make_unique<FftCpu>(); }

}  // namespace faltung
