// One of the depthwise kernels for matrix units on the CPU, beside plain loops, on small integers: exactly
// equal, or it says where not. tests/depthwise_mma_test.py defines what the host would, and the sizes; PARTS
// of a weights' gradient; DIAGONAL where the matrices are.
#include <utility>

#include "tests/lanes/lanes.hpp"

#if defined(DIAGONAL) && defined(DIRECTION_bwd_w)
#include "kernels/gpu/depthwise_diagonal_weights.cu"
#define KERNEL depthwise_diagonal_weights
#elif defined(DIAGONAL)
#include "kernels/gpu/depthwise_diagonal.cu"
#define KERNEL depthwise_diagonal
#define TILE_ROWS ROWS
#define TILE_COLUMNS COLUMNS
#elif defined(DIRECTION_bwd_w)
#include "kernels/gpu/depthwise_mma_weights.cu"
#define KERNEL depthwise_mma_weights
#else
#include "kernels/gpu/depthwise_mma.cu"
#define KERNEL depthwise_mma
#define TILE_COLUMNS (COLUMNS * 8)
#endif
#include "tests/lanes/tensors.hpp"

int main() {
  Sizes z{};
  z.n = BATCH, z.c = z.k = z.groups = SIZE_C, z.h = SIZE_H, z.w = SIZE_W;
  z.pad_top = PAD_TOP, z.pad_left = PAD_LEFT;
  z.p = (z.h + 2 * PAD_TOP - R) / STRIDE_H + 1, z.q = (z.w + 2 * PAD_LEFT - S) / STRIDE_W + 1;
  z.group_c = z.group_k = 1;
  std::mt19937 engine(1);
  const std::size_t x_size = at(z.n, 0, 0, 0, z.h, z.w, z.c), y_size = at(z.n, 0, 0, 0, z.p, z.q, z.c);
  const Tensor<u16> x = small_integers(x_size, engine), y = small_integers(y_size, engine),
                    w = small_integers(static_cast<std::size_t>(z.c) * R * S, engine),
                    bias = small_integers(SIZE_C, engine);
  std::vector<double> y_sum(y_size), x_sum(x_size), w_sum(w.count);
  for (int i = 0; i < z.n * z.p * z.q * z.c * R * S; ++i) {
    const int s = i % S, r = i / S % R, c = i / (R * S) % z.c, q = i / (R * S) / z.c % z.q;
    const int p = i / (R * S) / z.c / z.q % z.p, n = i / (R * S) / z.c / z.q / z.p;
    const int h = p * STRIDE_H - PAD_TOP + r, v = q * STRIDE_W - PAD_LEFT + s;
    if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
    const std::size_t in_x = at(n, h, v, c, z.h, z.w, z.c), in_y = at(n, p, q, c, z.p, z.q, z.c);
    const std::size_t in_w = static_cast<std::size_t>((c * R + r) * S + s);
    y_sum[in_y] += number(x.data[in_x]) * number(w.data[in_w]);
    x_sum[in_x] += number(y.data[in_y]) * number(w.data[in_w]);
    w_sum[in_w] += number(x.data[in_x]) * number(y.data[in_y]);
  }
#ifdef DIRECTION_bwd_w
  Tensor<float> result(w.count * PARTS, NAN);
  lanes::launch((z.c + CHANNELS - 1) / CHANNELS * PARTS, THREADS,
                [&] { KERNEL(x.data, y.data, result.data, PARTS, z); });
  for (std::size_t i = 0; i < w.count; ++i) {
    double sum = 0;
    for (int part = 0; part < PARTS; ++part) sum += result.data[part * w.count + i];
    expect(sum, w_sum[i], "w", i);
  }
#else
#ifdef DIRECTION_fwd
  const u16* const in = x.data;
  const std::vector<double>& sums = y_sum;
#else
  const u16* const in = y.data;
  const std::vector<double>& sums = x_sum;
#endif
  Tensor<u16> result(sums.size(), element(NAN));
  const auto parts = [](int size, int part) { return (size + part - 1) / part; };
  lanes::launch(
      parts(z.n, IMAGES) * parts(OUT_H, TILE_ROWS) * parts(OUT_W, TILE_COLUMNS) * parts(z.c, CHANNELS),
      THREADS, [&] { KERNEL(in, w.data, result.data, bias.data, nullptr, z); });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    expect(number(result.data[i]), sums[i] + (HAS_BIAS ? number(bias.data[i % SIZE_C]) : 0), "result", i);
  }
#endif
  expect_guards(result);
  return wrong == 0 ? 0 : 1;
}
