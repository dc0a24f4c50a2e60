#include "kernels/cpu/pack.hpp"

#include <cstddef>

#include "kernels/cpu/each_target.hpp"
#include "kernels/cpu/epilogue.hpp"

#include "kernels/cpu/vec-inl.hpp"
#include "kernels/cpu/with_dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

template <DType kType>
void pack(const PackCall& call) {
  const FloatTag d;
  const i64 bytes = size_of(kType);
  constexpr i64 kLine = 64;
  const i64 lines = (call.columns * call.column_stride * bytes + kLine - 1) / kLine;
  const i64 line0 = lines * call.share / call.shares, line1 = lines * (call.share + 1) / call.shares;
  for (i64 row = 0; row < call.rows; ++row) {
    const auto* const from = static_cast<const std::byte*>(call.from) + row * call.row_stride * bytes;
    float* const to = call.to + row * call.width;
    for (i64 line = line0; line < line1; ++line) __builtin_prefetch(from + (lines + line) * kLine, 0, 3);
    for (i64 i = 0; i < call.width; i += kLine / 4)
      __builtin_prefetch(call.next + row * call.width + i, 1, 3);
    i64 column = 0;
    if (call.column_stride == 1) {
      for (; column + kFloatLanes <= call.columns; column += kFloatLanes)
        hn::StoreU(load_vec<kType>(from + column * bytes), d, to + column);
      if (column < call.columns) {
        const int rest = static_cast<int>(call.columns - column);
        store_part<DType::f32>(load_part<kType>(from + column * bytes, rest), to + column, rest);
      }
    } else {
      const auto take = [&](i64 i) { to[i] = load_element(kType, from, i * call.column_stride); };
      for (; column + 4 <= call.columns; column += 4)
        take(column), take(column + 1), take(column + 2), take(column + 3);
      for (; column < call.columns; ++column) take(column);
    }
    for (column = call.columns; column < call.width; ++column) to[column] = 0;
  }
}

void Pack(const PackCall& call) {
  with_dtype(call.dtype, [&](auto type) { pack<type>(call); });
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace faltung {

HWY_EXPORT(Pack);

void pack_columns(const PackCall& call) {
  if (call.row_stride != 1 || call.column_stride == 1) return HWY_DYNAMIC_DISPATCH(Pack)(call);
  transpose_to_float(call.dtype, call.from, call.column_stride, call.columns, call.rows, call.to, call.width);
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = call.columns; column < call.width; ++column)
      call.to[row * call.width + column] = 0;
}

}  // namespace faltung
#endif  // HWY_ONCE
