// FFT convolution on the CPU: overlapping tiles of T x T pixels, transformed, multiplied with the filter's
// frequencies as a matrix product over channels for each frequency, and transformed back. The work does not
// grow with the filter, so that large filters gain.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/fft.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/algorithms/fft_problem.hpp"
#include "src/algorithms/packing.hpp"
#include "src/algorithms/registry.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct FftTile {
  i64 side;  // in pixels
  template <class Name>
  void spell(Name& name) {
    name.key("ft", side);
  }
};
constexpr FftTile kFftTiles[] = {{16}, {32}, {64}};
constexpr TileTable<FftTile> kFftTable("fft_cpu", kFftTiles);

// A problem cut into tiles. backward_data is forward on the gradient with the filter turned around.
struct Tiling {
  Problem problem;
  i64 tile, frequencies;
  i64 in_channels, in_h, in_w, out_channels, out_h, out_w;
  i64 top, left;                         // the input's row and column at output 0's first tap
  StridedView filter;                    // as it is applied
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

Tiling make_tiling(const Problem& p, i64 tile) {
  constexpr i64 kWorkspaceFloats = 8 << 20;
  constexpr int kVectors = 2;  // a tile of the product
  Tiling t;
  t.problem = p;
  t.tile = tile;
  t.frequencies = fft_frequencies(tile);
  const Rewrite forward = forward_form(p);
  const TensorShape x = operand_shape(p, forward.x.of);
  t.in_channels = x.c, t.in_h = x.h, t.in_w = x.w;
  t.out_channels = forward.inner.k, t.out_h = forward.inner.p(), t.out_w = forward.inner.q();
  t.top = forward.first_row(), t.left = forward.first_column();
  t.filter = forward.w.view(w_shape(p));
  t.step_h = tile - p.r + 1, t.step_w = tile - p.s + 1;
  t.tiles_h = ceil_div(t.out_h, t.step_h);
  t.tiles_w = ceil_div(t.out_w, t.step_w);
  t.tiles = p.n * t.tiles_h * t.tiles_w;
  const i64 per_tile = t.frequencies * (3 * t.in_channels + 2 * t.out_channels);
  const i64 rows = brgemm_max_rows(kVectors);
  t.batch = std::min(t.tiles, std::max<i64>(1, kWorkspaceFloats / per_tile / rows) * rows);
  t.width = kVectors * brgemm_lanes();
  t.panels = ceil_div(t.out_channels, t.width);
  t.inputs = static_cast<std::size_t>(t.frequencies * t.batch * 3 * t.in_channels);
  t.outputs = static_cast<std::size_t>(t.frequencies * t.batch * 2 * t.out_channels);
  t.scratch = fft_scratch_floats(tile);
  return t;
}

// [frequency][real, imaginary][panel][input channel][width]
void pack_filter(const Tiling& t, const void* w, float* packed, const Parallel& parallel) {
  const Problem& p = t.problem;
  std::fill_n(packed, t.packed_floats(), 0.0f);
  parallel.each(t.in_channels * t.out_channels, [&](i64 pair, int) {
    const i64 in = pair / t.out_channels, out = pair % t.out_channels;
    double taps[64 * 64], real[64 * 33], imaginary[64 * 33];
    for (i64 r = 0; r < p.r; ++r) {
      for (i64 s = 0; s < p.s; ++s) taps[r * p.s + s] = load_element(p.dtype, w, t.filter.at(out, in, r, s));
    }
    fft_filter(t.tile, p.r, p.s, taps, real, imaginary);
    const i64 part = t.panels * t.in_channels * t.width;
    const i64 at = (out / t.width * t.in_channels + in) * t.width + out % t.width;
    for (i64 f = 0; f < t.frequencies; ++f) {
      packed[f * 2 * part + at] = static_cast<float>(real[f]);
      packed[(f * 2 + 1) * part + at] = static_cast<float>(imaginary[f]);
    }
  });
}

// outputs = inputs · filter, complex, for one frequency and `tiles` tiles:
//   real = real · real + (-imaginary) · imaginary, imaginary = imaginary · real + real · imaginary
void multiply(const Tiling& t, const float* inputs, const float* filter, float* outputs, i64 tiles) {
  const i64 c = t.in_channels, k = t.out_channels, part = t.panels * c * t.width;
  const BrgemmSegment real[] = {{0, 0}, {2 * c, part}}, imaginary[] = {{c, 0}, {0, part}};
  const i64 most = brgemm_max_rows(static_cast<int>(t.width / brgemm_lanes()));
  for (i64 panel = 0; panel < t.panels; ++panel) {
    const i64 first = panel * t.width, columns = std::min(t.width, k - first);
    const int vectors = static_cast<int>(ceil_div(columns, brgemm_lanes()));
    for (i64 row = 0; row < tiles; row += most) {
      const i64 rows = std::min(most, tiles - row);
      const BrgemmKernel kernel = brgemm_kernel(BrgemmRows::strided, static_cast<int>(rows), vectors);
      BrgemmCall call;
      call.a0 = inputs + row * 3 * c;
      call.a1 = inputs + (row + 7) * 3 * c;
      call.a_row_stride = 3 * c;
      call.b = filter + panel * c * t.width;
      call.b_step = t.width;
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

void run(const Tiling& tiling, const Memory& m, const Parallel& parallel) {
  const Problem& p = tiling.problem;
  const bool is_forward = p.direction == Direction::forward;
  auto* const inputs = reinterpret_cast<float*>(m[Place::workspace]);
  auto* const outputs = reinterpret_cast<float*>(m[Place::workspace] + aligned(tiling.inputs * 4));
  std::byte* const scratches = reinterpret_cast<std::byte*>(outputs) + aligned(tiling.outputs * 4);
  const auto scratch = [&](int worker) {
    return reinterpret_cast<float*>(scratches +
                                    aligned(tiling.scratch * 4) * static_cast<std::size_t>(worker));
  };
  const auto image = [&](std::byte* tensor, i64 n, i64 channels, i64 h, i64 w) {
    std::byte* data = tensor + n * channels * h * w * size_of(p.dtype);
    return FftImage{p.dtype, p.layout, data, channels, h, w};
  };
  const i64 c = tiling.in_channels, k = tiling.out_channels, lanes = fft_channels();
  const i64 c_blocks = ceil_div(c, lanes), k_blocks = ceil_div(k, lanes);
  for (i64 first = 0; first < tiling.tiles; first += tiling.batch) {
    const i64 tiles = std::min(tiling.batch, tiling.tiles - first);
    parallel.each(tiles * c_blocks, [&](i64 item, int worker) {
      const i64 t = item / c_blocks, channel = item % c_blocks * lanes, tile = first + t;
      const i64 row = tile / tiling.tiles_w % tiling.tiles_h * tiling.step_h + tiling.top;
      const i64 column = tile % tiling.tiles_w * tiling.step_w + tiling.left;
      const FftImage from = image(m[is_forward ? Place::x : Place::y], tile / tiling.tiles_w / tiling.tiles_h,
                                  c, tiling.in_h, tiling.in_w);
      fft_forward(tiling.tile, from, channel, std::min(lanes, c - channel), row, column, inputs + t * 3 * c,
                  tiling.batch * 3 * c, scratch(worker));
    });
    parallel.each(tiling.frequencies, [&](i64 f, int) {
      multiply(tiling, inputs + f * tiling.batch * 3 * c,
               reinterpret_cast<const float*>(m[Place::packed]) + f * 2 * tiling.panels * c * tiling.width,
               outputs + f * tiling.batch * 2 * k, tiles);
    });
    parallel.each(tiles * k_blocks, [&](i64 item, int worker) {
      const i64 t = item / k_blocks, channel = item % k_blocks * lanes, tile = first + t;
      const i64 row = tile / tiling.tiles_w % tiling.tiles_h * tiling.step_h;
      const i64 column = tile % tiling.tiles_w * tiling.step_w;
      const i64 n = tile / tiling.tiles_w / tiling.tiles_h;
      const FftImage to = image(m[result_place(p)], n, k, tiling.out_h, tiling.out_w);
      FftEpilogue epilogue;
      epilogue.of = p.epilogue;
      epilogue.slopes = reinterpret_cast<const float*>(m[Place::slopes]);
      if (p.epilogue.bias) epilogue.bias = m[Place::bias];
      if (p.epilogue.residual) {
        epilogue.residual = m[Place::residual] + n * k * tiling.out_h * tiling.out_w * size_of(p.dtype);
      }
      fft_inverse(tiling.tile, outputs + t * 2 * k, tiling.batch * 2 * k, to, channel,
                  std::min(lanes, k - channel), row, column, std::min(tiling.step_h, tiling.out_h - row),
                  std::min(tiling.step_w, tiling.out_w - column), epilogue, scratch(worker));
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
  const double channels = static_cast<double>(forward_form(p).inner.c);
  return static_cast<double>(tile) * (2 * (8.6 * passes + 2) + 1 + std::sqrt(2.0) * (2 * channels + 1));
}

class FftCpu : public Algorithm {
 public:
  FftCpu()
      : Algorithm({"fft_cpu",
                   "overlapping tiles multiplied by frequency; its work does not grow with the filter",
                   "cpu"}) {}

  Support accepts(const Problem& p, const Target&) const override {
    const Support serves = fft_serves(p, "cpu", 48);
    return serves.yes && tiles_for(p).empty() ? Support::declined(fft_errs_too_much(p)) : serves;
  }

 private:
  // A tile of which the filter leaves a quarter in each dimension, and takes a quarter where a smaller tile
  // would do: larger ones gain little and their error is larger.
  static bool fits(const Problem& p, i64 tile) {
    const i64 filter = std::max(p.r, p.s);
    return filter <= tile * 3 / 4 && (tile == kFftTiles[0].side || tile <= filter * 4);
  }

  static std::vector<FftTile> tiles_for(const Problem& p) {
    std::vector<FftTile> tiles;
    for (const FftTile& tile : kFftTable) {
      if (fits(p, tile.side) && growth(p, tile.side) <= admitted_growth(p)) tiles.push_back(tile);
    }
    return tiles;
  }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    std::vector<Candidate> all;
    for (const FftTile& tile : tiles_for(p)) all.push_back(candidate_of(p, tile, target.threads));
    return all;
  }

  Maker parse(const std::string& config, Direction) const override {
    return maker(*kFftTable.parse(config).tile);
  }

  static Maker maker(const FftTile& tile) {
    return [tile](const Problem& p, const Target& target) {
      if (fits(p, tile.side)) return candidate_of(p, tile, target.threads);
      throw Error(Status::bad_problem, "fft_cpu/" + config_name(tile) +
                                           " takes filters of at most 3/4 of its tile's side, and of at "
                                           "least 1/4 where a smaller tile would do; this is " +
                                           std::to_string(p.r) + "x" + std::to_string(p.s));
    };
  }

  static Candidate candidate_of(const Problem& p, const FftTile& tile, int threads) {
    const auto tiling = std::make_shared<const Tiling>(make_tiling(p, tile.side));
    const int spread = static_cast<int>(tile.side - 1);
    Candidate c;
    c.config = config_name(tile);
    c.cost = cost(*tiling, threads);
    c.workspace_bytes = tiling->workspace_bytes(threads);
    c.packed_bytes = tiling->packed_floats() * sizeof(float);
    c.accuracy = {growth(p, tile.side), spread, spread, false};
    c.recipe = [tiling, threads] { return recipe(tiling, threads); };
    c.maker = maker(tile);
    return c;
  }

  static Cost cost(const Tiling& t, int threads) {
    constexpr double kTransformGflops = 8, kProductGflops = 45, kGbps = 8;  // a thread
    const double pixels = static_cast<double>(t.tile * t.tile), tiles = static_cast<double>(t.tiles);
    const double lanes = static_cast<double>(fft_channels());
    const double c = static_cast<double>(t.in_channels), k = static_cast<double>(t.out_channels);
    const double transforms = tiles * (std::ceil(c / lanes) + std::ceil(k / lanes)) * lanes * 5 * pixels *
                              std::log2(static_cast<double>(t.tile));
    const double products = 8 * static_cast<double>(t.frequencies) * tiles * c * k;
    const double passes = std::ceil(tiles / static_cast<double>(t.batch));
    const double arithmetic = transforms / kTransformGflops + products / kProductGflops;
    const double bytes = (passes * static_cast<double>(t.packed_floats()) * 4 + min_bytes(t.problem)) / kGbps;
    return {(arithmetic + bytes) * 1e-6 / threads + 0.01,
            arithmetic > bytes ? Bound::arithmetic : Bound::bytes};
  }

  static Recipe recipe(const std::shared_ptr<const Tiling>& tiling, int threads) {
    const Problem& p = tiling->problem;
    Recipe recipe;
    recipe.packed_bytes = tiling->packed_floats() * sizeof(float);
    recipe.workspace_bytes = tiling->workspace_bytes(threads);
    recipe.packing = packing_of(p);
    recipe.pack.push_back(call(
        "transform filter", {Place::w}, {Place::packed}, [tiling](const Memory& m, const Parallel& parallel) {
          pack_filter(*tiling, m[Place::w], reinterpret_cast<float*>(m[Place::packed]), parallel);
        }));
    const Place from = p.direction == Direction::forward ? Place::x : Place::y;
    recipe.steps.push_back(
        call("fft", {from, Place::packed, Place::bias, Place::residual, Place::slopes},
             {result_place(p), Place::workspace},
             [tiling](const Memory& m, const Parallel& parallel) { run(*tiling, m, parallel); }));
    return recipe;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_fft_cpu() { return std::make_unique<FftCpu>(); }

}  // namespace faltung
