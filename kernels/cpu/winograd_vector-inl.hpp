// Vectors of floats for one instruction set: loads and stores of the tensors' dtypes, parts of vectors,
// activations, and the one-dimensional transforms of winograd.hpp.
#if defined(FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#undef FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/winograd.hpp"
#include "src/problem/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

// The 16-bit dtypes share an element type, so they are told apart by these.
struct F32 {
  using Element = float;
};
struct F16 {
  using Element = std::uint16_t;
};
struct BF16 {
  using Element = std::uint16_t;
};

HWY_INLINE V load(F32, const float* p) { return hn::LoadU(Tag(), p); }
HWY_INLINE V load(F16, const std::uint16_t* p) {
  const hn::Rebind<hwy::float16_t, Tag> half;
  return hn::PromoteTo(Tag(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE V load(BF16, const std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, Tag> half;
  const hn::RebindToUnsigned<Tag> bits;
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, p))));
}

HWY_INLINE void store(F32, V v, float* p) { hn::StoreU(v, Tag(), p); }
HWY_INLINE void store(F16, V v, std::uint16_t* p) {
  const hn::Rebind<hwy::float16_t, Tag> half;
  hn::StoreU(hn::DemoteTo(half, v), half, reinterpret_cast<hwy::float16_t*>(p));
}
// To nearest, ties to even; NaN stays NaN.
HWY_INLINE void store(BF16, V v, std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, Tag> half;
  const hn::RebindToUnsigned<Tag> bits;
  const hn::RebindToSigned<Tag> sbits;
  const auto u = hn::BitCast(bits, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(bits, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(bits, 0x7fff)), odd));
  const auto nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(bits, 0x40));
  const auto chosen = hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), nan, rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(sbits, chosen)), half, p);
}

// Whether loads and stores with a mask leave what is masked out untouched.
template <class Type>
inline constexpr bool kMasks = std::is_same_v<Type, F32>&& HWY_MEM_OPS_MIGHT_FAULT == 0;

// Elements first ... first + kLanes - 1 of a row of n; zero for those outside the row, which are not touched.
template <class Type>
HWY_INLINE V load_window(Type type, const typename Type::Element* row, std::int64_t first, std::int64_t n) {
  if (first >= 0 && first + kLanes <= n) return load(type, row + first);
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, kLanes);
  const std::int64_t end = std::clamp<std::int64_t>(n - first, begin, kLanes);
  if constexpr (kMasks<Type>) {
    const auto inside = hn::AndNot(hn::FirstN(Tag(), static_cast<std::size_t>(begin)),
                                   hn::FirstN(Tag(), static_cast<std::size_t>(end)));
    return hn::MaskedLoad(inside, Tag(), row + first);
  } else {
    HWY_ALIGN typename Type::Element part[kLanes] = {};
    std::memcpy(part + begin, row + first + begin, static_cast<std::size_t>(end - begin) * sizeof *row);
    return load(type, part);
  }
}

HWY_INLINE float load_one(F32, const float* p) { return *p; }
HWY_INLINE float load_one(F16, const std::uint16_t* p) { return f16_to_float(*p); }
HWY_INLINE float load_one(BF16, const std::uint16_t* p) { return bf16_to_float(*p); }

// The first n elements; the rest are zero. Touches no memory beyond them.
template <class Type>
HWY_INLINE V load_first(Type type, const typename Type::Element* p, std::int64_t n) {
  return load_window(type, p, 0, n);
}
template <class Type>
HWY_INLINE void store_first(Type type, V v, typename Type::Element* p, std::int64_t n) {
  if (n >= kLanes) return store(type, v, p);
  if constexpr (kMasks<Type>) {
    hn::BlendedStore(v, hn::FirstN(Tag(), static_cast<std::size_t>(n)), Tag(), p);
  } else {
    HWY_ALIGN typename Type::Element part[kLanes];
    store(type, v, part);
    std::memcpy(p, part, static_cast<std::size_t>(n) * sizeof *p);
  }
}

// Six addresses at one stride, as x86 computes them while loading: base + {1, 2, 4} * a multiple of the
// stride, of which 1, 3 and 5 are kept in registers. Left to itself the compiler keeps one pointer for each
// of the 36 positions of a tile, on the stack.
template <class T>
class Stride {
 public:
  explicit Stride(std::int64_t elements)
      : s1_(elements * static_cast<std::int64_t>(sizeof(T))), s3_(3 * s1_), s5_(5 * s1_) {}
  HWY_INLINE T* at(T* base, int k) const {
    auto* bytes = reinterpret_cast<Byte*>(base);
    return reinterpret_cast<T*>(k == 0   ? bytes
                                : k == 1 ? bytes + s1_
                                : k == 2 ? bytes + 2 * s1_
                                : k == 3 ? bytes + s3_
                                : k == 4 ? bytes + 4 * s1_
                                         : bytes + s5_);
  }
  // The next base, which the compiler is not to see through.
  HWY_INLINE T* next(T* base, std::int64_t elements) const {
    base += elements;
#if defined(__GNUC__)
    asm("" : "+r"(base));
#endif
    return base;
  }

 private:
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  std::int64_t s1_, s3_, s5_;
};

// The activations that need no transcendental function, on vectors; the others lane by lane.
inline HWY_NOINLINE V activate_lanes(V x, Activation activation) {
  HWY_ALIGN float lane[kLanes];
  hn::Store(x, Tag(), lane);
  for (float& v : lane) {
    switch (activation) {
      case Activation::sigmoid:
        v = 1.0f / (1.0f + std::exp(-v));
        break;
      case Activation::silu:
        v = v / (1.0f + std::exp(-v));
        break;
      case Activation::gelu:
        v = 0.5f * v * (1.0f + std::erf(v * 0.70710678118654752f));
        break;
      case Activation::gelu_tanh:
        v = 0.5f * v * (1.0f + std::tanh(0.79788456080286536f * (v + 0.044715f * v * v * v)));
        break;
      default:
        v = v * std::min(6.0f, std::max(0.0f, v + 3.0f)) * 0.16666666666666667f;
    }
  }
  return hn::Load(Tag(), lane);
}

HWY_INLINE V activate(V x, Activation activation, float slope) {
  const V zero = hn::Zero(Tag()), six = hn::Set(Tag(), 6.0f);
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return hn::IfThenElse(hn::Lt(x, zero), zero, x);  // NaN stays
    case Activation::relu6:
      return hn::IfThenElse(hn::Lt(x, zero), zero, hn::IfThenElse(hn::Lt(six, x), six, x));
    case Activation::leaky_relu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(x, hn::Set(Tag(), slope)), x);
    default:
      return activate_lanes(x, activation);
  }
}

// B^T d, in place.
template <int m>
HWY_INLINE void transform_b(V (&d)[m + 2]) {
  if constexpr (m == 2) {
    const V d1 = d[1];
    d[0] = hn::Sub(d[0], d[2]);
    d[1] = hn::Add(d1, d[2]);
    d[2] = hn::Sub(d[2], d1);
    d[3] = hn::Sub(d1, d[3]);
  } else {
    const V two = hn::Set(Tag(), 2.0f), four = hn::Set(Tag(), 4.0f), five = hn::Set(Tag(), 5.0f);
    const V even = hn::NegMulAdd(four, d[2], d[4]), odd = hn::NegMulAdd(four, d[1], d[3]);
    const V even2 = hn::Sub(d[4], d[2]), odd2 = hn::Sub(d[3], d[1]);
    d[0] = hn::MulAdd(four, d[0], hn::NegMulAdd(five, d[2], d[4]));
    d[5] = hn::MulAdd(four, d[1], hn::NegMulAdd(five, d[3], d[5]));
    d[1] = hn::Add(even, odd);
    d[2] = hn::Sub(even, odd);
    d[3] = hn::MulAdd(two, odd2, even2);
    d[4] = hn::NegMulAdd(two, odd2, even2);
  }
}

// A^T d: the first m elements of d afterwards.
template <int m>
HWY_INLINE void transform_a(V (&d)[m + 2]) {
  if constexpr (m == 2) {
    const V d1 = d[1];
    d[0] = hn::Add(hn::Add(d[0], d1), d[2]);
    d[1] = hn::Sub(hn::Sub(d1, d[2]), d[3]);
  } else {
    const V two = hn::Set(Tag(), 2.0f), four = hn::Set(Tag(), 4.0f), eight = hn::Set(Tag(), 8.0f);
    const V sum = hn::Add(d[1], d[2]), difference = hn::Sub(d[1], d[2]);
    const V sum2 = hn::Add(d[3], d[4]), difference2 = hn::Sub(d[3], d[4]);
    d[0] = hn::Add(hn::Add(d[0], sum), sum2);
    d[1] = hn::MulAdd(two, difference2, difference);
    d[2] = hn::MulAdd(four, sum2, sum);
    d[3] = hn::MulAdd(eight, difference2, hn::Add(difference, d[5]));
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
