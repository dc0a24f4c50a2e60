// Vectors of float from and to memory of any dtype, whole or in part. Included once for each instruction set.
//
//   Load<DType::f16>::part(d, p, n)   the first n elements at p as floats, the rest zero
//
// Nothing beyond the n elements is read or written. Stores round to nearest, ties to even; NaN stays NaN.
#if defined(FALTUNG_KERNELS_CPU_VECTOR_IO_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_VECTOR_IO_INL_HPP_
#undef FALTUNG_KERNELS_CPU_VECTOR_IO_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_VECTOR_IO_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "src/problem/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether there are vectors at all: the baseline of x86 computes one lane at a time.
inline constexpr bool kHasVectors = HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

// Whether masked loads and stores of this many bytes an element leave the rest alone in hardware.
template <int kBytes>
inline constexpr bool kHasMasks = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && kBytes == 4);

// An element type in memory.
template <DType kType>
struct Memory {
  using Element = std::uint16_t;
};
template <>
struct Memory<DType::f32> {
  using Element = float;
};

// An array of elements as a vector of them.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_elements(D d, const T* p, std::size_t n) {
  if constexpr (kHasMasks<sizeof(T)>) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T whole[hn::MaxLanes(D())] = {};
    for (std::size_t i = 0; i < n; ++i) whole[i] = p[i];
    return hn::Load(d, whole);
  }
}

template <class D, class T>
HWY_INLINE void store_elements(hn::Vec<D> v, D d, T* p, std::size_t n) {
  if constexpr (kHasMasks<sizeof(T)>) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T whole[hn::MaxLanes(D())];
    hn::Store(v, d, whole);
    for (std::size_t i = 0; i < n; ++i) p[i] = whole[i];
  }
}

template <DType kType, class D>
HWY_INLINE hn::Vec<D> to_float(D d, hn::Vec<hn::Rebind<std::uint16_t, D>> v) {
  if constexpr (kType == DType::bf16) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), v)));
  } else {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), v));
  }
}

template <DType kType, class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> from_float(D d, hn::Vec<D> v) {
  const hn::Rebind<std::uint16_t, D> d16;
  if constexpr (kType == DType::bf16) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
    if constexpr (HWY_TARGET == HWY_AVX3) {
      return hn::TruncateTo(d16, high);
    } else {
      return hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), high));
    }
  } else {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_ARCH_ARM
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
#else
    // Highway's own conversion for targets without an instruction does not round.
    HWY_ALIGN float values[hn::MaxLanes(D())];
    HWY_ALIGN std::uint16_t halves[hn::MaxLanes(D())];
    hn::Store(v, d, values);
    for (std::size_t i = 0; i < hn::MaxLanes(D()); ++i) halves[i] = float_to_f16(values[i]);
    return hn::Load(d16, halves);
#endif
  }
}

template <DType kType>
struct Load {
  using Element = typename Memory<kType>::Element;
  template <class D>
  static HWY_INLINE hn::Vec<D> whole(D d, const Element* p) {
    if constexpr (kType == DType::f32) {
      return hn::LoadU(d, p);
    } else {
      return to_float<kType>(d, hn::LoadU(hn::Rebind<std::uint16_t, D>(), p));
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> part(D d, const Element* p, std::size_t n) {
    if constexpr (kType == DType::f32) {
      return load_elements(d, p, n);
    } else {
      return to_float<kType>(d, load_elements(hn::Rebind<std::uint16_t, D>(), p, n));
    }
  }
};

template <DType kType>
struct Store {
  using Element = typename Memory<kType>::Element;
  template <class D>
  static HWY_INLINE void whole(hn::Vec<D> v, D d, Element* p) {
    if constexpr (kType == DType::f32) {
      hn::StoreU(v, d, p);
    } else {
      hn::StoreU(from_float<kType>(d, v), hn::Rebind<std::uint16_t, D>(), p);
    }
  }
  template <class D>
  static HWY_INLINE void part(hn::Vec<D> v, D d, Element* p, std::size_t n) {
    if constexpr (kType == DType::f32) {
      store_elements(v, d, p, n);
    } else {
      store_elements(from_float<kType>(d, v), hn::Rebind<std::uint16_t, D>(), p, n);
    }
  }
};

// All lanes, or with kPart the first n.
template <DType kType, bool kPart, class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const typename Memory<kType>::Element* p, std::size_t n) {
  if constexpr (kPart) {
    return Load<kType>::part(d, p, n);
  } else {
    return Load<kType>::whole(d, p);
  }
}

template <DType kType, bool kPart, class D>
HWY_INLINE void store_lanes(hn::Vec<D> v, D d, typename Memory<kType>::Element* p, std::size_t n) {
  if constexpr (kPart) {
    Store<kType>::part(v, d, p, n);
  } else {
    Store<kType>::whole(v, d, p);
  }
}

template <DType kType>
HWY_INLINE float load_one(const typename Memory<kType>::Element* p) {
  if constexpr (kType == DType::f32) {
    return *p;
  } else {
    return kType == DType::bf16 ? bf16_to_float(*p) : f16_to_float(*p);
  }
}

template <DType kType>
HWY_INLINE void store_one(float value, typename Memory<kType>::Element* p) {
  if constexpr (kType == DType::f32) {
    *p = value;
  } else {
    *p = kType == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
