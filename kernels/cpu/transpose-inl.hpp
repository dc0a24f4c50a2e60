// Transposing floats in registers, for one instruction set.
#if defined(FALTUNG_KERNELS_CPU_TRANSPOSE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_TRANSPOSE_INL_HPP_
#undef FALTUNG_KERNELS_CPU_TRANSPOSE_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_TRANSPOSE_INL_HPP_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Four floats of every fourth row: row 4b of `from` in block b.
template <class DV>
HWY_INLINE hn::Vec<DV> load_blocks(DV d, const float* from, i64 stride) {
  constexpr i64 kLanes = static_cast<i64>(hn::MaxLanes(DV()));
  if constexpr (kLanes == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<DV> half;
    return hn::Combine(d, load_blocks(half, from + kLanes / 2 * stride, stride),
                       load_blocks(half, from, stride));
  }
}

// Through the caches, or past them to whole vectors where a multiple of their size lies.
template <bool kPast>
HWY_INLINE void put(FloatVec v, float* to) {
  if constexpr (kPast) {
    hn::Stream(v, FloatTag(), to);
  } else {
    hn::StoreU(v, FloatTag(), to);
  }
}

// Four columns of as many rows as a vector has lanes: to[column * to_stride + row].
template <bool kPast = false>
HWY_INLINE void transpose_four(const float* from, i64 from_stride, float* to, i64 to_stride) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> pairs;
  const FloatVec row0 = load_blocks(d, from, from_stride);
  const FloatVec row1 = load_blocks(d, from + from_stride, from_stride);
  const FloatVec row2 = load_blocks(d, from + 2 * from_stride, from_stride);
  const FloatVec row3 = load_blocks(d, from + 3 * from_stride, from_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row0, row1));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row2, row3));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row2, row3));
  put<kPast>(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), to);
  put<kPast>(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), to + to_stride);
  put<kPast>(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), to + 2 * to_stride);
  put<kPast>(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), to + 3 * to_stride);
}

#else

template <bool kPast = false>
HWY_INLINE void transpose_four(const float* from, i64, float* to, i64 to_stride) {
  for (i64 c = 0; c < 4; ++c) to[c * to_stride] = from[c];
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
