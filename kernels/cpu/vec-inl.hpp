// Vectors of floats from and to memory of any dtype, and the functions that activations are made of, for one
// instruction set. Included once for each, by files that use foreach_target.
#if defined(FALTUNG_KERNELS_CPU_VEC_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FALTUNG_KERNELS_CPU_VEC_INL_HPP_
#undef FALTUNG_KERNELS_CPU_VEC_INL_HPP_
#else
#define FALTUNG_KERNELS_CPU_VEC_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/masked-inl.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/problem.hpp"

HWY_BEFORE_NAMESPACE();
namespace faltung {
namespace HWY_NAMESPACE {

using i64 = std::int64_t;
using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int kFloatLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using HalfVec = hn::Vec<HalfTag>;

// From f16 or bf16.
template <DType kType>
HWY_INLINE FloatVec of_halves(HalfVec bits) {
  const FloatTag d;
  if constexpr (kType == DType::f16) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), bits));
  } else {
    const hn::RebindToUnsigned<FloatTag> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  }
}

// To f16 or bf16, rounded to nearest even; NaN stays NaN.
template <DType kType>
HWY_INLINE HalfVec to_halves(FloatVec v) {
  const HalfTag d16;
  if constexpr (kType == DType::f16) {
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), v));
  } else {
    const hn::RebindToUnsigned<FloatTag> d32;
    const auto bits = hn::BitCast(d32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    return hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<FloatTag>(), high));
  }
}
#endif

// kFloatLanes elements at from, as floats.
template <DType kType>
HWY_INLINE FloatVec load_vec(const void* from) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(FloatTag(), static_cast<const float*>(from));
  } else {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    return of_halves<kType>(hn::LoadU(HalfTag(), static_cast<const std::uint16_t*>(from)));
#else
    HWY_ALIGN float values[kFloatLanes];
    for (int i = 0; i < kFloatLanes; ++i) values[i] = load_element(kType, from, i);
    return hn::Load(FloatTag(), values);
#endif
  }
}

// As to_halves rounds.
template <DType kType>
HWY_INLINE void store_vec(FloatVec v, void* to) {
  if constexpr (kType == DType::f32) {
    hn::StoreU(v, FloatTag(), static_cast<float*>(to));
  } else {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    hn::StoreU(to_halves<kType>(v), HalfTag(), static_cast<std::uint16_t*>(to));
#else
    HWY_ALIGN float values[kFloatLanes];
    hn::Store(v, FloatTag(), values);
    for (int i = 0; i < kFloatLanes; ++i) store_element(kType, to, i, values[i]);
#endif
  }
}

// Less than kFloatLanes elements, at most seven, in as many moves as count has ones; of a loop compilers make
// much more.
HWY_INLINE void copy_few([[maybe_unused]] const std::uint16_t* from, [[maybe_unused]] std::uint16_t* to,
                         [[maybe_unused]] int count) {
  if constexpr (kFloatLanes > 4) {
    if ((count & 4) != 0) std::memcpy(to, from, 4 * sizeof *to), from += 4, to += 4;
  }
  if constexpr (kFloatLanes > 2) {
    if ((count & 2) != 0) std::memcpy(to, from, 2 * sizeof *to), from += 2, to += 2;
  }
  if constexpr (kFloatLanes > 1) {
    if ((count & 1) != 0) *to = *from;
  }
}

// The first count elements of a vector, 0 <= count <= kFloatLanes: load_vec fills up with zeros.
template <DType kType>
HWY_INLINE FloatVec load_part(const void* from, int count) {
  if constexpr (kType == DType::f32) {
    return load_masked(hn::FirstN(FloatTag(), static_cast<std::size_t>(count)),
                       static_cast<const float*>(from));
  } else {
    const auto* const halves = static_cast<const std::uint16_t*>(from);
#if HWY_TARGET == HWY_AVX3
    const HalfTag d16;
    return of_halves<kType>(hn::MaskedLoad(hn::FirstN(d16, static_cast<std::size_t>(count)), d16, halves));
#else
    if (count >= kFloatLanes) return load_vec<kType>(halves);
    std::uint16_t bits[kFloatLanes] = {};
    copy_few(halves, bits, count);
    return load_vec<kType>(bits);
#endif
  }
}

template <DType kType>
HWY_INLINE void store_part(FloatVec v, void* to, int count) {
  if constexpr (kType == DType::f32) {
    store_first(v, static_cast<std::size_t>(count), static_cast<float*>(to));
  } else {
    auto* const halves = static_cast<std::uint16_t*>(to);
#if HWY_TARGET == HWY_AVX3
    const HalfTag d16;
    hn::BlendedStore(to_halves<kType>(v), hn::FirstN(d16, static_cast<std::size_t>(count)), d16, halves);
#else
    if (count >= kFloatLanes) return store_vec<kType>(v, halves);
    std::uint16_t bits[kFloatLanes];
    store_vec<kType>(v, bits);
    copy_few(bits, halves, count);
#endif
  }
}

// The lesser and the greater of a bound and x, NaN if that is: on x86 one instruction each, whose result is
// its second operand where either is NaN.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_INLINE FloatVec lesser(FloatVec bound, FloatVec x) { return hn::Min(bound, x); }
HWY_INLINE FloatVec greater(FloatVec bound, FloatVec x) { return hn::Max(bound, x); }
#else
HWY_INLINE FloatVec lesser(FloatVec bound, FloatVec x) { return hn::IfThenElse(hn::Lt(bound, x), bound, x); }
HWY_INLINE FloatVec greater(FloatVec bound, FloatVec x) { return hn::IfThenElse(hn::Lt(x, bound), bound, x); }
#endif
HWY_INLINE FloatVec vec_at_most(FloatVec x, float bound) { return lesser(hn::Set(FloatTag(), bound), x); }
HWY_INLINE FloatVec vec_at_least(FloatVec x, float bound) { return greater(hn::Set(FloatTag(), bound), x); }

// e^x as fraction * 2^n, |x| <= 150 ln 2: the bits of exponent, as an integer, end with n + 127.
struct ExpParts {
  FloatVec fraction, exponent;
};
HWY_INLINE ExpParts vec_exp_parts(FloatVec x) {
  const FloatTag d;
  const auto c = [&](float v) { return hn::Set(d, v); };
  // Added to a number of less than 22 bits this rounds it to a whole one, which the last bits hold.
  const FloatVec whole_bits = c(12582912.0f + 127.0f);
  const FloatVec exponent = hn::MulAdd(x, c(1.44269504f), whole_bits);
  const FloatVec whole = hn::Sub(exponent, whole_bits);
  // ln 2 in two parts, the first with few enough bits for an exact product.
  FloatVec r = hn::NegMulAdd(whole, c(0.693359375f), x);
  r = hn::NegMulAdd(whole, c(-2.12194440e-4f), r);
  // The best polynomial of its degree over half of ln 2 to both sides: within 4e-9 of e^r.
  FloatVec p = c(0.00138145988f);
  for (const float coefficient : {0.00836871751f, 0.041668389f, 0.166665211f, 0.49999994f, 1.0f, 1.0f})
    p = hn::MulAdd(p, r, c(coefficient));
  return {p, exponent};
}

// e^x to about one unit in the last place; inf beyond the largest float, NaN for NaN.
HWY_INLINE FloatVec vec_exp(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const ExpParts e = vec_exp_parts(vec_at_least(vec_at_most(x, 89.0f), -104.0f));
  const auto biased = hn::Sub(hn::BitCast(di, e.exponent), hn::BitCast(di, hn::Set(d, 12582912.0f)));
  // 2^n as two factors, so that neither leaves the range of normal numbers: the bias of 127 is of both.
  const auto half = hn::ShiftRight<1>(biased);
  const auto power = [&](auto exponent) { return hn::BitCast(d, hn::ShiftLeft<23>(exponent)); };
  return hn::Mul(hn::Mul(e.fraction, power(hn::Add(half, hn::Set(di, 64)))),
                 power(hn::Add(hn::Sub(biased, half), hn::Set(di, 63))));
}

// e^x for what adds 1 to it, in fewer steps, of x no less than -87 and no more than `most`: inf from 2^127.5
// on. No step meets a denormal, with which some processors take a hundred cycles.
#if HWY_TARGET == HWY_AVX3
// 2^(n / 32), n in [0, 32).
alignas(64) inline constexpr float kPowers[32] = {
    1.0f,        1.0218972f,  1.04427373f, 1.06714046f, 1.09050775f, 1.1143868f,  1.13878858f, 1.1637249f,
    1.18920708f, 1.21524739f, 1.24185777f, 1.26905096f, 1.29683959f, 1.32523668f, 1.35425556f, 1.38390994f,
    1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f, 1.5759809f,  1.61049032f, 1.64575553f,
    1.68179286f, 1.71861935f, 1.75625217f, 1.79470909f, 1.8340081f,  1.87416768f, 1.91520655f, 1.95714414f};

// By parts of a power of two, which lie in two registers: beyond them a parabola is enough, and the power is
// one instruction. Within 3 units of 2^-24 of the result's size, and 0.23 for each unit of x, which is what
// log2(e) is beyond a float: of the sum that is at most 0.1.
HWY_INLINE FloatVec vec_exp_beside_one(FloatVec x, float most = 89.0f) {
  const FloatTag d;
  const auto c = [&](float v) { return hn::Set(d, v); };
  const FloatVec near = vec_at_least(vec_at_most(x, most), -87.0f), log2_e = c(1.44269502f);
  // Added to a number of less than 17 bits before the point this rounds it to such parts, which the last bits
  // hold.
  const FloatVec rounding = c(393216.0f);
  const FloatVec index = hn::MulAdd(near, log2_e, rounding);
  const FloatVec power = hn::Sub(index, rounding);
  const FloatVec r = hn::MulSub(near, log2_e, power);
  const FloatVec part{_mm512_permutex2var_ps(_mm512_load_ps(kPowers), _mm512_castps_si512(index.raw),
                                             _mm512_load_ps(kPowers + 16))};
  // The best polynomial of its degree over a sixty-fourth to both sides, 1 at 0: within 5.4e-8 of 2^r.
  const FloatVec slope = hn::MulAdd(c(0.240226492f), r, c(0.693157315f));
  const FloatVec p = hn::MulAdd(slope, hn::Mul(r, part), part);
  return FloatVec{_mm512_scalef_ps(p.raw, power.raw)};  // times 2^floor(power)
}
#elif HWY_NATIVE_FMA
// In powers of two, whose argument is one rounding then: a polynomial whose halves do not wait for each other
// is within 2.6e-9 of 2^r. As far from the power as above.
HWY_INLINE FloatVec vec_exp_beside_one(FloatVec x, float most = 89.0f) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto c = [&](float v) { return hn::Set(d, v); };
  const FloatVec near = vec_at_least(vec_at_most(x, most), -87.0f), log2_e = c(1.44269502f);
  // Added to a number of less than 22 bits this rounds it to a whole one, which the last bits hold.
  const FloatVec whole_bits = c(12582912.0f + 127.0f);
  const FloatVec exponent = hn::MulAdd(near, log2_e, whole_bits);
  const FloatVec r = hn::MulSub(near, log2_e, hn::Sub(exponent, whole_bits)), r2 = hn::Mul(r, r);
  const FloatVec low = hn::MulAdd(c(0.240226522f), r, c(0.693147242f));
  const FloatVec middle = hn::MulAdd(c(0.00961769279f), r, c(0.0555031039f));
  const FloatVec high = hn::MulAdd(c(0.000155946778f), r, c(0.00134066434f));
  const FloatVec slope = hn::MulAdd(hn::MulAdd(high, r2, middle), r2, low);
  const FloatVec fraction = hn::MulAdd(slope, r, c(1.0f));
  return hn::Mul(fraction, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, exponent))));
}
#else
HWY_INLINE FloatVec vec_exp_beside_one(FloatVec x, float most = 89.0f) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const ExpParts e = vec_exp_parts(vec_at_least(vec_at_most(x, most), -87.0f));
  return hn::Mul(e.fraction, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, e.exponent))));
}
#endif

// e^x for terms of a sum that has a 1 among them: likewise, and zero instead of less than e^-87.
HWY_INLINE FloatVec vec_exp_of_sum(FloatVec x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(FloatTag(), -87.0f)), vec_exp_beside_one(x));
}

// Within a few units in the last place of 1, not of the result.
HWY_INLINE FloatVec vec_tanh(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const FloatVec power = vec_exp_beside_one(hn::Mul(two, x), 60.0f);  // beyond 60 the result is 1
  return hn::Sub(one, hn::Div(two, hn::Add(power, one)));
}

// Within 7 units of 2^-24, and within 11 of the result's size: so the roundings add up, without FMA at that;
// 3 and 5 were seen. x times a polynomial of x^2, the best of its degree for |x| <= 4 (4e-8), where the
// result is
// 1. In v = x^2 / 8 - 1 its terms have one sign where x is small, so that their roundings stay small beside
// their sum. No step meets a denormal.
HWY_INLINE FloatVec vec_erf(FloatVec x) {
  const FloatTag d;
  const auto c = [&](float v) { return hn::Set(d, v); };
  const FloatVec near = vec_at_least(vec_at_most(x, 4.0f), -4.0f);
  const FloatVec v = hn::MulSub(hn::Mul(near, near), c(0.125f), c(1.0f));
  FloatVec p = c(0.000514004263f);
  for (const float coefficient :
       {-0.00133878307f, 0.000932532363f, -0.0011991238f, 0.00508770393f, -0.00991137698f, 0.0143012302f,
        -0.0217887107f, 0.0330432691f, -0.0459658206f, 0.0598973893f, -0.0746970177f, 0.0902072415f,
        -0.107712552f, 0.131675214f, -0.176576197f, 0.353531003f})
    p = hn::MulAdd(p, v, c(coefficient));
  return vec_at_least(vec_at_most(hn::Mul(near, p), 1.0f), -1.0f);
}

// The activation of x, with its numbers; a is each lane's.
template <Activation kActivation>
HWY_INLINE FloatVec vec_activate(FloatVec x, FloatVec a, FloatVec b) {
  const FloatTag d;
  (void)d, (void)a, (void)b;
#define F_C(v) hn::Set(d, v)
#define F_LT(p, q, yes, no) hn::IfThenElse(hn::Lt(p, q), yes, no)
#define F_EXP(v) vec_exp_beside_one(v)  // of the logistic function
#define F_ERF(v) vec_erf(v)
#define F_TANH(v) vec_tanh(v)
#define F_MIN(p, q) hn::IfThenElse(hn::Lt(p, q), p, q)
#define F_MAX(p, q) hn::IfThenElse(hn::Lt(q, p), p, q)
#define FALTUNG_ACTIVATION(op, value) \
  if constexpr (kActivation == Activation::op) return value;
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
#undef F_C
#undef F_LT
#undef F_EXP
#undef F_ERF
#undef F_TANH
#undef F_MIN
#undef F_MAX
  return x;
}

// Those beyond relu, out of line: a call for a vector costs little beside an exponential.
HWY_NOINLINE inline FloatVec activate_further(const ActivationCall& activation, FloatVec x, FloatVec a) {
  const FloatVec b = hn::Set(FloatTag(), activation.b);
  switch (activation.kind) {
#define FALTUNG_ACTIVATION(op, value) \
  case Activation::op:                \
    return vec_activate<Activation::op>(x, a, b);
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
  }
  return x;
}

HWY_INLINE FloatVec activate(const ActivationCall& activation, FloatVec x, FloatVec a) {
  if (activation.kind == Activation::none) return x;
  if (activation.kind == Activation::relu) return vec_activate<Activation::relu>(x, x, x);
  return activate_further(activation, x, a);
}

// body(activated), activated(v, a) being the activation of a vector: one choice for many of them, whose
// evaluations overlap.
template <class Body>
HWY_INLINE void with_activation(const ActivationCall& activation, const Body& body) {
  const FloatVec b = hn::Set(FloatTag(), activation.b);
  switch (activation.kind) {
#define FALTUNG_ACTIVATION(op, value) \
  case Activation::op:                \
    return body([&](FloatVec x, FloatVec a) HWY_ATTR { return vec_activate<Activation::op>(x, a, b); });
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
  }
}

// Of `count` vectors in memory, each `step` vectors behind the one before: what computed them leaves their
// constants the registers, and they do not wait for each other.
HWY_NOINLINE inline void activate_vectors(const ActivationCall& activation, float* values, int count,
                                          int step, FloatVec a) {
  with_activation(activation, [&](const auto& activated) HWY_ATTR {
    for (; count > 0; --count, values += step * kFloatLanes) {
      hn::Store(activated(hn::Load(FloatTag(), values), a), FloatTag(), values);
    }
  });
}

// An activation's a for neighbouring channels in neighbouring lanes, the first of them `channel`, or for one
// in all lanes. slopes: of all channels where each has its own, else null.
HWY_INLINE FloatVec a_of_channels(const ActivationCall& activation, const float* slopes, std::int64_t channel,
                                  std::int64_t lanes) {
  if (slopes == nullptr) return hn::Set(FloatTag(), activation.a);
  return load_part<DType::f32>(slopes + channel, static_cast<int>(lanes < kFloatLanes ? lanes : kFloatLanes));
}
HWY_INLINE FloatVec a_of_channel(const ActivationCall& activation, const float* slopes,
                                 std::int64_t channel) {
  return hn::Set(FloatTag(), slopes == nullptr ? activation.a : slopes[channel]);
}

}  // namespace HWY_NAMESPACE
}  // namespace faltung
HWY_AFTER_NAMESPACE();
#endif
