// What the kernels without a matrix product (direct, depthwise, pooling) share for one instruction set: whole
// and partial vectors of any dtype, and activations that are chosen at run time.
#if defined(FALTUNG_KERNELS_CPU_DIRECT_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_DIRECT_INL_HPP_
#undef FALTUNG_KERNELS_CPU_DIRECT_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_DIRECT_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vec-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

// Whether there are vectors at all: the baseline of x86 computes one lane at a time.
inline constexpr bool kHasVectors = HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

// An element type in memory.
template <DType kType>
struct ElementOf {
  using Type = std::uint16_t;
};
template <>
struct ElementOf<DType::f32> {
  using Type = float;
};
template <DType kType>
using Element = typename ElementOf<kType>::Type;

// Lanes of a vector: all, or with kPart the first n, the rest zero. Nothing beyond them is read or written.
template <DType kType, bool kPart>
HWY_INLINE FloatVec load_lanes(const Element<kType>* p, std::size_t n) {
  if constexpr (!kPart) return load_vec<kType>(p);
  return load_part<kType>(p, static_cast<int>(n));
}

template <DType kType, bool kPart>
HWY_INLINE void store_lanes(FloatVec v, Element<kType>* p, std::size_t n) {
  if constexpr (kPart) {
    store_part<kType>(v, p, static_cast<int>(n));
  } else {
    store_vec<kType>(v, p);
  }
}

template <DType kType>
HWY_INLINE float load_one(const Element<kType>* p) {
  return load_element(kType, p, 0);
}

template <DType kType>
HWY_INLINE void store_one(float value, Element<kType>* p) {
  store_element(kType, p, 0, value);
}

// Lane i: column first + i · stride of a row of width columns, zero outside of it; i < lanes.
template <DType kType>
HWY_INLINE FloatVec load_columns(const Element<kType>* row, std::int64_t first, std::int64_t stride,
                                 std::int64_t width, std::int64_t lanes) {
  const FloatTag d;
  if (first >= 0 && stride == 1 && first + kFloatLanes <= width) return load_vec<kType>(row + first);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (first >= 0 && stride == 2 && first + 2 * kFloatLanes <= width) {
    return hn::ConcatEven(d, load_vec<kType>(row + first + kFloatLanes), load_vec<kType>(row + first));
  }
  if constexpr (kType == DType::f32) {
    if (stride == 1) {
      const auto within = [&](std::int64_t n) {
        return hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, kFloatLanes)));
      };
      return hn::MaskedLoad(hn::AndNot(within(-first), within(std::min(lanes, width - first))), d,
                            row + first);
    }
  }
#endif
  HWY_ALIGN float values[kFloatLanes] = {};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(lanes, kFloatLanes); ++i) {
    const std::int64_t column = first + i * stride;
    if (column >= 0 && column < width) values[i] = load_one<kType>(row + column);
  }
  return hn::Load(d, values);
}

// Whether an activation is more than a comparison, so that vectors are better evaluated many at a time.
inline bool takes_long(Activation activation) {
  return activation != Activation::none && activation != Activation::relu;
}

// The residual comes before or after the activation; without one it is zero.
// a: the activation's, of each lane.
HWY_INLINE FloatVec finished(const Epilogue& e, FloatVec sum, FloatVec residual, FloatVec a) {
  const ActivationCall activation = activation_of(e);
  if (!e.residual) return activate(activation, sum, a);
  if (e.residual_order == ResidualOrder::after_activation)
    return hn::Add(activate(activation, sum, a), residual);
  return activate(activation, hn::Add(sum, residual), a);
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
