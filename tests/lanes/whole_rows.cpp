// kernels/gpu/whole_rows.cl, and rows.cl of rows, on the CPU, whose threads meet as CUDA's do: sums of small
// integers, whatever the order, and softmaxes with an operand along the row, by row and as large as the
// result.
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/lanes/lanes.hpp"

#define F_LANES  // by shuffles
#define F_LOCAL_ARRAY(type, name, count) type* const name = reinterpret_cast<type*>(local_memory)
#define F_INFINITY HUGE_VALF
#define F_ISNAN(x) std::isnan(x)
static float __shfl_xor_sync(u32, float v, int lanes) {
  lanes::together();
  lanes::mine()[lanes::thread % 32][0] = bits_of<u32>(v);
  lanes::together();
  return bits_of<float>(lanes::mine()[(lanes::thread ^ lanes) % 32][0]);
}
static void load4_f32(const float* p, float* v) { std::copy_n(p, 4, v); }
static void store4_f32(float* p, const float* v) { std::copy_n(v, 4, p); }
static void load4_f16(const u16* p, float* v) {
  for (int i = 0; i < 4; ++i) v[i] = load_f16(p, i);
}
static void store4_f16(u16* p, const float* v) {
  for (int i = 0; i < 4; ++i) store_f16(p, i, v[i]);
}
static void load8_f16(const u16* p, float* v) { load4_f16(p, v), load4_f16(p + 4, v + 4); }
static void store8_f16(u16* p, const float* v) { store4_f16(p, v), store4_f16(p + 4, v + 4); }

#ifdef COLS  // of a block: longer rows
#include "kernels/gpu/rows.cl"
#else
#include "kernels/gpu/whole_rows.cl"
#endif

namespace {

template <class T>
struct Tensor {
  explicit Tensor(std::size_t size) : data(size + 64) {
    begin = data.data();
    while (bits_of<std::uintptr_t>(begin) % 16 != 0) ++begin;
    count = size;
  }
  std::vector<T> data;
  T* begin;
  std::size_t count;
};
float value_of(u16 v) { return load_f16(&v, 0); }
float value_of(float v) { return v; }
void set(u16& to, float v) { store_f16(&to, 0, v); }
void set(float& to, float v) { to = v; }

}  // namespace

int main() {
  std::mt19937 engine(3);
  Tensor<FROM_T> x(ROWS * LENGTH);
  for (std::size_t i = 0; i < x.count; ++i) set(x.begin[i], static_cast<float>(engine() % 5) - 2);
#ifdef NORMALIZES
  Tensor<float> along(LENGTH), by_row(ROWS);
  for (std::size_t i = 0; i < LENGTH; ++i) along.begin[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < ROWS; ++i) by_row.begin[i] = static_cast<float>(i % 3) + 1;
  const RowOperands z{{{ROWS, 0, 0}}, {{LENGTH, 0, 0}}, {0, 0, 0}, {{0}, {1}, {LENGTH}}, {{1}, {0}, {1}}};
#endif
  Tensor<TO_T> y(ROWS * LENGTH + 8);
  for (std::size_t i = 0; i < y.count; ++i) set(y.begin[i], NAN);
  constexpr int kOfBlock = THREADS / PARTS;
  lanes::launch((ROWS + kOfBlock - 1) / kOfBlock, THREADS, [&] {
#ifdef COLS
    rows(x.begin, y.begin, ROWS, LENGTH / V, 1, 1, 0);
#elif defined(NORMALIZES)
    whole_rows(x.begin, along.begin, by_row.begin, x.begin, y.begin, ROWS, LENGTH, 1, 0, z);
#else
    whole_rows(x.begin, y.begin, ROWS, LENGTH, 1, 0);
#endif
  });
  int wrong = 0;
  const auto expect = [&](std::size_t i, double want, double most) {
    const double got = value_of(y.begin[i]);
    if (!(std::abs(got - want) <= most) && wrong++ < 5) std::printf("%zu: %g, not %g\n", i, got, want);
  };
  for (std::size_t row = 0; row < ROWS; ++row) {
    double sum = 0, powers = 0;
    for (std::size_t i = 0; i < LENGTH; ++i) {
      const double v = value_of(x.begin[row * LENGTH + i]);
      sum += v, powers += std::exp(v);
    }
#ifdef NORMALIZES
    for (std::size_t i = 0; i < LENGTH; ++i) {
      const double v = value_of(x.begin[row * LENGTH + i]);
      // Scaled, so that it is of about 1.
      const double want = std::exp(v) / powers * LENGTH * by_row.begin[row] + along.begin[i] + v;
      expect(row * LENGTH + i, want, (sizeof(TO_T) == 2 ? 0x1p-11 : 0x1p-20) * std::max(1.0, std::abs(want)));
    }
#else
    expect(row, sum, 0);
#endif
  }
#ifdef NORMALIZES
  const std::size_t end = ROWS * LENGTH;
#else
  const std::size_t end = ROWS;
#endif
  if (!std::isnan(value_of(y.begin[end])) && wrong++ < 5) std::printf("written beyond the end\n");
  return wrong > 0;
}
