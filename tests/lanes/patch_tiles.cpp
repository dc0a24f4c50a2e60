// One of the kernels on matrix units whose blocks bring patches (kernels/gpu/mma_patch.h) on the CPU, beside
// plain loops, on small integers: exactly equal, or it says where not. tests/patch_tiles_test.py defines what
// the host would, which KERNEL it is, the sizes, and PARTS of a weights' gradient.
#include <utility>

#include "tests/lanes/lanes.hpp"

#include KERNEL_FILE
#include "tests/lanes/tensors.hpp"

int main() {
  Sizes z{};
  z.n = BATCH, z.c = z.k = SIZE_C, z.h = SIZE_H, z.w = SIZE_W;
  z.pad_top = PAD_TOP, z.pad_left = PAD_LEFT;
  z.p = (z.h + 2 * PAD_TOP - R) / STRIDE_H + 1, z.q = (z.w + 2 * PAD_LEFT - S) / STRIDE_W + 1;
  z.groups = SIZE_C / GROUP, z.group_c = z.group_k = GROUP;
  std::mt19937 engine(1);
  const std::size_t x_size = at(z.n, 0, 0, 0, z.h, z.w, z.c), y_size = at(z.n, 0, 0, 0, z.p, z.q, z.k),
                    w_size = static_cast<std::size_t>(z.k) * R * S * GROUP;
  const Tensor<u16> x = small_integers(x_size, engine), y = small_integers(y_size, engine),
                    w = small_integers(w_size, engine), bias = small_integers(SIZE_C, engine);
  // By loops: of each product of the convolution, where it belongs.
  std::vector<double> y_sum(y_size), x_sum(x_size), w_sum(w_size);
  for (int n = 0; n < z.n; ++n) {
    for (int i = 0; i < z.p * z.q * z.k * R * S * GROUP; ++i) {
      const int c = i % GROUP, s = i / GROUP % S, r = i / GROUP / S % R, k = i / GROUP / S / R % z.k;
      const int q = i / GROUP / S / R / z.k % z.q, p = i / GROUP / S / R / z.k / z.q;
      const int h = p * STRIDE_H - PAD_TOP + r, v = q * STRIDE_W - PAD_LEFT + s;
      if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
      const std::size_t in_x = at(n, h, v, k / GROUP * GROUP + c, z.h, z.w, z.c);
      const std::size_t in_y = at(n, p, q, k, z.p, z.q, z.k), in_w = at(k, r, s, c, R, S, GROUP);
      y_sum[in_y] += number(x.data[in_x]) * number(w.data[in_w]);
      x_sum[in_x] += number(y.data[in_y]) * number(w.data[in_w]);
      w_sum[in_w] += number(x.data[in_x]) * number(y.data[in_y]);
    }
  }
  const auto parts = [](int size, int part) { return (size + part - 1) / part; };
#ifdef DIRECTION_bwd_w
  Tensor<result_t> result(w_size * PARTS, SPLIT ? result_t(NAN) : result_t(element(NAN)));
  lanes::launch(
      parts(z.c, CHANNELS) * PARTS * CLUSTER, THREADS,
      [&] { KERNEL(x.data, y.data, result.data, PARTS * CLUSTER, z); }, CLUSTER);
  for (std::size_t i = 0; i < w_size; ++i) {
    double sum = 0;
    for (int part = 0; part < PARTS; ++part) sum += number(result.data[part * w_size + i]);
    expect(sum, w_sum[i], "w", i);
  }
#else
#ifdef DIRECTION_fwd
  constexpr int kDown = 1, kAcross = 1;  // results of a place
  const u16* const in = x.data;
  const std::vector<double>& sums = y_sum;
#else
  constexpr int kDown = STRIDE_H, kAcross = STRIDE_W;
  const u16* const in = y.data;
  const std::vector<double>& sums = x_sum;
#endif
  Tensor<u16> result(sums.size(), element(NAN));
  lanes::launch(parts(z.n, IMAGES) * parts(OUT_H, ROWS * kDown) * parts(OUT_W, COLUMNS * kAcross) *
                    parts(z.c, CHANNELS),
                THREADS, [&] { KERNEL(in, w.data, result.data, bias.data, x.data, nullptr, z); });
  for (std::size_t i = 0; i < sums.size(); ++i) {
#ifdef LAYOUT_nchw
    const std::size_t channel = i / (OUT_H * OUT_W) % SIZE_C;
#else
    const std::size_t channel = i % SIZE_C;
#endif
    const double own = HAS_BIAS ? number(bias.data[channel]) : 0,
                 residual = HAS_RESIDUAL ? number(x.data[i]) : 0;
    expect(number(result.data[i]), sums[i] + own + residual, "result", i);
  }
#endif
  expect_guards(result);
  return wrong == 0 ? 0 : 1;
}
