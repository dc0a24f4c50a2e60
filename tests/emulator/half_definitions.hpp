// Instructions on halves, pairs and doubles, and rarer ones, beside definitions of their own: see
// definitions.hpp.
#ifndef FALTUNG_TESTS_EMULATOR_HALF_DEFINITIONS_HPP_
#define FALTUNG_TESTS_EMULATOR_HALF_DEFINITIONS_HPP_

#include "tests/emulator/definitions.hpp"

namespace faltung::emulator {

// A float holds every bit that rounding a sum or a product of two halves asks for.
inline u64 of_half(float v) { return float_to_f16(v); }
inline u64 halves(u64 low, u64 high) { return (low & 0xffff) | (high & 0xffff) << 16; }
inline double real(u64 v) { return std::bit_cast<double>(v); }
inline u64 of_double(double v) { return std::bit_cast<u64>(v); }

// A half as a multiple of 2^-24.
inline i64 units(float half) { return static_cast<i64>(std::ldexp(double(half), 24)); }
// a b + c, exact in integers and rounded once, to the even of two neighbours.
inline u64 fused_halves(float a, float b, float c) {
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return of_half(a * b + c);
  const wide_integer sum =
      static_cast<wide_integer>(units(a)) * units(b) + static_cast<wide_integer>(units(c)) * (1 << 24);
  if (sum == 0) return of_half(__builtin_fmaf(a, b, c));             // the sign of zero
  wide_integer magnitude = sum < 0 ? -sum : sum, quantum = 1 << 24;  // in units of 2^-48; of the least half
  while (magnitude / quantum >= 2048) quantum *= 2;
  wide_integer rounded = magnitude / quantum;
  const wide_integer rest = magnitude % quantum * 2;
  if (rest > quantum || (rest == quantum && rounded % 2 == 1)) ++rounded;
  const double value = std::ldexp(static_cast<double>(rounded * quantum), -48);
  return of_half(static_cast<float>(sum < 0 ? -value : value));
}
inline double limited(double v, double least, double most) {
  return std::isnan(v) ? 0 : std::clamp(std::trunc(v), least, most);
}
inline i64 signed_16(u64 v) { return static_cast<i64>(v % 65536) - (v % 65536 > 32767 ? 65536 : 0); }
inline i64 signed_24(u64 v) {
  return static_cast<i64>(v % 16777216) - (v % 16777216 > 8388607 ? 16777216 : 0);
}

inline const VectorDefinition kHalfDefinitions[] = {
    {"v_add_f16_e32 v10, v0, v2", Compared::f16, [](G g) { return of_half(low_half(g.a) + low_half(g.b)); }},
    {"v_sub_f16_e32 v10, v0, v2", Compared::f16, [](G g) { return of_half(low_half(g.a) - low_half(g.b)); }},
    {"v_mul_f16_e32 v10, v0, v2", Compared::f16, [](G g) { return of_half(low_half(g.a) * low_half(g.b)); }},
    {"v_fma_f16 v10, v0, v2, v4", Compared::f16,
     [](G g) { return fused_halves(low_half(g.a), low_half(g.b), low_half(g.c)); }},
    {"v_fmac_f16_e32 v10, v0, v2", Compared::f16,
     [](G g) { return fused_halves(low_half(g.a), low_half(g.b), low_half(g.d)); }},
    {"v_min_f16_e32 v10, v0, v2", Compared::f16,
     [](G g) { return of_half(least_number(low_half(g.a), low_half(g.b))); }},
    {"v_max_f16_e32 v10, v0, v2", Compared::f16,
     [](G g) { return of_half(greatest_number(low_half(g.a), low_half(g.b))); }},
    {"v_fma_mixlo_f16 v10, v0, v2, v4 op_sel_hi:[1,0,0]", Compared::f16,
     [](G g) { return of_half(__builtin_fmaf(low_half(g.a), g.bf(), g.cf())); }},
    {"v_fma_mixhi_f16 v10, v0, v2, v4 op_sel_hi:[1,0,0]", Compared::pair_of_f16,
     [](G g) { return halves(g.d, of_half(__builtin_fmaf(low_half(g.a), g.bf(), g.cf()))); }},
    {"v_pk_add_f16 v10, v0, v2", Compared::pair_of_f16,
     [](G g) {
       return halves(of_half(low_half(g.a) + low_half(g.b)), of_half(high_half(g.a) + high_half(g.b)));
     }},
    {"v_pk_mul_f16 v10, v0, v2 op_sel_hi:[1,0]", Compared::pair_of_f16,
     [](G g) {
       return halves(of_half(low_half(g.a) * low_half(g.b)), of_half(high_half(g.a) * low_half(g.b)));
     }},
    {"v_pk_fma_f16 v10, v0, v2, v4", Compared::pair_of_f16,
     [](G g) {
       return halves(fused_halves(low_half(g.a), low_half(g.b), low_half(g.c)),
                     fused_halves(high_half(g.a), high_half(g.b), high_half(g.c)));
     }},
    {"v_pk_min_f16 v10, v0, v2", Compared::pair_of_f16,
     [](G g) {
       return halves(of_half(least_number(low_half(g.a), low_half(g.b))),
                     of_half(least_number(high_half(g.a), high_half(g.b))));
     }},
    {"v_pk_max_f16 v10, v0, v2", Compared::pair_of_f16,
     [](G g) {
       return halves(of_half(greatest_number(low_half(g.a), low_half(g.b))),
                     of_half(greatest_number(high_half(g.a), high_half(g.b))));
     }},
    {"v_pk_add_u16 v10, v0, v2", Compared::bits,
     [](G g) { return halves(g.a + g.b, (g.a >> 16) + (g.b >> 16)); }},
    {"v_pk_sub_i16 v10, v0, v2", Compared::bits,
     [](G g) { return halves(g.a - g.b, (g.a >> 16) - (g.b >> 16)); }},
    {"v_pk_mul_lo_u16 v10, v0, v2", Compared::bits,
     [](G g) { return halves(g.a % 65536 * (g.b % 65536), (g.a >> 16) % 65536 * ((g.b >> 16) % 65536)); }},
    {"v_pk_lshlrev_b16 v10, v0, v2", Compared::bits,
     [](G g) {
       return halves(g.b % 65536 * (1u << g.a % 16), (g.b >> 16) % 65536 * (1u << (g.a >> 16) % 16));
     }},
    {"v_pk_lshrrev_b16 v10, v0, v2", Compared::bits,
     [](G g) {
       return halves(g.b % 65536 / (1u << g.a % 16), (g.b >> 16) % 65536 / (1u << (g.a >> 16) % 16));
     }},
    {"v_pk_min_u16 v10, v0, v2", Compared::bits,
     [](G g) {
       return halves(std::min(g.a % 65536, g.b % 65536), std::min(g.a >> 16 & 65535, g.b >> 16 & 65535));
     }},
    {"v_pk_max_u16 v10, v0, v2", Compared::bits,
     [](G g) {
       return halves(std::max(g.a % 65536, g.b % 65536), std::max(g.a >> 16 & 65535, g.b >> 16 & 65535));
     }},
    {"v_min_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return std::min(g.a % 65536, g.b % 65536); }},
    {"v_max_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return std::max(g.a % 65536, g.b % 65536); }},
    {"v_min_i16_e32 v10, v0, v2", Compared::f16,
     [](G g) { return static_cast<u64>(std::min(signed_16(g.a), signed_16(g.b))) & 65535; }},
    {"v_max_i16_e32 v10, v0, v2", Compared::f16,
     [](G g) { return static_cast<u64>(std::max(signed_16(g.a), signed_16(g.b))) & 65535; }},
    {"v_subrev_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return (g.b - g.a) % 65536; }},
    {"v_mad_u16 v10, v0, v2, v4", Compared::f16,
     [](G g) { return (g.a % 65536 * (g.b % 65536) + g.c) % 65536; }},
    {"v_mad_u32_u16 v10, v0, v2, v4", Compared::bits,
     [](G g) { return (g.a % 65536 * (g.b % 65536) + g.c0()) % 4294967296u; }},
    {"v_mad_i32_i16 v10, v0, v2, v4", Compared::bits,
     [](G g) { return static_cast<u64>(static_cast<u32>(signed_16(g.a) * signed_16(g.b) + g.ci())); }},
    {"v_mad_i32_i24 v10, v0, v2, v4", Compared::bits,
     [](G g) { return static_cast<u64>(static_cast<u32>(signed_24(g.a) * signed_24(g.b) + g.ci())); }},
    {"v_mul_hi_u32_u24_e32 v10, v0, v2", Compared::bits,
     [](G g) { return g.a % 16777216 * (g.b % 16777216) / 4294967296u; }},
    {"v_bcnt_u32_b32 v10, v0, v2", Compared::bits,
     [](G g) {
       u64 n = g.b0();
       for (u32 v = g.a0(); v != 0; v /= 2) n += v % 2;
       return n % 4294967296u;
     }},
    {"v_min3_i32 v10, v0, v2, v4", Compared::bits,
     [](G g) {
       return u64{static_cast<u32>(g.ai() <= g.bi() && g.ai() <= g.ci() ? g.ai()
                                   : g.bi() <= g.ci()                   ? g.bi()
                                                                        : g.ci())};
     }},
    {"v_max3_i32 v10, v0, v2, v4", Compared::bits,
     [](G g) {
       return u64{static_cast<u32>(g.ai() >= g.bi() && g.ai() >= g.ci() ? g.ai()
                                   : g.bi() >= g.ci()                   ? g.bi()
                                                                        : g.ci())};
     }},
    {"v_min3_u32 v10, v0, v2, v4", Compared::bits,
     [](G g) {
       return u64{g.a0() <= g.b0() && g.a0() <= g.c0() ? g.a0() : g.b0() <= g.c0() ? g.b0() : g.c0()};
     }},
    {"v_max3_u32 v10, v0, v2, v4", Compared::bits,
     [](G g) {
       return u64{g.a0() >= g.b0() && g.a0() >= g.c0() ? g.a0() : g.b0() >= g.c0() ? g.b0() : g.c0()};
     }},
    {"v_ceil_f32_e32 v10, v0", Compared::f32, [](G g) { return of_float(std::ceil(double(g.af()))); }},
    {"v_min3_f32 v10, v0, v2, v4", Compared::f32,
     [](G g) { return of_float(least_number(least_number(g.af(), g.bf()), g.cf())); }},
    {"v_frexp_exp_i32_f32_e32 v10, v0", Compared::bits,
     [](G g) {
       return !std::isfinite(g.af()) || g.af() == 0 ? 0 : u64{static_cast<u32>(std::ilogb(g.af()) + 1)};
     }},
    {"v_frexp_mant_f32_e32 v10, v0", Compared::f32,
     [](G g) {
       return of_float(!std::isfinite(g.af()) || g.af() == 0
                           ? g.af()
                           : std::ldexp(double(g.af()), -std::ilogb(g.af()) - 1));
     }},
    {"v_cvt_f32_ubyte0_e32 v10, v0", Compared::f32, [](G g) { return of_float(g.a0() % 256); }},
    {"v_cvt_f64_f32_e32 v[10:11], v0", Compared::f64, [](G g) { return of_double(double(g.af())); }},
    {"v_cvt_f32_f64_e32 v10, v[0:1]", Compared::f32, [](G g) { return of_float(real(g.a)); }},
    {"v_cvt_f64_i32_e32 v[10:11], v0", Compared::bits, [](G g) { return of_double(g.ai()); }},
    {"v_cvt_f64_u32_e32 v[10:11], v0", Compared::bits, [](G g) { return of_double(g.a0()); }},
    {"v_cvt_i32_f64_e32 v10, v[0:1]", Compared::bits,
     [](G g) {
       return u64{static_cast<u32>(static_cast<i32>(limited(real(g.a), -2147483648.0, 2147483647.0)))};
     }},
    {"v_cvt_u32_f64_e32 v10, v[0:1]", Compared::bits,
     [](G g) { return u64{static_cast<u32>(limited(real(g.a), 0, 4294967295.0))}; }},
    {"v_add_f64 v[10:11], v[0:1], v[2:3]", Compared::f64,
     [](G g) { return of_double(real(g.a) + real(g.b)); }},
    {"v_mul_f64 v[10:11], v[0:1], v[2:3]", Compared::f64,
     [](G g) { return of_double(real(g.a) * real(g.b)); }},
    {"v_fma_f64 v[10:11], v[0:1], v[2:3], v[4:5]", Compared::f64,
     [](G g) { return of_double(__builtin_fma(real(g.a), real(g.b), real(g.c))); }},
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_HALF_DEFINITIONS_HPP_
