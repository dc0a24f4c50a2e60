// Columns of a transposed convolution's phases, computed beside each other on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/reference.hpp"
#include "tests/algorithms.hpp"

namespace faltung {
namespace {

std::vector<float> drawn_integers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return values;
}

// What the parts that compute the problem write, in which nothing may stay as it was.
std::vector<float> computed(const Problem& p, TileShape tile, PartCall call, const float* w) {
  std::vector<float> y(static_cast<std::size_t>(result_shape(p).elements()), NAN);
  call.out = y.data();
  for (const std::vector<TapConvolution>& phases : by_columns(tap_convolutions(p))) {
    const std::unique_ptr<ImplicitGemmPart> part = make_phase_lanes(p, phases, tile, 2);
    std::vector<float> packed(static_cast<std::size_t>(part->packed_floats()), NAN);
    for (std::int64_t item = 0; item < part->pack_items(); ++item) part->pack(item, w, packed.data());
    std::vector<std::byte> scratch(part->scratch_bytes() + kAlignment, std::byte{0xff});  // NaN
    call.packed = packed.data();
    call.scratch = reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(scratch.data())));
    for (std::int64_t item = 0; item < part->items(); ++item) part->run(item, call);
  }
  return y;
}

class ColumnPhases : public testing::TestWithParam<const char*> {};

TEST_P(ColumnPhases, GiveExactlyTheReference) {
  const Problem p = parse_problem(GetParam());
  const bool forward = p.direction == Direction::forward;
  const TensorShape in = forward ? x_shape(p) : y_shape(p), result = result_shape(p);
  const std::vector<float> from = drawn_integers(in.elements(), 1),
                           w = drawn_integers(w_shape(p).elements(), 2);
  const std::vector<float> bias = drawn_integers(p.k, 3), residual = drawn_integers(result.elements(), 4);
  PartCall call;
  call.in = from.data();
  if (p.epilogue.bias) call.bias = bias.data();
  if (p.epilogue.residual) call.residual = residual.data();
  Tensors tensors{};
  tensors.x = const_cast<float*>(from.data()), tensors.y = tensors.x;
  tensors.w = const_cast<float*>(w.data());
  tensors.bias = bias.data(), tensors.residual = residual.data();
  for (const TileShape tile : {TileShape{14, 1}, TileShape{14, 2}, TileShape{9, 3}, TileShape{6, 4}}) {
    const std::vector<float> y = computed(p, tile, call, w.data());
    for (std::int64_t n = 0; n < result.n; ++n) {
      for (std::int64_t c = 0; c < result.c; ++c) {
        for (std::int64_t d = 0; d < result.d; ++d) {
          for (std::int64_t h = 0; h < result.h; ++h) {
            for (std::int64_t x = 0; x < result.w; ++x) {
              ASSERT_EQ(y[static_cast<std::size_t>(result.offset({n, c, d, h, x}))],
                        reference(p, tensors, Position{n, c, d, h, x}).value)
                  << "n " << n << " c " << c << " d " << d << " h " << h << " w " << x << ", tiles of "
                  << tile.rows << "x" << tile.vectors;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ColumnPhases,
                         testing::Values("fwd:n1c3h1w700k5r1s4:transposed:st1x2:pad0x1:f32:nchw",
                                         "fwd:n2c6h5w9k31r3s3:transposed:st3:f32:nchw:bias:relu",
                                         "fwd:n1c5h7w9k15r4s4:transposed:st4:pad1:f32:nchw:bias:residual",
                                         "fwd:n2c2d3h5w7k9t3r3s3:transposed:st2:pad1:f32:nchw",
                                         "fwd:n1c4h1w20k3r1s16:transposed:st1x8:pad0x4:f32:nchw:bias",
                                         "fwd:n2c12h6w40k32r2s2:transposed:st2:g4:f32:nchw:bias",
                                         "bwd_d:n2c17h17w31k6r3s3:st2:pad1:f32:nchw",
                                         "bwd_d:n1c15h9w32k4r4s5:st2x3:pad1:f32:nchw"));

// Where columns are written by turns each line is brought again for each.
TEST(ImplicitGemmCpu, WritesColumnsOfPhasesSideBySide) {
  if (brgemm_lanes() < 8) GTEST_SKIP() << "with narrow vectors the products take longer than the lines";
  const Algorithm& algorithm = find_algorithm("implicit_gemm_cpu");
  const Target target{find_device("cpu")->info(), 2};
  for (const char* text : {"fwd:n1c64w25600k32s4:transposed:st2:pad1:f32:nchw",
                           "fwd:n1c256w1600k128s16:transposed:st8:pad4:f32:nchw",
                           "fwd:n1c128d32h32w32k64t2r2s2:transposed:st2:f32:nchw"}) {
    const std::vector<Candidate> all = algorithm.candidates(parse_problem(text), target);
    const auto best = std::ranges::min_element(all, {}, [](const Candidate& c) { return c.cost.ms; });
    EXPECT_THAT(best->recipe().packing, testing::HasSubstr("side by side"))
        << best->kernel() << " of " << text;
  }
}

}  // namespace
}  // namespace faltung
