// The scalar instructions that the kernels use, beside definitions of their own: see definitions.hpp.
#ifndef FALTUNG_TESTS_EMULATOR_SCALAR_DEFINITIONS_HPP_
#define FALTUNG_TESTS_EMULATOR_SCALAR_DEFINITIONS_HPP_

#include "tests/emulator/definitions.hpp"

namespace faltung::emulator {

// a in s[0:1], b in s[2:3], d what the result's s[10:11] held, m the condition code.
struct ScalarDefinition {
  const char* text;
  u64 (*value)(const Given&);           // null where there is no result
  bool (*scc)(const Given&) = nullptr;  // null where the condition code is kept
};
inline constexpr u64 kWord = 0x100000000;

inline const ScalarDefinition kScalarDefinitions[] = {
    {"s_mov_b32 s10, s0", [](G g) { return u64{g.a0()}; }},
    {"s_mov_b64 s[10:11], s[0:1]", [](G g) { return g.a; }},
    {"s_movk_i32 s10, 0x8001", [](G) { return u64{0xffff8001}; }},
    {"s_cselect_b32 s10, s0, s2", [](G g) { return u64{g.m ? g.a0() : g.b0()}; }},
    {"s_cselect_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return g.m ? g.a : g.b; }},
    {"s_not_b32 s10, s0", [](G g) { return kWord - 1 - g.a0(); }, [](G g) { return g.a0() != 0xffffffff; }},
    {"s_and_b32 s10, s0, s2", [](G g) { return u64{(g.a0() | g.b0()) ^ g.a0() ^ g.b0()}; },
     [](G g) { return ((g.a0() | g.b0()) ^ g.a0() ^ g.b0()) != 0; }},
    {"s_and_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return (g.a | g.b) ^ g.a ^ g.b; },
     [](G g) { return ((g.a | g.b) ^ g.a ^ g.b) != 0; }},
    {"s_or_b32 s10, s0, s2", [](G g) { return u64{~(~g.a0() & ~g.b0())}; },
     [](G g) { return g.a0() != 0 || g.b0() != 0; }},
    {"s_or_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return ~(~g.a & ~g.b); },
     [](G g) { return g.a != 0 || g.b != 0; }},
    {"s_xor_b32 s10, s0, s2", [](G g) { return u64{(g.a0() | g.b0()) - (g.a0() & g.b0())}; },
     [](G g) { return g.a0() != g.b0(); }},
    {"s_xor_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return (g.a | g.b) - (g.a & g.b); },
     [](G g) { return g.a != g.b; }},
    {"s_andn2_b32 s10, s0, s2", [](G g) { return u64{g.a0() - (g.a0() & g.b0())}; },
     [](G g) { return g.a0() != (g.a0() & g.b0()); }},
    {"s_andn2_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return g.a - (g.a & g.b); },
     [](G g) { return g.a != (g.a & g.b); }},
    {"s_orn2_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return ~(~g.a & g.b); },
     [](G g) { return ~(~g.a & g.b) != 0; }},
    {"s_lshl_b32 s10, s0, s2", [](G g) { return u64{g.a0()} * (u64{1} << g.b0() % 32) % kWord; },
     [](G g) { return u64{g.a0()} * (u64{1} << g.b0() % 32) % kWord != 0; }},
    {"s_lshl_b64 s[10:11], s[0:1], s2",
     [](G g) {
       u64 r = g.a;
       for (u32 i = 0; i < g.b0() % 64; ++i) r += r;
       return r;
     }},
    {"s_lshr_b32 s10, s0, s2", [](G g) { return g.a0() / (u64{1} << g.b0() % 32); },
     [](G g) { return g.a0() / (u64{1} << g.b0() % 32) != 0; }},
    {"s_lshr_b64 s[10:11], s[0:1], s2",
     [](G g) {
       u64 r = g.a;
       for (u32 i = 0; i < g.b0() % 64; ++i) r /= 2;
       return r;
     }},
    {"s_ashr_i32 s10, s0, s2",
     [](G g) {
       return u64{static_cast<u32>(
           static_cast<i64>(std::floor(std::ldexp(double(g.ai()), -static_cast<int>(g.b0() % 32)))))};
     }},
    {"s_ashr_i64 s[10:11], s[0:1], s2",
     [](G g) {
       u64 r = g.a;
       for (u32 i = 0; i < g.b0() % 64; ++i) r = r / 2 | (r & u64{1} << 63);
       return r;
     }},
    {"s_bfe_u32 s10, s0, 0x50003", [](G g) { return u64{g.a0()} / 8 % 32; },
     [](G g) { return g.a0() / 8 % 32 != 0; }},
    {"s_bfe_i32 s10, s0, 0x50003",
     [](G g) {
       const u64 f = g.a0() / 8 % 32;
       return f < 16 ? f : f + kWord - 32;
     },
     [](G g) { return g.a0() / 8 % 32 != 0; }},
    {"s_brev_b32 s10, s0",
     [](G g) {
       u64 r = 0;
       for (u32 v = g.a0(), i = 0; i < 32; ++i, v /= 2) r = r * 2 + v % 2;
       return r;
     }},
    {"s_add_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} + g.b0()) % kWord; },
     [](G g) { return u64{g.a0()} + g.b0() >= kWord; }},
    {"s_addc_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} + g.b0() + (g.m ? 1 : 0)) % kWord; },
     [](G g) { return u64{g.a0()} + g.b0() + (g.m ? 1 : 0) >= kWord; }},
    {"s_sub_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} + kWord - g.b0()) % kWord; },
     [](G g) { return g.b0() > g.a0(); }},
    {"s_subb_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} + 2 * kWord - g.b0() - (g.m ? 1 : 0)) % kWord; },
     [](G g) { return i64{g.a0()} - g.b0() - (g.m ? 1 : 0) < 0; }},
    {"s_add_i32 s10, s0, s2", [](G g) { return (u64{g.a0()} + g.b0()) % kWord; },
     [](G g) {
       const i64 s = i64{g.ai()} + g.bi();
       return s > 2147483647 || s < -2147483648;
     }},
    {"s_sub_i32 s10, s0, s2", [](G g) { return (u64{g.a0()} + kWord - g.b0()) % kWord; },
     [](G g) {
       const i64 s = i64{g.ai()} - g.bi();
       return s > 2147483647 || s < -2147483648;
     }},
    {"s_addk_i32 s10, 0xffff", [](G g) { return (g.d + kWord - 1) % kWord; }},
    {"s_mulk_i32 s10, 0xffff", [](G g) { return (kWord - g.d % kWord) % kWord; }},
    {"s_mul_i32 s10, s0, s2", [](G g) { return u64{g.a0()} * g.b0() % kWord; }},
    {"s_mul_hi_u32 s10, s0, s2", [](G g) { return u64{g.a0()} * g.b0() / kWord; }},
    {"s_mul_hi_i32 s10, s0, s2",
     [](G g) {
       return static_cast<u64>(static_cast<u32>(static_cast<wide_integer>(g.ai()) * g.bi() >> 32));
     }},
    {"s_add_nc_u64 s[10:11], s[0:1], s[2:3]",
     [](G g) { return static_cast<u64>(static_cast<wide_integer>(g.a) + g.b); }},
    {"s_mul_u64 s[10:11], s[0:1], s[2:3]",
     [](G g) { return static_cast<u64>(static_cast<wide_integer>(g.a) * g.b); }},
    {"s_lshl2_add_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} * 4 + g.b0()) % kWord; },
     [](G g) { return u64{g.a0()} * 4 + g.b0() >= kWord; }},
    {"s_abs_i32 s10, s0", [](G g) { return static_cast<u64>(std::llabs(g.ai())); },
     [](G g) { return g.ai() != 0; }},
    {"s_min_i32 s10, s0, s2", [](G g) { return u64{g.ai() < g.bi() ? g.a0() : g.b0()}; },
     [](G g) { return g.ai() < g.bi(); }},
    {"s_max_i32 s10, s0, s2", [](G g) { return u64{g.ai() > g.bi() ? g.a0() : g.b0()}; },
     [](G g) { return g.ai() > g.bi(); }},
    {"s_min_u32 s10, s0, s2", [](G g) { return u64{g.a0() < g.b0() ? g.a0() : g.b0()}; },
     [](G g) { return g.a0() < g.b0(); }},
    {"s_max_u32 s10, s0, s2", [](G g) { return u64{g.a0() > g.b0() ? g.a0() : g.b0()}; },
     [](G g) { return g.a0() > g.b0(); }},
    {"s_bitcmp0_b32 s0, 5", nullptr, [](G g) { return g.a0() / 32 % 2 == 0; }},
    {"s_bitcmp1_b32 s0, 5", nullptr, [](G g) { return g.a0() / 32 % 2 == 1; }},
    {"s_cmp_eq_u64 s[0:1], s[2:3]", nullptr, [](G g) { return (g.a ^ g.b) == 0; }},
    {"s_cmp_lg_u64 s[0:1], s[2:3]", nullptr, [](G g) { return (g.a ^ g.b) != 0; }},
    {"s_cmp_eq_u32 s0, s2", nullptr, [](G g) { return (g.a0() ^ g.b0()) == 0; }},
    {"s_cmp_lg_u32 s0, s2", nullptr, [](G g) { return (g.a0() ^ g.b0()) != 0; }},
    {"s_cmp_lt_u32 s0, s2", nullptr, [](G g) { return i64{g.a0()} - g.b0() < 0; }},
    {"s_cmp_le_u32 s0, s2", nullptr, [](G g) { return i64{g.a0()} - g.b0() <= 0; }},
    {"s_cmp_gt_u32 s0, s2", nullptr, [](G g) { return i64{g.a0()} - g.b0() > 0; }},
    {"s_cmp_ge_u32 s0, s2", nullptr, [](G g) { return i64{g.a0()} - g.b0() >= 0; }},
    {"s_cmp_eq_i32 s0, s2", nullptr, [](G g) { return (g.a0() ^ g.b0()) == 0; }},
    {"s_cmp_lg_i32 s0, s2", nullptr, [](G g) { return (g.a0() ^ g.b0()) != 0; }},
    {"s_cmp_lt_i32 s0, s2", nullptr, [](G g) { return i64{g.ai()} - g.bi() < 0; }},
    {"s_cmp_le_i32 s0, s2", nullptr, [](G g) { return i64{g.ai()} - g.bi() <= 0; }},
    {"s_cmp_gt_i32 s0, s2", nullptr, [](G g) { return i64{g.ai()} - g.bi() > 0; }},
    {"s_cmp_ge_i32 s0, s2", nullptr, [](G g) { return i64{g.ai()} - g.bi() >= 0; }},
    {"s_cmpk_eq_i32 s0, 0xffff", nullptr, [](G g) { return g.ai() == -1; }},
    {"s_cmpk_lg_i32 s0, 0xffff", nullptr, [](G g) { return g.ai() != -1; }},
    {"s_cmpk_gt_i32 s0, 0xffff", nullptr, [](G g) { return g.ai() > -1; }},
    {"s_cmpk_lt_i32 s0, 0xffff", nullptr, [](G g) { return g.ai() < -1; }},
    {"s_cmpk_gt_u32 s0, 0xffff", nullptr, [](G g) { return g.a0() > 65535; }},
    {"s_cmpk_lt_u32 s0, 0xffff", nullptr, [](G g) { return g.a0() < 65535; }},
    {"s_cmpk_eq_u32 s0, 0xffff", nullptr, [](G g) { return g.a0() == 65535; }},
    {"s_cmpk_lg_u32 s0, 0xffff", nullptr, [](G g) { return g.a0() != 65535; }},
    {"s_mul_f32 s10, s0, s2", [](G g) { return of_float(double(g.af()) * g.bf()); }},
    {"s_cvt_f32_u32 s10, s0", [](G g) { return of_float(double(g.a0())); }},
    {"v_s_rcp_f32 s10, s0", [](G g) { return of_float(1.0 / g.af()); }},
    {"s_cvt_u32_f32 s10, s0",
     [](G g) {
       return std::isnan(g.af())
                  ? 0
                  : u64{static_cast<u32>(std::clamp(std::trunc(double(g.af())), 0.0, 4294967295.0))};
     }},
};

// The rarer ones.
inline const ScalarDefinition kRareScalarDefinitions[] = {
    {"s_not_b64 s[10:11], s[0:1]", [](G g) { return g.a ^ ~u64{0}; }, [](G g) { return g.a != ~u64{0}; }},
    {"s_nand_b32 s10, s0, s2", [](G g) { return u64{~g.a0() | ~g.b0()}; },
     [](G g) { return (g.a0() & g.b0()) != 0xffffffff; }},
    {"s_nand_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return ~g.a | ~g.b; },
     [](G g) { return (g.a & g.b) != ~u64{0}; }},
    {"s_nor_b32 s10, s0, s2", [](G g) { return u64{~g.a0() & ~g.b0()}; },
     [](G g) { return (g.a0() | g.b0()) != 0xffffffff; }},
    {"s_nor_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return ~g.a & ~g.b; },
     [](G g) { return (g.a | g.b) != ~u64{0}; }},
    {"s_xnor_b32 s10, s0, s2", [](G g) { return u64{(g.a0() & g.b0()) | (~g.a0() & ~g.b0())}; },
     [](G g) { return (g.a0() ^ g.b0()) != 0xffffffff; }},
    {"s_xnor_b64 s[10:11], s[0:1], s[2:3]", [](G g) { return (g.a & g.b) | (~g.a & ~g.b); },
     [](G g) { return (g.a ^ g.b) != ~u64{0}; }},
    {"s_orn2_b32 s10, s0, s2", [](G g) { return u64{~(~g.a0() & g.b0())}; },
     [](G g) { return (~g.a0() & g.b0()) != 0xffffffff; }},
    {"s_bfm_b32 s10, s0, s2",
     [](G g) {
       u64 r = 0;
       for (u32 i = 0; i < g.a0() % 32; ++i) r |= u64{1} << (g.b0() % 32 + i);
       return r % kWord;
     }},
    {"s_bfe_u64 s[10:11], s[0:1], 0x50023", [](G g) { return g.a / (u64{1} << 35) % 32; },
     [](G g) { return g.a / (u64{1} << 35) % 32 != 0; }},
    {"s_pack_ll_b32_b16 s10, s0, s2", [](G g) { return g.a % 65536 + g.b % 65536 * 65536; }},
    {"s_pack_lh_b32_b16 s10, s0, s2", [](G g) { return g.a % 65536 + g.b0() / 65536 * u64{65536}; }},
    {"s_pack_hh_b32_b16 s10, s0, s2", [](G g) { return g.a0() / 65536 + g.b0() / 65536 * u64{65536}; }},
    {"s_sext_i32_i16 s10, s0",
     [](G g) {
       const u64 v = g.a % 65536;
       return v < 32768 ? v : v + kWord - 65536;
     }},
    {"s_sext_i32_i8 s10, s0",
     [](G g) {
       const u64 v = g.a % 256;
       return v < 128 ? v : v + kWord - 256;
     }},
    {"s_bitset0_b32 s10, s0",
     [](G g) {
       const u64 bit = u64{1} << g.a0() % 32;
       return g.d % kWord - (g.d / bit % 2) * bit;
     }},
    {"s_bitset1_b32 s10, s0",
     [](G g) {
       const u64 bit = u64{1} << g.a0() % 32;
       return g.d % kWord + (1 - g.d / bit % 2) * bit;
     }},
    {"s_ff1_i32_b32 s10, s0",
     [](G g) {
       for (u64 i = 0; i < 32; ++i)
         if (g.a0() >> i & 1) return i;
       return kWord - 1;
     }},
    {"s_ff1_i32_b64 s10, s[0:1]",
     [](G g) {
       for (u64 i = 0; i < 64; ++i)
         if (g.a >> i & 1) return i;
       return kWord - 1;
     }},
    {"s_flbit_i32_b32 s10, s0",
     [](G g) {
       for (u64 i = 0; i < 32; ++i)
         if (g.a0() >> (31 - i) & 1) return i;
       return kWord - 1;
     }},
    {"s_flbit_i32_b64 s10, s[0:1]",
     [](G g) {
       for (u64 i = 0; i < 64; ++i)
         if (g.a >> (63 - i) & 1) return i;
       return kWord - 1;
     }},
    {"s_bcnt1_i32_b32 s10, s0",
     [](G g) {
       u64 n = 0;
       for (u32 v = g.a0(); v != 0; v /= 2) n += v % 2;
       return n;
     },
     [](G g) { return g.a0() != 0; }},
    {"s_bcnt1_i32_b64 s10, s[0:1]",
     [](G g) {
       u64 n = 0;
       for (u64 v = g.a; v != 0; v /= 2) n += v % 2;
       return n;
     },
     [](G g) { return g.a != 0; }},
    {"s_sub_nc_u64 s[10:11], s[0:1], s[2:3]",
     [](G g) { return static_cast<u64>(static_cast<wide_integer>(g.a) - g.b); }},
    {"s_lshl1_add_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} * 2 + g.b0()) % kWord; },
     [](G g) { return u64{g.a0()} * 2 + g.b0() >= kWord; }},
    {"s_lshl3_add_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} * 8 + g.b0()) % kWord; },
     [](G g) { return u64{g.a0()} * 8 + g.b0() >= kWord; }},
    {"s_lshl4_add_u32 s10, s0, s2", [](G g) { return (u64{g.a0()} * 16 + g.b0()) % kWord; },
     [](G g) { return u64{g.a0()} * 16 + g.b0() >= kWord; }},
    {"s_absdiff_i32 s10, s0, s2",
     [](G g) { return static_cast<u64>(static_cast<u32>(std::llabs(i64{g.ai()} - g.bi()))); },
     [](G g) { return g.a0() != g.b0(); }},
    {"s_add_f32 s10, s0, s2", [](G g) { return of_float(double(g.af()) + g.bf()); }},
    {"s_sub_f32 s10, s0, s2", [](G g) { return of_float(double(g.af()) - g.bf()); }},
    {"s_fmac_f32 s10, s0, s2", [](G g) { return fused_multiply_add(g.af(), g.bf(), g.df()); }},
    {"s_fmamk_f32 s10, s0, 0x40490fdb, s2",
     [](G g) { return fused_multiply_add(g.af(), std::bit_cast<float>(0x40490fdbu), g.bf()); }},
    {"s_fmaak_f32 s10, s0, s2, 0x40490fdb",
     [](G g) { return fused_multiply_add(g.af(), g.bf(), std::bit_cast<float>(0x40490fdbu)); }},
    {"s_cvt_f32_i32 s10, s0", [](G g) { return of_float(double(g.ai())); }},
    {"s_cvt_i32_f32 s10, s0",
     [](G g) {
       return std::isnan(g.af()) ? 0
                                 : u64{static_cast<u32>(static_cast<i32>(
                                       std::clamp(std::trunc(double(g.af())), -2147483648.0, 2147483647.0)))};
     }},
    {"s_trunc_f32 s10, s0", [](G g) { return of_float(std::trunc(double(g.af()))); }},
    {"s_floor_f32 s10, s0", [](G g) { return of_float(std::floor(double(g.af()))); }},
    {"s_cmp_lt_f32 s0, s2", nullptr, [](G g) { return std::isless(g.af(), g.bf()); }},
    {"s_cmp_le_f32 s0, s2", nullptr, [](G g) { return std::islessequal(g.af(), g.bf()); }},
    {"s_cmp_gt_f32 s0, s2", nullptr, [](G g) { return std::isgreater(g.af(), g.bf()); }},
    {"s_cmp_ge_f32 s0, s2", nullptr, [](G g) { return std::isgreaterequal(g.af(), g.bf()); }},
    {"s_cmp_eq_f32 s0, s2", nullptr,
     [](G g) { return std::isgreaterequal(g.af(), g.bf()) && std::islessequal(g.af(), g.bf()); }},
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_SCALAR_DEFINITIONS_HPP_
