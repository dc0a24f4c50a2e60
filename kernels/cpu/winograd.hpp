// Winograd's minimal filtering F(m x m, 3 x 3) for stride 1: the transforms around the matrix products.
//
// The output is cut into tiles of m x m, each computed from an overlapping tile of a x a inputs, a = m + 2:
//
//   y = A^T [ sum over c of (G w_c G^T) * (B^T x_c B) ] A        (* element by element)
//
// so a tile takes a * a multiplications a channel in place of 9 m m: 2.25 times fewer for m = 2, 4 times for
// m = 4. For each of the a * a positions the sum over channels is a matrix product, tiles by channels (V)
// times channels by filters (U); its result M is transformed back.
//
//   layout   V                  U                                     M
//   nhwc     [position][tile][c]   [position][k / width][c][k % width]   [position][tile][k]
//   nchw     [position][c][tile]   [position][k][c]                      [position][k][tile]
//
// Both transforms work on whole vectors: of channels for nhwc, of tiles for nchw. Tiles are numbered in the
// order n, row, column; the numbers of a block need not begin or end with an image or a row.
#ifndef FALTUNG_KERNELS_CPU_WINOGRAD_HPP_
#define FALTUNG_KERNELS_CPU_WINOGRAD_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

// The matrices of F(m, 3) by the points 0, 1, -1 and infinity for m = 2; for m = 4 by 0, +-a, +-b and
// infinity with a = 11/16 and b = 23/16. Of all pairs these err the least but for a few percent, half as much
// (docs/error_bounds.md: alpha) as the usual 1 and 2, and their powers are fp32 numbers. The error bounds are
// derived from these matrices; the kernels have B and A written out.
template <int m>
struct WinogradMatrices;

template <>
struct WinogradMatrices<2> {
  static constexpr double g[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  static constexpr double b[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};  // B^T
  static constexpr double a[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};                               // A^T
};

template <>
struct WinogradMatrices<4> {
  static constexpr double p = 0.6875, q = 1.4375;
  static constexpr double p2 = p * p, p3 = p2 * p, q2 = q * q, q3 = q2 * q, both = p2 * q2, sum = p2 + q2;
  static constexpr double at_p = 1 / (2 * p2 * (p2 - q2)), at_q = 1 / (2 * q2 * (q2 - p2));
  static constexpr double g[6][3] = {{1 / both, 0, 0},           {at_p, at_p* p, at_p* p2},
                                     {at_p, -at_p* p, at_p* p2}, {at_q, at_q* q, at_q* q2},
                                     {at_q, -at_q* q, at_q* q2}, {0, 0, 1}};
  static constexpr double b[6][6] = {{both, 0, -sum, 0, 1, 0},  {0, -p* q2, -q2, p, 1, 0},
                                     {0, p* q2, -q2, -p, 1, 0}, {0, -q* p2, -p2, q, 1, 0},
                                     {0, q* p2, -p2, -q, 1, 0}, {0, both, 0, -sum, 0, 1}};
  static constexpr double a[4][6] = {
      {1, 1, 1, 1, 1, 0}, {0, p, -p, q, -q, 0}, {0, p2, p2, q2, q2, 0}, {0, p3, -p3, q3, -q3, 1}};
};

inline constexpr int kMaxWinogradPositions = 36;

// A convolution as Winograd's algorithm sees it: backward_data is one of the gradient, whose image is then x.
struct WinogradShape {
  int m = 4;
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  std::int64_t n = 1, h = 1, w = 1;             // of x
  std::int64_t p = 1, q = 1;                    // of y
  std::int64_t pad_top = 0, pad_left = 0;       // the others follow from the sizes
  std::int64_t x_channels = 1, y_channels = 1;  // of all groups
  std::int64_t tiles_h = 1, tiles_w = 1;

  int a() const { return m + 2; }
  int positions() const { return a() * a(); }
  std::int64_t tiles() const { return n * tiles_h * tiles_w; }
};

// Some tiles of some channels from x to V.
struct WinogradInput {
  const void* x = nullptr;
  std::int64_t first_tile = 0, tiles = 0;
  std::int64_t first_channel = 0, channels = 0;
  float* v = nullptr;  // of the first tile and channel
  std::int64_t position_stride = 0;
  // nhwc: from a tile to the next, at least channels rounded up to whole vectors; nchw: from a channel to the
  // next, at least tiles rounded up to whole vectors. What lies between is written.
  std::int64_t row_stride = 0;
  float* scratch = nullptr;  // nchw: winograd_scratch(shape, tiles) floats
};

// Some tiles of some channels from M to y, with the epilogue. With a pool, of 2x2 at stride 2: y is its
// result.
struct WinogradOutput {
  const float* m = nullptr;  // of the first tile and channel; strides as in WinogradInput
  std::int64_t position_stride = 0, row_stride = 0;
  std::int64_t first_tile = 0, tiles = 0;
  std::int64_t first_channel = 0, channels = 0;
  void* y = nullptr;
  const void* bias = nullptr;      // [y_channels]; null: none
  const void* residual = nullptr;  // like y; null: none
  ResidualOrder residual_order = ResidualOrder::before_activation;
  ActivationCall activation;
  const float* slopes = nullptr;  // prelu's, [y_channels]
  PoolKind pool = PoolKind::none;
  float* scratch = nullptr;  // nchw: winograd_scratch(shape, tiles) floats
};

using WinogradInputKernel = void (*)(const WinogradShape&, const WinogradInput&);
using WinogradOutputKernel = void (*)(const WinogradShape&, const WinogradOutput&);
WinogradInputKernel winograd_input_kernel(const WinogradShape& shape);
WinogradOutputKernel winograd_output_kernel(const WinogradShape& shape);
// What the transforms of a block of so many tiles need, in floats.
std::int64_t winograd_scratch(const WinogradShape& shape, std::int64_t tiles);

// G w G^T of `count` filters beside each other: tap t of filter j is w[t * kMostFilters + j], position i of
// it becomes u[i * u_stride + j]. Computed in double and rounded once.
inline constexpr int kMostFilters = 32;  // of a panel, which is two vectors
void winograd_filters(int m, std::int64_t count, const float* w, float* u, std::int64_t u_stride);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_WINOGRAD_HPP_
