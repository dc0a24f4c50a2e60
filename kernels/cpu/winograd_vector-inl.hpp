// What the transforms of winograd.hpp in both layouts are made of, for one instruction set: parts of rows,
// addresses, and the one-dimensional transforms.
#if defined(FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#undef FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_WINOGRAD_VECTOR_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/vec-inl.hpp"
#include "kernels/cpu/winograd.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {
namespace winograd {

using Tag = FloatTag;
using V = FloatVec;
inline constexpr int kLanes = kFloatLanes;
template <DType kType>
using Element = std::conditional_t<kType == DType::f32, float, std::uint16_t>;

// Elements first ... first + kLanes - 1 of a row of n; zero for those outside the row, which are not touched.
template <DType kType>
HWY_INLINE V load_window(const Element<kType>* row, std::int64_t first, std::int64_t n) {
  if (first >= 0 && first + kLanes <= n) return load_vec<kType>(row + first);
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, kLanes);
  const std::int64_t end = std::clamp<std::int64_t>(n - first, begin, kLanes);
  if constexpr (kType == DType::f32) {
    const auto inside = hn::AndNot(hn::FirstN(Tag(), static_cast<std::size_t>(begin)),
                                   hn::FirstN(Tag(), static_cast<std::size_t>(end)));
    return load_masked(inside, row + first);
  } else {
    HWY_ALIGN Element<kType> part[kLanes] = {};
    std::memcpy(part + begin, row + first + begin, static_cast<std::size_t>(end - begin) * sizeof *row);
    return load_vec<kType>(part);
  }
}

// The first n elements; the rest are zero. Touches no memory beyond them.
template <DType kType>
HWY_INLINE V load_first(const Element<kType>* p, std::int64_t n) {
  return load_window<kType>(p, 0, n);
}
template <DType kType>
HWY_INLINE void store_first(V v, Element<kType>* p, std::int64_t n) {
  n >= kLanes ? store_vec<kType>(v, p) : store_part<kType>(v, p, static_cast<int>(n));
}

// Of the output's transform: the sum with its bias and the residual, zero without one.
// a: the activation's, of each lane.
HWY_INLINE V finished(const WinogradOutput& o, V sum, V residual, V a) {
  if (o.residual == nullptr) return activate(o.activation, sum, a);
  if (o.residual_order == ResidualOrder::after_activation)
    return hn::Add(activate(o.activation, sum, a), residual);
  return activate(o.activation, hn::Add(sum, residual), a);
}

// Two elements of a pool's window as one; an average is divided by the window's size at the end. A NaN stays.
HWY_INLINE V pool_two(PoolKind kind, V a, V b) {
  if (kind == PoolKind::average) return hn::Add(a, b);
  return hn::IfThenElse(hn::Or(hn::IsNaN(b), hn::Gt(b, a)), b, a);
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

HWY_INLINE V constant(double value) { return hn::Set(Tag(), static_cast<float>(value)); }

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
    using W = WinogradMatrices<4>;
    const V p = constant(W::p), q = constant(W::q), p2 = constant(W::p2), q2 = constant(W::q2);
    const V both = constant(W::both), sum = constant(W::sum);
    const V even_p = hn::NegMulAdd(q2, d[2], d[4]), odd_p = hn::NegMulAdd(q2, d[1], d[3]);
    const V even_q = hn::NegMulAdd(p2, d[2], d[4]), odd_q = hn::NegMulAdd(p2, d[1], d[3]);
    d[0] = hn::MulAdd(both, d[0], hn::NegMulAdd(sum, d[2], d[4]));
    d[5] = hn::MulAdd(both, d[1], hn::NegMulAdd(sum, d[3], d[5]));
    d[1] = hn::MulAdd(p, odd_p, even_p);
    d[2] = hn::NegMulAdd(p, odd_p, even_p);
    d[3] = hn::MulAdd(q, odd_q, even_q);
    d[4] = hn::NegMulAdd(q, odd_q, even_q);
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
    using W = WinogradMatrices<4>;
    const V sum_p = hn::Add(d[1], d[2]), difference_p = hn::Sub(d[1], d[2]);
    const V sum_q = hn::Add(d[3], d[4]), difference_q = hn::Sub(d[3], d[4]);
    d[0] = hn::Add(hn::Add(d[0], sum_p), sum_q);
    d[1] = hn::MulAdd(constant(W::q), difference_q, hn::Mul(constant(W::p), difference_p));
    d[2] = hn::MulAdd(constant(W::q2), sum_q, hn::Mul(constant(W::p2), sum_p));
    d[3] = hn::MulAdd(constant(W::q3), difference_q, hn::MulAdd(constant(W::p3), difference_p, d[5]));
  }
}

}  // namespace winograd
}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
