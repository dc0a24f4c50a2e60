// Instructions that the kernels use, each beside a definition of its own in plain C++: what
// tests/emulator_instructions_test.cpp holds the emulator's tables to, and what
// tests/emulator_kernels_test.cpp asks whether anything that a kernel uses is missing from.
#ifndef FALTUNG_TESTS_EMULATOR_DEFINITIONS_HPP_
#define FALTUNG_TESTS_EMULATOR_DEFINITIONS_HPP_

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "tests/emulator/instruction.hpp"

namespace faltung::emulator {

// A lane's operands: a in v[0:1], b in v[2:3], c in v[4:5], d what the result's v[10:11] held, m its bit of
// vcc.
struct Given {
  u64 a, b, c, d;
  bool m;
  u32 a0() const { return static_cast<u32>(a); }
  u32 b0() const { return static_cast<u32>(b); }
  u32 c0() const { return static_cast<u32>(c); }
  i32 ai() const { return static_cast<i32>(a0()); }
  i32 bi() const { return static_cast<i32>(b0()); }
  i32 ci() const { return static_cast<i32>(c0()); }
  float af() const { return std::bit_cast<float>(a0()); }
  float bf() const { return std::bit_cast<float>(b0()); }
  float cf() const { return std::bit_cast<float>(c0()); }
  float df() const { return std::bit_cast<float>(static_cast<u32>(d)); }
};
enum class Compared { bits, f32, f32_close, pair_of_f32, f16, pair_of_f16, f64, mask };
struct VectorDefinition {
  const char* text;
  Compared compared;
  u64 (*value)(const Given&);
  bool (*carry)(const Given&) = nullptr;  // of what is written to vcc beside it
};

inline u64 of_float(double exact) { return std::bit_cast<u32>(static_cast<float>(exact)); }
// The reference's own way to round a sum of a product once: in long double, which holds the product.
inline u64 fused_multiply_add(float a, float b, float c) {
  return std::bit_cast<u32>(__builtin_fmaf(a, b, c));
}
// Of a number and a NaN, whichever NaN it is, the number; of zeros, -0 is the lesser.
inline float greatest_number(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  return a == 0 && b == 0 ? a + b : std::fmax(a, b);
}
inline float least_number(float a, float b) { return -greatest_number(-a, -b); }
inline float low_half(u64 v) { return f16_to_float(static_cast<u16>(v)); }
inline float high_half(u64 v) { return f16_to_float(static_cast<u16>(v >> 16)); }
__extension__ typedef __int128 wide_integer;

using G = const Given&;
inline const VectorDefinition kVectorDefinitions[] = {
    {"v_mov_b32_e32 v10, v0", Compared::bits, [](G g) { return u64{g.a0()}; }},
    {"v_mov_b32_e32 v10, 0x40490fdb", Compared::bits, [](G) { return u64{0x40490fdb}; }},
    {"v_mov_b32_e32 v10, 1.0", Compared::bits, [](G) { return u64{0x3f800000}; }},
    {"v_mov_b32_e32 v10, -4.0", Compared::bits, [](G) { return u64{0xc0800000}; }},
    {"v_accvgpr_write_b32 a10, v0", Compared::bits, [](G g) { return u64{g.a0()}; }},
    {"v_accvgpr_read_b32 v10, a0", Compared::bits, [](G g) { return u64{g.a0()}; }},
    {"v_accvgpr_mov_b32 a10, a0", Compared::bits, [](G g) { return u64{g.a0()}; }},
    {"v_mov_b64 v[10:11], v[0:1]", Compared::bits, [](G g) { return g.a; }},
    {"v_bfrev_b32_e32 v10, v0", Compared::bits, [](G g) { u64 r = 0; for (u32 v = g.a0(), i = 0; i < 32; ++i, v /= 2) r = r * 2 + v % 2; return r; }},
    {"v_xad_u32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{(g.a0() | g.b0()) - (g.a0() & g.b0())} + g.c0()) % 4294967296u; }},
    {"v_xnor_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{~((g.a0() | g.b0()) - (g.a0() & g.b0()))}; }},
    {"v_xor3_b32 v10, v0, v2, v4", Compared::bits, [](G g) { u64 r = 0; for (int i = 0; i < 32; ++i) r |= ((g.a >> i) + (g.b >> i) + (g.c >> i)) % 2 << i; return r; }},
    {"v_bfm_b32 v10, v0, v2", Compared::bits, [](G g) { u64 r = 0; for (u32 i = 0; i < g.a0() % 32; ++i) r |= u64{1} << (g.b0() % 32 + i); return r % 4294967296u; }},
    {"v_alignbyte_b32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0()} * 4294967296u + g.b0()) / (u64{1} << 8 * (g.c0() % 4)) % 4294967296u; }},
    {"v_ffbl_b32_e32 v10, v0", Compared::bits, [](G g) { for (u32 i = 0; i < 32; ++i) if ((g.a >> i & 1) != 0) return u64{i}; return u64{0xffffffff}; }},
    {"v_ffbh_u32_e32 v10, v0", Compared::bits, [](G g) { for (u32 i = 0; i < 32; ++i) if ((g.a0() >> (31 - i) & 1) != 0) return u64{i}; return u64{0xffffffff}; }},
    {"v_pk_mov_b32 v[10:11], v[0:1], v[2:3] op_sel:[1,0]", Compared::bits, [](G g) { return g.a >> 32 | g.b >> 32 << 32; }},
    {"v_pk_mov_b32 v[10:11], v[0:1], v[2:3] op_sel:[0,1]", Compared::bits, [](G g) { return u64{g.a0()} | g.b >> 32 << 32; }},
    {"v_not_b32_e32 v10, v0", Compared::bits, [](G g) { return u64{g.a0() ^ 0xffffffffu}; }},
    {"v_and_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{(g.a0() | g.b0()) ^ (g.a0() ^ g.b0())}; }},
    {"v_or_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{(g.a0() & g.b0()) + (g.a0() ^ g.b0())}; }},
    {"v_xor_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{(g.a0() | g.b0()) - (g.a0() & g.b0())}; }},
    {"v_or3_b32 v10, v0, v2, v4", Compared::bits, [](G g) { return u64{~(~g.a0() & ~g.b0() & ~g.c0())}; }},
    {"v_and_or_b32 v10, v0, v2, v4", Compared::bits, [](G g) { return u64{~(~(g.a0() & g.b0()) & ~g.c0())}; }},
    {"v_lshl_or_b32 v10, v0, v2, v4", Compared::bits, [](G g) { return u64{static_cast<u32>(u64{g.a0()} * (u64{1} << g.b0() % 32)) | g.c0()}; }},
    {"v_bfi_b32 v10, v0, v2, v4", Compared::bits, [](G g) { u64 r = 0; for (int i = 0; i < 32; ++i) r |= ((g.a >> i & 1) != 0 ? g.b >> i & 1 : g.c >> i & 1) << i; return r; }},
    {"v_cndmask_b32_e32 v10, v0, v2, vcc", Compared::bits, [](G g) { return u64{g.m ? g.b0() : g.a0()}; }},
    {"v_lshlrev_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{static_cast<u32>(u64{g.b0()} * (u64{1} << g.a0() % 32))}; }},
    {"v_lshrrev_b32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.b0()} / (u64{1} << g.a0() % 32); }},
    {"v_ashrrev_i32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{static_cast<u32>(static_cast<i64>(std::floor(std::ldexp(double(g.bi()), -static_cast<int>(g.a0() % 32)))))}; }},
    {"v_lshlrev_b64 v[10:11], v0, v[2:3]", Compared::bits, [](G g) { u64 r = g.b; for (u32 i = 0; i < g.a0() % 64; ++i) r += r; return r; }},
    {"v_lshrrev_b64 v[10:11], v0, v[2:3]", Compared::bits, [](G g) { u64 r = g.b; for (u32 i = 0; i < g.a0() % 64; ++i) r /= 2; return r; }},
    {"v_ashrrev_i64 v[10:11], v0, v[2:3]", Compared::bits, [](G g) { u64 r = g.b; for (u32 i = 0; i < g.a0() % 64; ++i) r = r / 2 | (r & u64{1} << 63); return r; }},
    {"v_lshrrev_b16_e32 v10, v0, v2", Compared::f16, [](G g) { return u64{(g.b0() & 0xffff) / (1u << g.a0() % 16)}; }},
    {"v_lshlrev_b16_e32 v10, v0, v2", Compared::f16, [](G g) { return u64{(g.b0() & 0xffff) * (1u << g.a0() % 16) & 0xffff}; }},
    {"v_ashrrev_i16_e32 v10, v0, v2", Compared::f16, [](G g) { u32 r = g.b0() & 0xffff; for (u32 i = 0; i < g.a0() % 16; ++i) r = r / 2 | (r & 0x8000); return u64{r}; }},
    {"v_bfe_u32 v10, v0, v2, v4", Compared::bits, [](G g) { u64 r = 0; for (u32 i = 0; i < g.c0() % 32; ++i) r |= (u64{g.a0()} >> (g.b0() % 32 + i) & 1) << i; return r; }},
    {"v_bfe_i32 v10, v0, v2, v4", Compared::bits, [](G g) {
       u64 r = 0;
       const u32 width = g.c0() % 32;
       for (u32 i = 0; i < 32 && width > 0; ++i) r |= (static_cast<u64>(i64{g.ai()}) >> (g.b0() % 32 + std::min(i, width - 1)) & 1) << i;
       return r;
     }},
    {"v_alignbit_b32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0()} * 4294967296u + g.b0()) / (u64{1} << g.c0() % 32) % 4294967296u; }},
    {"v_perm_b32 v10, v0, v2, v4", Compared::bits, [](G g) {
       u64 r = 0;
       for (int i = 0; i < 4; ++i) {
         const u32 s = g.c0() >> 8 * i & 255;
         const auto byte = [&](u32 n) -> u64 { return n < 4 ? g.b0() >> 8 * n & 255 : g.a0() >> 8 * (n - 4) & 255; };
         const u64 v = s < 8 ? byte(s) : s == 8 ? (byte(1) > 127) * 255u : s == 9 ? (byte(3) > 127) * 255u : s == 10 ? (byte(5) > 127) * 255u : s == 11 ? (byte(7) > 127) * 255u : s == 12 ? 0 : 255;
         r |= v << 8 * i;
       }
       return r;
     }},
    {"v_pack_b32_f16 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0() % 65536 + 65536 * (g.b0() % 65536)}; }},
    {"v_pack_b32_f16 v10, v0, v2 op_sel:[1,0,0]", Compared::bits, [](G g) { return u64{g.a0() / 65536 + 65536 * (g.b0() % 65536)}; }},
    {"v_add_u32_e32 v10, v0, v2", Compared::bits, [](G g) { return (u64{g.a0()} + g.b0()) % 4294967296u; }},
    {"v_sub_u32_e32 v10, v0, v2", Compared::bits, [](G g) { return (u64{g.a0()} + 4294967296u - g.b0()) % 4294967296u; }},
    {"v_subrev_u32_e32 v10, v0, v2", Compared::bits, [](G g) { return (u64{g.b0()} + 4294967296u - g.a0()) % 4294967296u; }},
    {"v_add_co_u32_e32 v10, vcc, v0, v2", Compared::bits, [](G g) { return (u64{g.a0()} + g.b0()) % 4294967296u; }, [](G g) { return u64{g.a0()} + g.b0() > 0xffffffffu; }},
    {"v_sub_co_u32_e32 v10, vcc, v0, v2", Compared::bits, [](G g) { return (u64{g.a0()} + 4294967296u - g.b0()) % 4294967296u; }, [](G g) { return g.b0() > g.a0(); }},
    {"v_subrev_co_u32_e32 v10, vcc, v0, v2", Compared::bits, [](G g) { return (u64{g.b0()} + 4294967296u - g.a0()) % 4294967296u; }, [](G g) { return g.a0() > g.b0(); }},
    {"v_addc_co_u32_e32 v10, vcc, v0, v2, vcc", Compared::bits, [](G g) { return (u64{g.a0()} + g.b0() + (g.m ? 1 : 0)) % 4294967296u; }, [](G g) { return u64{g.a0()} + g.b0() + (g.m ? 1 : 0) > 0xffffffffu; }},
    {"v_subb_co_u32_e32 v10, vcc, v0, v2, vcc", Compared::bits, [](G g) { return (u64{g.a0()} + 8589934592u - g.b0() - (g.m ? 1 : 0)) % 4294967296u; }, [](G g) { return i64{g.a0()} - i64{g.b0()} - (g.m ? 1 : 0) < 0; }},
    {"v_subbrev_co_u32_e32 v10, vcc, v0, v2, vcc", Compared::bits, [](G g) { return (u64{g.b0()} + 8589934592u - g.a0() - (g.m ? 1 : 0)) % 4294967296u; }, [](G g) { return i64{g.b0()} - i64{g.a0()} - (g.m ? 1 : 0) < 0; }},
    {"v_add3_u32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0()} + g.b0() + g.c0()) % 4294967296u; }},
    {"v_lshl_add_u32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0()} * (u64{1} << g.b0() % 32) + g.c0()) % 4294967296u; }},
    {"v_lshl_add_u64 v[10:11], v[0:1], v2, v[4:5]", Compared::bits, [](G g) { u64 r = g.a; for (u32 i = 0; i < g.b0() % 8; ++i) r += r; return r + g.c; }},
    {"v_add_lshl_u32 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0()} + g.b0()) * (u64{1} << g.c0() % 32) % 4294967296u; }},
    {"v_mul_lo_u32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0()} * g.b0() % 4294967296u; }},
    {"v_mul_hi_u32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0()} * g.b0() / 4294967296u; }},
    {"v_mul_hi_i32 v10, v0, v2", Compared::bits, [](G g) { return static_cast<u64>(static_cast<u32>(static_cast<wide_integer>(g.ai()) * g.bi() >> 32)); }},
    {"v_mul_u32_u24_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0() % 16777216} * (g.b0() % 16777216) % 4294967296u; }},
    {"v_mul_i32_i24_e32 v10, v0, v2", Compared::bits, [](G g) {
       const auto low = [](u32 v) { const i64 n = v % 16777216; return n >= 8388608 ? n - 16777216 : n; };
       return static_cast<u64>(static_cast<u32>(low(g.a0()) * low(g.b0())));
     }},
    {"v_mad_u32_u24 v10, v0, v2, v4", Compared::bits, [](G g) { return (u64{g.a0() % 16777216} * (g.b0() % 16777216) + g.c0()) % 4294967296u; }},
    {"v_mad_u64_u32 v[10:11], vcc, v0, v2, v[4:5]", Compared::bits, [](G g) { return static_cast<u64>(static_cast<wide_integer>(g.a0()) * g.b0() + g.c); }, [](G g) { return (static_cast<wide_integer>(g.a0()) * g.b0() + g.c) >> 64 != 0; }},
    {"v_mad_i64_i32 v[10:11], vcc, v0, v2, v[4:5]", Compared::bits, [](G g) { return static_cast<u64>(static_cast<wide_integer>(g.ai()) * g.bi() + static_cast<i64>(g.c)); }},
    {"v_min_u32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0() < g.b0() ? g.a0() : g.b0()}; }},
    {"v_max_u32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.a0() > g.b0() ? g.a0() : g.b0()}; }},
    {"v_min_i32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.ai() < g.bi() ? g.a0() : g.b0()}; }},
    {"v_max_i32_e32 v10, v0, v2", Compared::bits, [](G g) { return u64{g.ai() > g.bi() ? g.a0() : g.b0()}; }},
    {"v_med3_i32 v10, v0, v2, v4", Compared::bits, [](G g) { std::array<i32, 3> s{g.ai(), g.bi(), g.ci()}; std::sort(s.begin(), s.end()); return u64{static_cast<u32>(s[1])}; }},
    {"v_add_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return u64{(g.a0() + g.b0()) % 65536}; }},
    {"v_sub_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return u64{(g.a0() - g.b0()) % 65536}; }},
    {"v_mul_lo_u16_e32 v10, v0, v2", Compared::f16, [](G g) { return u64{g.a0() % 65536} * (g.b0() % 65536) % 65536; }},
    {"v_mul_lo_u16_sdwa v10, sext(v0), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD", Compared::f16, [](G g) { const i64 byte = g.a0() % 256; return static_cast<u64>((byte > 127 ? byte - 256 : byte) * (g.b0() % 65536)) % 65536; }},
    {"v_add_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(double(g.af()) + double(g.bf())); }},
    {"v_add_f32_e64 v10, -v0, |v2|", Compared::f32, [](G g) { return of_float(std::fabs(double(g.bf())) - double(g.af())); }},
    {"v_sub_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(double(g.af()) - double(g.bf())); }},
    {"v_subrev_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(double(g.bf()) - double(g.af())); }},
    {"v_mul_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(double(g.af()) * double(g.bf())); }},
    {"v_fma_f32 v10, v0, v2, v4", Compared::f32, [](G g) { return fused_multiply_add(g.af(), g.bf(), g.cf()); }},
    {"v_fma_f32 v10, -v0, v2, 1.0", Compared::f32, [](G g) { return fused_multiply_add(-g.af(), g.bf(), 1.0f); }},
    {"v_fmac_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return fused_multiply_add(g.af(), g.bf(), g.df()); }},
    {"v_dual_fmac_f32 v10, v0, v2 :: v_dual_mov_b32 v12, v10", Compared::f32, [](G g) { return fused_multiply_add(g.af(), g.bf(), g.df()); }},
    {"v_fmamk_f32 v10, v0, 0x40490fdb, v4", Compared::f32, [](G g) { return fused_multiply_add(g.af(), std::bit_cast<float>(0x40490fdbu), g.cf()); }},
    {"v_fmaak_f32 v10, v0, v2, 0x40490fdb", Compared::f32, [](G g) { return fused_multiply_add(g.af(), g.bf(), std::bit_cast<float>(0x40490fdbu)); }},
    {"v_mad_f32 v10, v0, v2, v4", Compared::f32, [](G g) { return of_float(double(static_cast<float>(double(g.af()) * g.bf())) + g.cf()); }},
    {"v_madmk_f32 v10, v0, 0x4f800000, v4", Compared::f32, [](G g) { return of_float(double(static_cast<float>(double(g.af()) * 4294967296.0)) + g.cf()); }},
    {"v_madak_f32 v10, v0, v2, 0x4f800000", Compared::f32, [](G g) { return of_float(double(static_cast<float>(double(g.af()) * g.bf())) + 4294967296.0); }},
    {"v_mac_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(double(static_cast<float>(double(g.af()) * g.bf())) + g.df()); }},
    {"v_min_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(least_number(g.af(), g.bf())); }},
    {"v_max_f32_e32 v10, v0, v2", Compared::f32, [](G g) { return of_float(greatest_number(g.af(), g.bf())); }},
    {"v_max3_f32 v10, v0, v2, v4", Compared::f32, [](G g) { return of_float(greatest_number(greatest_number(g.af(), g.bf()), g.cf())); }},
    {"v_rcp_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(1.0 / g.af()); }},
    {"v_rcp_iflag_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(1.0 / g.af()); }},
    {"v_exp_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(std::pow(2.0, double(g.af()))); }},
    {"v_log_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(std::log(double(g.af())) / std::log(2.0)); }},
    {"v_sqrt_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(std::sqrt(double(g.af()))); }},
    {"v_rsq_f32_e32 v10, v0", Compared::f32_close, [](G g) { return of_float(static_cast<double>(1 / std::sqrt(static_cast<long double>(g.af())))); }},
    {"v_rndne_f32_e32 v10, v0", Compared::f32, [](G g) { return of_float(std::rint(double(g.af()))); }},
    {"v_floor_f32_e32 v10, v0", Compared::f32, [](G g) { return of_float(std::floor(double(g.af()))); }},
    {"v_trunc_f32_e32 v10, v0", Compared::f32, [](G g) { return of_float(std::trunc(double(g.af()))); }},
    {"v_ldexp_f32 v10, v0, 3", Compared::f32, [](G g) { return of_float(double(g.af()) * 8); }},
    {"v_fma_mix_f32 v10, v0, v2, v4 op_sel_hi:[1,1,0]", Compared::f32, [](G g) { return fused_multiply_add(low_half(g.a), low_half(g.b), g.cf()); }},
    {"v_fma_mix_f32 v10, v0, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,0,0]", Compared::f32, [](G g) { return fused_multiply_add(high_half(g.a), g.bf(), g.cf()); }},
    {"v_dot2c_f32_f16_e32 v10, v0, v2", Compared::f32_close, [](G g) { return of_float(double(low_half(g.a)) * low_half(g.b) + double(high_half(g.a)) * high_half(g.b) + g.df()); }},
    {"v_pk_add_f32 v[10:11], v[0:1], v[2:3]", Compared::pair_of_f32, [](G g) { return of_float(double(g.af()) + g.bf()) | of_float(double(std::bit_cast<float>(static_cast<u32>(g.a >> 32))) + std::bit_cast<float>(static_cast<u32>(g.b >> 32))) << 32; }},
    {"v_pk_mul_f32 v[10:11], v[0:1], v[2:3] op_sel_hi:[1,0]", Compared::pair_of_f32, [](G g) { return of_float(double(g.af()) * g.bf()) | of_float(double(std::bit_cast<float>(static_cast<u32>(g.a >> 32))) * g.bf()) << 32; }},
    {"v_pk_fma_f32 v[10:11], v[0:1], v[2:3], v[4:5] op_sel:[1,0,0] op_sel_hi:[1,1,1]", Compared::pair_of_f32, [](G g) {
       const auto high = [](u64 v) { return std::bit_cast<float>(static_cast<u32>(v >> 32)); };
       return fused_multiply_add(high(g.a), g.bf(), g.cf()) | fused_multiply_add(high(g.a), high(g.b), high(g.c)) << 32;
     }},
    {"v_cvt_i32_f32_e32 v10, v0", Compared::bits, [](G g) { return std::isnan(g.af()) ? 0 : u64{static_cast<u32>(static_cast<i32>(std::clamp(std::trunc(double(g.af())), -2147483648.0, 2147483647.0)))}; }},
    {"v_cvt_u32_f32_e32 v10, v0", Compared::bits, [](G g) { return std::isnan(g.af()) ? 0 : u64{static_cast<u32>(std::clamp(std::trunc(double(g.af())), 0.0, 4294967295.0))}; }},
    {"v_cvt_f32_i32_e32 v10, v0", Compared::f32, [](G g) { return of_float(double(g.ai())); }},
    {"v_cvt_f32_u32_e32 v10, v0", Compared::f32, [](G g) { return of_float(double(g.a0())); }},
    {"v_cvt_f32_f16_e32 v10, v0", Compared::f32, [](G g) { return of_float(low_half(g.a)); }},
    {"v_cvt_f32_f16_sdwa v10, v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", Compared::f32, [](G g) { return of_float(high_half(g.a)); }},
    {"v_cvt_f16_f32_e32 v10, v0", Compared::f16, [](G g) { return u64{float_to_f16(g.af())}; }},
    {"v_cmp_lt_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isless(g.af(), g.bf())}; }},
    {"v_cmp_gt_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreater(g.af(), g.bf())}; }},
    {"v_cmp_ge_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreaterequal(g.af(), g.bf())}; }},
    {"v_cmp_le_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::islessequal(g.af(), g.bf())}; }},
    {"v_cmp_eq_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreaterequal(g.af(), g.bf()) && std::islessequal(g.af(), g.bf())}; }},
    {"v_cmp_neq_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf()) || std::islessgreater(g.af(), g.bf())}; }},
    {"v_cmp_lg_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::islessgreater(g.af(), g.bf())}; }},
    {"v_cmp_nlg_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{!std::islessgreater(g.af(), g.bf())}; }},
    {"v_cmp_ngt_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf()) || std::islessequal(g.af(), g.bf())}; }},
    {"v_cmp_nlt_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf()) || std::isgreaterequal(g.af(), g.bf())}; }},
    {"v_cmp_nge_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf()) || std::isless(g.af(), g.bf())}; }},
    {"v_cmp_nle_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf()) || std::isgreater(g.af(), g.bf())}; }},
    {"v_cmp_o_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{!std::isunordered(g.af(), g.bf())}; }},
    {"v_cmp_u_f32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(g.af(), g.bf())}; }},
    {"v_cmp_u_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_o_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{!std::isunordered(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_lt_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isless(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_gt_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreater(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_le_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::islessequal(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_ge_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreaterequal(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_eq_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isgreaterequal(low_half(g.a), low_half(g.b)) && std::islessequal(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_nlt_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b)) || std::isgreaterequal(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_ngt_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b)) || std::islessequal(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_nle_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b)) || std::isgreater(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_nge_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b)) || std::isless(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_neq_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::isunordered(low_half(g.a), low_half(g.b)) || std::islessgreater(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_lg_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{std::islessgreater(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_nlg_f16_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{!std::islessgreater(low_half(g.a), low_half(g.b))}; }},
    {"v_cmp_lt_i32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.ai()} - g.bi() < 0}; }},
    {"v_cmp_le_i32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.ai()} - g.bi() <= 0}; }},
    {"v_cmp_gt_i32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.ai()} - g.bi() > 0}; }},
    {"v_cmp_ge_i32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.ai()} - g.bi() >= 0}; }},
    {"v_cmp_eq_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{(g.a0() ^ g.b0()) == 0}; }},
    {"v_cmp_ne_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{(g.a0() ^ g.b0()) != 0}; }},
    {"v_cmp_lt_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.a0()} - i64{g.b0()} < 0}; }},
    {"v_cmp_le_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.a0()} - i64{g.b0()} <= 0}; }},
    {"v_cmp_gt_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.a0()} - i64{g.b0()} > 0}; }},
    {"v_cmp_ge_u32_e32 vcc, v0, v2", Compared::mask, [](G g) { return u64{i64{g.a0()} - i64{g.b0()} >= 0}; }},
    {"v_cmp_ne_u64_e32 vcc, v[0:1], v[2:3]", Compared::mask, [](G g) { return u64{(g.a ^ g.b) != 0}; }},
    {"v_cmp_gt_u64_e32 vcc, v[0:1], v[2:3]", Compared::mask, [](G g) { return u64{g.b < g.a}; }},
    {"v_cmp_gt_i64_e32 vcc, v[0:1], v[2:3]", Compared::mask, [](G g) { return u64{static_cast<i64>(g.b) < static_cast<i64>(g.a)}; }},
    {"v_cmp_eq_u64_e32 vcc, v[0:1], v[2:3]", Compared::mask, [](G g) { return u64{(g.a ^ g.b) == 0}; }},
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_DEFINITIONS_HPP_
