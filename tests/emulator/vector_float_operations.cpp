// Vector arithmetic of floats, a row an instruction.
#include <algorithm>
#include <limits>

#include "tests/emulator/operations.hpp"

namespace faltung::emulator {
namespace {

template <class T>
T least(T a, T b) {  // IEEE's minNum: of a number and a NaN, the number
  return std::isnan(float(a))                                                      ? b
         : std::isnan(float(b))                                                    ? a
         : float(a) < float(b) || (float(a) == float(b) && std::signbit(float(a))) ? a
                                                                                   : b;
}
template <class T>
T greatest(T a, T b) {
  return std::isnan(float(a))                                                       ? b
         : std::isnan(float(b))                                                     ? a
         : float(a) > float(b) || (float(a) == float(b) && !std::signbit(float(a))) ? a
                                                                                    : b;
}
template <class To>
To saturated(double value) {  // towards zero; NaN is 0
  if (std::isnan(value)) return 0;
  constexpr double kLeast = std::numeric_limits<To>::min(), kMost = std::numeric_limits<To>::max();
  return value <= kLeast  ? std::numeric_limits<To>::min()
         : value >= kMost ? std::numeric_limits<To>::max()
                          : static_cast<To>(value);
}
// A double's fraction cut off towards zero in f16: what v_cvt_pkrtz does.
Half towards_zero(float value) {
  Half half = Half::of(value);
  if (std::fabs(float(half)) > std::fabs(value)) --half.bits;
  return half;
}
int exponent_of(float value) {
  int exponent = 0;
  if (value == 0 || !std::isfinite(value)) return 0;
  std::frexp(value, &exponent);
  return exponent;
}
// The three instructions that divide, as AMD's manuals define them but for two slips, without which what the
// three compute together is IEEE's quotient of all operands, for which they are there. Where the reciprocal
// and the quotient are both subnormal the denominator is said to be scaled by 2^64, which makes an infinity
// of it and a NaN of 1 / 2^127; it is 2^-64, as in the case after it. And the quotient is said to be infinite
// where the denominator's exponent is the greatest, which other cases have taken by then; it is the
// quotient's own.
WithCarry<float> division_scaled(float given, float denominator, float numerator) {
  const int e_denominator = exponent_of(denominator), e_numerator = exponent_of(numerator);
  const bool is_denominator = std::bit_cast<u32>(given) == std::bit_cast<u32>(denominator);
  if (numerator == 0 || denominator == 0) return {NAN, false};
  if (e_numerator - e_denominator >= 96) return {is_denominator ? std::ldexp(given, 64) : given, true};
  if (std::fpclassify(denominator) == FP_SUBNORMAL) return {std::ldexp(given, 64), false};
  const bool tiny_reciprocal = std::fpclassify(1.0f / denominator) == FP_SUBNORMAL;
  const bool tiny_quotient = std::fpclassify(numerator / denominator) == FP_SUBNORMAL;
  if (tiny_reciprocal && tiny_quotient) return {is_denominator ? std::ldexp(given, -64) : given, true};
  if (tiny_reciprocal) return {std::ldexp(given, -64), false};
  if (tiny_quotient) return {is_denominator ? given : std::ldexp(given, 64), true};
  if (e_numerator <= 23 - 126) return {std::ldexp(given, 64), false};
  return {given, false};
}
float division_fixed(float quotient, float denominator, float numerator) {
  const bool sign = std::signbit(denominator) != std::signbit(numerator);
  if (std::isnan(numerator)) return numerator;
  if (std::isnan(denominator)) return denominator;
  if ((numerator == 0 && denominator == 0) || (std::isinf(numerator) && std::isinf(denominator))) return NAN;
  if (denominator == 0 || std::isinf(numerator)) return sign ? -INFINITY : INFINITY;
  if (std::isinf(denominator) || numerator == 0) return sign ? -0.0f : 0.0f;
  if (exponent_of(numerator) - exponent_of(denominator) < -150) return sign ? -0.0f : 0.0f;
  if (!std::isfinite(quotient)) return sign ? -INFINITY : INFINITY;
  return sign ? -std::fabs(quotient) : std::fabs(quotient);
}
bool is_class(float v, u32 classes) {
  const bool negative = std::signbit(v);
  const int kind = std::fpclassify(v);
  const u32 bit = kind == FP_NAN         ? (std::bit_cast<u32>(v) >> 22 & 1 ? 1 : 0)
                  : kind == FP_INFINITE  ? (negative ? 2 : 9)
                  : kind == FP_NORMAL    ? (negative ? 3 : 8)
                  : kind == FP_SUBNORMAL ? (negative ? 4 : 7)
                                         : (negative ? 5 : 6);
  return classes >> bit & 1;
}

constexpr VectorOperation kFloatOperations[] = {
    // f32
    op("v_add_f32", [](float a, float b) { return a + b; }),
    op("v_sub_f32", [](float a, float b) { return a - b; }),
    op("v_subrev_f32", [](float a, float b) { return b - a; }),
    op("v_mul_f32", [](float a, float b) { return a * b; }),
    op("v_mul_legacy_f32", [](float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }),
    op("v_fma_f32", [](float a, float b, float c) { return std::fma(a, b, c); }),
    op("v_fmac_f32", [](float a, float b, Old<float> c) { return std::fma(a, b, c.value); }),
    op("v_fmamk_f32", [](float a, float k, float c) { return std::fma(a, k, c); }),
    op("v_fmaak_f32", [](float a, float b, float k) { return std::fma(a, b, k); }),
    // not fused: the product is rounded
    op("v_mad_f32", [](float a, float b, float c) { return a * b + c; }),
    op("v_mac_f32", [](float a, float b, Old<float> c) { return a * b + c.value; }),
    op("v_madmk_f32", [](float a, float k, float c) { return a * k + c; }),
    op("v_madak_f32", [](float a, float b, float k) { return a * b + k; }),
    op("v_min_f32", [](float a, float b) { return least(a, b); }),
    op("v_max_f32", [](float a, float b) { return greatest(a, b); }),
    op("v_min3_f32", [](float a, float b, float c) { return least(least(a, b), c); }),
    op("v_max3_f32", [](float a, float b, float c) { return greatest(greatest(a, b), c); }),
    op("v_minmax_f32", [](float a, float b, float c) { return greatest(least(a, b), c); }),
    op("v_maxmin_f32", [](float a, float b, float c) { return least(greatest(a, b), c); }),
    op("v_med3_f32",
       [](float a, float b, float c) { return greatest(least(a, b), least(greatest(a, b), c)); }),
    op("v_rcp_f32", [](float a) { return 1.0f / a; }),
    op("v_rcp_iflag_f32", [](float a) { return 1.0f / a; }),
    op("v_rsq_f32", [](float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }),
    op("v_sqrt_f32", [](float a) { return std::sqrt(a); }),
    op("v_exp_f32", [](float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }),
    op("v_log_f32", [](float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }),
    op("v_rndne_f32", [](float a) { return std::nearbyint(a); }),
    op("v_floor_f32", [](float a) { return std::floor(a); }),
    op("v_ceil_f32", [](float a) { return std::ceil(a); }),
    op("v_trunc_f32", [](float a) { return std::trunc(a); }),
    op("v_fract_f32", [](float a) { return a - std::floor(a); }),
    op("v_ldexp_f32", [](float a, i32 e) { return std::ldexp(a, e); }),
    op("v_frexp_exp_i32_f32", [](float a) { return static_cast<u32>(exponent_of(a)); }),
    op("v_frexp_mant_f32",
       [](float a) {
         int e = 0;
         return std::isfinite(a) ? std::frexp(a, &e) : a;
       }),
    op("v_div_scale_f32", [](float a, float b, float c) { return division_scaled(a, b, c); }),
    op("v_div_fmas_f32",
       [](float a, float b, float c, bool scale) {
         return scale ? std::ldexp(std::fma(a, b, c), exponent_of(c) > 0 ? 64 : -64) : std::fma(a, b, c);
       }),
    op("v_div_fixup_f32", [](float a, float b, float c) { return division_fixed(a, b, c); }),
    op("v_fma_mix_f32", [](Mixed a, Mixed b, Mixed c) { return std::fma(a.value, b.value, c.value); }),
    op("v_fma_mixlo_f16",
       [](Mixed a, Mixed b, Mixed c) { return Half::of(std::fma(a.value, b.value, c.value)); }),
    op("v_dot2_f32_f16",
       [](Pair<Half> a, Pair<Half> b, float c) {
         return std::fma(float(a.high), float(b.high), std::fma(float(a.low), float(b.low), c));
       }),
    op("v_dot2c_f32_f16",
       [](Pair<Half> a, Pair<Half> b, Old<float> c) {
         return std::fma(float(a.high), float(b.high), std::fma(float(a.low), float(b.low), c.value));
       }),
    op("v_pk_add_f32",
       [](Pair<float> a, Pair<float> b) {
         return Pair<float>{a.low + b.low, a.high + b.high};
       }),
    op("v_pk_mul_f32",
       [](Pair<float> a, Pair<float> b) {
         return Pair<float>{a.low * b.low, a.high * b.high};
       }),
    op("v_pk_fma_f32",
       [](Pair<float> a, Pair<float> b, Pair<float> c) {
         return Pair<float>{std::fma(a.low, b.low, c.low), std::fma(a.high, b.high, c.high)};
       }),
    // conversions
    op("v_cvt_i32_f32", [](float a) { return saturated<i32>(a); }),
    op("v_cvt_u32_f32", [](float a) { return saturated<u32>(a); }),
    op("v_cvt_flr_i32_f32", [](float a) { return saturated<i32>(std::floor(a)); }),
    op("v_cvt_rpi_i32_f32", [](float a) { return saturated<i32>(std::floor(a + 0.5)); }),
    op("v_cvt_f32_i32", [](i32 a) { return static_cast<float>(a); }),
    op("v_cvt_f32_u32", [](u32 a) { return static_cast<float>(a); }),
    op("v_cvt_f32_ubyte0", [](u32 a) { return static_cast<float>(a & 0xff); }),
    op("v_cvt_f32_f16", [](Half a) { return float(a); }),
    op("v_cvt_f16_f32", [](float a) { return Half::of(a); }),
    op("v_cvt_pkrtz_f16_f32", [](float a, float b) { return pair_bits(towards_zero(a), towards_zero(b)); }),
    op("v_cvt_f16_u16", [](u16 a) { return Half::of(a); }),
    op("v_cvt_f64_f32", [](float a) { return static_cast<double>(a); }),
    op("v_cvt_f32_f64", [](double a) { return static_cast<float>(a); }),
    op("v_cvt_f64_i32", [](i32 a) { return static_cast<double>(a); }),
    op("v_cvt_f64_u32", [](u32 a) { return static_cast<double>(a); }),
    op("v_cvt_u32_f64", [](double a) { return saturated<u32>(a); }),
    op("v_cvt_i32_f64", [](double a) { return saturated<i32>(a); }),
    // f16
    op("v_add_f16", [](Half a, Half b) { return Half::of(double(a) + double(b)); }),
    op("v_sub_f16", [](Half a, Half b) { return Half::of(double(a) - double(b)); }),
    op("v_mul_f16", [](Half a, Half b) { return Half::of(double(a) * double(b)); }),
    op("v_fma_f16", [](Half a, Half b, Half c) { return fused(a, b, c); }),
    op("v_fmac_f16", [](Half a, Half b, Old<Half> c) { return fused(a, b, c.value); }),
    op("v_min_f16", [](Half a, Half b) { return least(a, b); }),
    op("v_max_f16", [](Half a, Half b) { return greatest(a, b); }),
    op("v_pk_add_f16",
       [](Pair<Half> a, Pair<Half> b) {
         return Pair<Half>{Half::of(double(a.low) + b.low), Half::of(double(a.high) + b.high)};
       }),
    op("v_pk_mul_f16",
       [](Pair<Half> a, Pair<Half> b) {
         return Pair<Half>{Half::of(double(a.low) * b.low), Half::of(double(a.high) * b.high)};
       }),
    op("v_pk_fma_f16",
       [](Pair<Half> a, Pair<Half> b, Pair<Half> c) {
         return Pair<Half>{fused(a.low, b.low, c.low), fused(a.high, b.high, c.high)};
       }),
    op("v_pk_min_f16",
       [](Pair<Half> a, Pair<Half> b) {
         return Pair<Half>{least(a.low, b.low), least(a.high, b.high)};
       }),
    op("v_pk_max_f16",
       [](Pair<Half> a, Pair<Half> b) {
         return Pair<Half>{greatest(a.low, b.low), greatest(a.high, b.high)};
       }),
    op("v_pk_add_u16",
       [](Pair<u16> a, Pair<u16> b) {
         return Pair<u16>{u16(a.low + b.low), u16(a.high + b.high)};
       }),
    op("v_pk_sub_i16",
       [](Pair<u16> a, Pair<u16> b) {
         return Pair<u16>{u16(a.low - b.low), u16(a.high - b.high)};
       }),
    op("v_pk_mul_lo_u16",
       [](Pair<u16> a, Pair<u16> b) {
         return Pair<u16>{u16(a.low * b.low), u16(a.high * b.high)};
       }),
    op("v_pk_min_u16",
       [](Pair<u16> a, Pair<u16> b) {
         return Pair<u16>{std::min(a.low, b.low), std::min(a.high, b.high)};
       }),
    op("v_pk_max_u16",
       [](Pair<u16> a, Pair<u16> b) {
         return Pair<u16>{std::max(a.low, b.low), std::max(a.high, b.high)};
       }),
    bits("v_pk_lshlrev_b16",
         [](Pair<u16> a, Pair<u16> b) {
           return Pair<u16>{u16(b.low << (a.low & 15)), u16(b.high << (a.high & 15))};
         }),
    bits("v_pk_lshrrev_b16",
         [](Pair<u16> a, Pair<u16> b) {
           return Pair<u16>{u16(b.low >> (a.low & 15)), u16(b.high >> (a.high & 15))};
         }),
    // f64
    op("v_add_f64", [](double a, double b) { return a + b; }),
    op("v_mul_f64", [](double a, double b) { return a * b; }),
    op("v_fma_f64", [](double a, double b, double c) { return std::fma(a, b, c); }),
    op("v_ldexp_f64", [](double a, i32 e) { return std::ldexp(a, e); }),
    op("v_floor_f64", [](double a) { return std::floor(a); }),
    op("v_rndne_f64", [](double a) { return std::nearbyint(a); }),
    op("v_trunc_f64", [](double a) { return std::trunc(a); }),
    // classes of numbers
    op("v_cmp_class_f32", [](float a, u32 classes) { return is_class(a, classes); }),
};

}  // namespace

std::span<const VectorOperation> float_operations() { return kFloatOperations; }

}  // namespace faltung::emulator
