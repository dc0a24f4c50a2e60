// A scale and a shift, and a ReLU, of a vector, for one instruction set: one rounding in all of them, so that
// what comes of an element is the same wherever it is read.
#if defined(FALTUNG_KERNELS_CPU_AFFINE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_AFFINE_INL_HPP_
#undef FALTUNG_KERNELS_CPU_AFFINE_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_AFFINE_INL_HPP_
#endif

#include <cmath>

#include "kernels/cpu/affine.hpp"
#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

template <bool kRelu>
HWY_INLINE FloatVec affine_vec(FloatVec x, FloatVec scale, FloatVec shift) {
#if HWY_NATIVE_FMA
  const FloatVec line = hn::MulAdd(x, scale, shift);
#else
  const FloatTag d;
  HWY_ALIGN float a[kFloatLanes], b[kFloatLanes], c[kFloatLanes];
  hn::Store(x, d, a), hn::Store(scale, d, b), hn::Store(shift, d, c);
  for (int i = 0; i < kFloatLanes; ++i) a[i] = std::fma(a[i], b[i], c[i]);
  const FloatVec line = hn::Load(d, a);
#endif
  if constexpr (kRelu) return vec_at_least(line, 0.0f);
  return line;
}

// As an element of the dtype holds it.
template <DType kType>
HWY_INLINE FloatVec rounded_vec(FloatVec v) {
  if constexpr (kType == DType::f32) {
    return v;
  } else {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    return of_halves<kType>(to_halves<kType>(v));
#else
    HWY_ALIGN std::uint16_t stored[kFloatLanes];
    store_vec<kType>(v, stored);
    return load_vec<kType>(stored);
#endif
  }
}

template <DType kType, bool kRelu>
HWY_INLINE float affine_element(float x, float scale, float shift) {
  const float line = std::fma(x, scale, shift);
  return round_to(kType, kRelu && line < 0 ? 0 : line);
}

// A run of elements of the dtype, of one channel or of as many channels, from and to where they are stored in
// another, the floats that a kernel reads.
template <DType kType, DType kStored, bool kOneChannel, bool kRelu>
HWY_INLINE void affine_run(const void* x, const float* scale, const float* shift, void* to, i64 count) {
  const FloatTag d;
  const auto* from = static_cast<const unsigned char*>(x);
  auto* there = static_cast<unsigned char*>(to);
  constexpr i64 kBytes = size_of(kStored);
  const FloatVec one_scale = hn::Set(d, *scale), one_shift = hn::Set(d, *shift);
  const auto through = [](FloatVec v, FloatVec a, FloatVec b) {
    const FloatVec line = affine_vec<kRelu>(v, a, b);
    if constexpr (kStored == kType) return line;  // what stores it rounds it
    return rounded_vec<kType>(line);
  };
  i64 i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    const FloatVec a = kOneChannel ? one_scale : hn::LoadU(d, scale + i);
    const FloatVec b = kOneChannel ? one_shift : hn::LoadU(d, shift + i);
    store_vec<kStored>(through(load_vec<kStored>(from + i * kBytes), a, b), there + i * kBytes);
  }
  if (i == count) return;
  const int rest = static_cast<int>(count - i);
  const FloatVec a = kOneChannel ? one_scale : load_part<DType::f32>(scale + i, rest);
  const FloatVec b = kOneChannel ? one_shift : load_part<DType::f32>(shift + i, rest);
  store_part<kStored>(through(load_part<kStored>(from + i * kBytes, rest), a, b), there + i * kBytes, rest);
}

template <DType kType, DType kStored, bool kOneChannel>
HWY_INLINE void affine_run(const void* x, const InputAffine& affine, void* to, i64 count) {
  if (affine.relu) {
    affine_run<kType, kStored, kOneChannel, true>(x, affine.scale, affine.shift, to, count);
  } else {
    affine_run<kType, kStored, kOneChannel, false>(x, affine.scale, affine.shift, to, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
