// Attention (kernels/gpu/attention.cu) on the CPU, beside plain loops in doubles: within what rounding powers
// and results to 16 bits may do, or it says where not. tests/attention_test.py defines what the host would,
// and HEADS, NUMBER_OF_QUERIES, NUMBER_OF_KEYS and SCALE of one batch.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/lanes/lanes.hpp"

#include "kernels/gpu/attention.cu"
#include "tests/lanes/tensors.hpp"

int main() {
  constexpr int kRow = HEADS * DEPTH;
#ifdef DTYPE_f16
  constexpr double kHalfUlp = 0x1p-11;
#else
  constexpr double kHalfUlp = 0x1p-8;
#endif
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  const auto drawn = [&](int rows) {
    Tensor<u16> t(static_cast<std::size_t>(rows) * kRow, element(NAN));
    for (std::size_t i = 0; i < t.count; ++i) t.data[i] = element(normal(engine));
    return t;
  };
  const Tensor<u16> q = drawn(NUMBER_OF_QUERIES), k = drawn(NUMBER_OF_KEYS), v = drawn(NUMBER_OF_KEYS);
  Tensor<u16> y(q.count, element(NAN));
  const strides_t strides{0, DEPTH, kRow};
  lanes::launch(QUERY_BLOCKS * HEADS, THREADS, [&] {
    attention(q.data, k.data, v.data, y.data, HEADS, NUMBER_OF_QUERIES, NUMBER_OF_KEYS, SCALE * 1.44269504f,
              strides, strides, strides, strides);
  });
  for (int head = 0; head < HEADS; ++head) {
    for (int row = 0; row < NUMBER_OF_QUERIES; ++row) {
      const auto at = [&](const Tensor<u16>& t, int i, int d) {
        return static_cast<double>(number(t.data[static_cast<std::size_t>(i) * kRow + head * DEPTH + d]));
      };
      double shares[NUMBER_OF_KEYS], most = -INFINITY, all = 0;
      for (int key = 0; key < NUMBER_OF_KEYS; ++key) {
        shares[key] = 0;
        for (int d = 0; d < DEPTH; ++d) shares[key] += SCALE * at(q, row, d) * at(k, key, d);
        most = std::max(most, shares[key]);
      }
      for (double& share : shares) all += share = std::exp(share - most);
      for (int d = 0; d < DEPTH; ++d) {
        double want = 0, size = 0;
        for (int key = 0; key < NUMBER_OF_KEYS; ++key) {
          want += shares[key] / all * at(v, key, d);
          size += shares[key] / all * std::abs(at(v, key, d));
        }
        // A rounding of the power and of the result; in f32 sums of products and the exponents they become.
        const double bound = 2.1 * kHalfUlp * size + 1e-5, got = at(y, row, d);
        if (!(std::abs(got - want) <= bound) && wrong++ < 5)
          std::printf("head %d, query %d, %d: %g, not %g\n", head, row, d, got, want);
      }
    }
  }
  expect_guards(y);
  return wrong == 0 ? 0 : 1;
}
