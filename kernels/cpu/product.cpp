#include "kernels/cpu/product.hpp"

#include <algorithm>

#include "kernels/cpu/each_target.hpp"

#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace {

constexpr i64 kRows = 4;  // with kVectors: accumulators in registers
constexpr i64 kVectors = 2;
constexpr i64 kTaskRows = 32;

// kR rows by up to kVectors vectors of the result.
template <i64 kR>
HWY_INLINE void block(const float* a, const float* b, float* y, i64 n, i64 k, i64 columns) {
  const FloatTag d;
  FloatVec sum[kR][kVectors];
  for (i64 r = 0; r < kR; ++r)
    for (i64 v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const i64 rest = columns - kFloatLanes;
  const auto load = [&](const float* from, i64 count) HWY_ATTR {
    return count >= kFloatLanes ? hn::LoadU(d, from)
           : count > 0          ? load_part<DType::f32>(from, static_cast<int>(count))
                                : hn::Zero(d);
  };
  for (i64 i = 0; i < k; ++i) {
    const FloatVec b0 = load(b + i * n, columns), b1 = load(b + i * n + kFloatLanes, rest);
    for (i64 r = 0; r < kR; ++r) {
      const FloatVec x = hn::Set(d, a[r * k + i]);
      sum[r][0] = hn::MulAdd(x, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(x, b1, sum[r][1]);
    }
  }
  for (i64 r = 0; r < kR; ++r) {
    for (i64 v = 0; v < kVectors; ++v) {
      const i64 count = columns - v * kFloatLanes;
      float* const to = y + r * n + v * kFloatLanes;
      if (count >= kFloatLanes)
        hn::StoreU(sum[r][v], d, to);
      else if (count > 0)
        store_part<DType::f32>(sum[r][v], to, static_cast<int>(count));
    }
  }
}

}  // namespace

void ProductTask(const ProductCall& call, const float* a, const float* b, float* y, i64 task) {
  const i64 parts = (call.m + kTaskRows - 1) / kTaskRows, batch = task / parts;
  const i64 begin = task % parts * kTaskRows, end = std::min(call.m, begin + kTaskRows);
  a += call.a[static_cast<std::size_t>(batch)], b += call.b[static_cast<std::size_t>(batch)];
  y += batch * call.m * call.n;
  for (i64 column = 0; column < call.n; column += kVectors * kFloatLanes) {
    const i64 columns = std::min(kVectors * kFloatLanes, call.n - column);
    i64 row = begin;
    for (; row + kRows <= end; row += kRows)
      block<kRows>(a + row * call.k, b + column, y + row * call.n + column, call.n, call.k, columns);
    for (; row < end; ++row)
      block<1>(a + row * call.k, b + column, y + row * call.n + column, call.n, call.k, columns);
  }
}

i64 ProductTasks(const ProductCall& call) {
  return static_cast<i64>(call.a.size()) * ((call.m + kTaskRows - 1) / kTaskRows);
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(ProductTask);
HWY_EXPORT(ProductTasks);

std::int64_t product_tasks(const ProductCall& call) { return HWY_DYNAMIC_DISPATCH(ProductTasks)(call); }
void product_task(const ProductCall& call, const float* a, const float* b, float* y, std::int64_t task) {
  HWY_DYNAMIC_DISPATCH(ProductTask)(call, a, b, y, task);
}

}  // namespace faltung
#endif  // HWY_ONCE
