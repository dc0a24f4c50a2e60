// Vector arithmetic of integers and bits, and comparisons, a row an instruction.
#include <algorithm>
#include <map>

#include "tests/emulator/operations.hpp"

namespace faltung::emulator {
namespace {

template <class T>
T median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
u32 permuted(u64 bytes, u32 selector) {
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 which = selector >> (8 * i) & 0xff;
    const u32 byte = which < 8     ? bytes >> (8 * which) & 0xff
                     : which < 12  ? (bytes >> (16 * (which - 8) + 15) & 1) * 0xff
                     : which == 12 ? 0
                                   : 0xff;
    result |= byte << (8 * i);
  }
  return result;
}
constexpr VectorOperation kVectorOperations[] = {
    // moves and bits
    bits("v_mov_b32", [](u32 a) { return a; }),
    bits("v_mov_b64", [](u64 a) { return a; }),
    bits("v_accvgpr_read_b32", [](u32 a) { return a; }),
    bits("v_accvgpr_write_b32", [](u32 a) { return a; }),
    bits("v_accvgpr_mov_b32", [](u32 a) { return a; }),
    bits("v_pk_mov_b32",
         [](Pair<u32> a, Pair<u32> b) {
           return Pair<u32>{a.low, b.high};
         }),
    bits("v_not_b32", [](u32 a) { return ~a; }),
    bits("v_and_b32", [](u32 a, u32 b) { return a & b; }),
    bits("v_or_b32", [](u32 a, u32 b) { return a | b; }),
    bits("v_xor_b32", [](u32 a, u32 b) { return a ^ b; }),
    bits("v_xnor_b32", [](u32 a, u32 b) { return ~(a ^ b); }),
    bits("v_xor3_b32", [](u32 a, u32 b, u32 c) { return a ^ b ^ c; }),
    bits("v_or3_b32", [](u32 a, u32 b, u32 c) { return a | b | c; }),
    bits("v_and_or_b32", [](u32 a, u32 b, u32 c) { return (a & b) | c; }),
    bits("v_lshl_or_b32", [](u32 a, u32 b, u32 c) { return a << (b & 31) | c; }),
    bits("v_bfi_b32", [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }),
    bits("v_cndmask_b32", [](u32 a, u32 b, bool c) { return c ? b : a; }),
    bits("v_cndmask_b16", [](u16 a, u16 b, bool c) { return c ? b : a; }),
    bits("v_lshlrev_b32", [](u32 a, u32 b) { return b << (a & 31); }),
    bits("v_lshrrev_b32", [](u32 a, u32 b) { return b >> (a & 31); }),
    bits("v_ashrrev_i32", [](u32 a, i32 b) { return static_cast<u32>(b >> (a & 31)); }),
    bits("v_lshlrev_b64", [](u32 a, u64 b) { return b << (a & 63); }),
    bits("v_lshrrev_b64", [](u32 a, u64 b) { return b >> (a & 63); }),
    bits("v_ashrrev_i64", [](u32 a, i64 b) { return b >> (a & 63); }),
    bits("v_lshlrev_b16", [](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); }),
    bits("v_lshrrev_b16", [](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); }),
    bits("v_ashrrev_i16", [](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); }),
    bits("v_bfe_u32", [](u32 a, u32 b, u32 c) { return a >> (b & 31) & ((1u << (c & 31)) - 1); }),
    bits("v_bfe_i32",
         [](i32 a, u32 b, u32 c) {
           const u32 width = c & 31;
           return width == 0
                      ? 0
                      : static_cast<i32>(static_cast<u32>(a >> (b & 31)) << (32 - width)) >> (32 - width);
         }),
    bits("v_bfm_b32", [](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }),
    bits("v_alignbit_b32",
         [](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); }),
    bits("v_alignbyte_b32",
         [](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (8 * (c & 3))); }),
    bits("v_perm_b32", [](u32 a, u32 b, u32 c) { return permuted(u64{a} << 32 | b, c); }),
    bits("v_pack_b32_f16", [](Half a, Half b) { return pair_bits(a, b); }),
    bits("v_bfrev_b32",
         [](u32 a) {
           u32 r = 0;
           for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
           return r;
         }),
    op("v_ffbl_b32", [](u32 a) { return a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a)); }),
    op("v_ffbh_u32", [](u32 a) { return leading_zeros(a, ~0u); }),
    op("v_bcnt_u32_b32", [](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; }),
    // integers
    sum("v_add_u32", [](u32 a, u32 b) { return a + b; }),
    sum("v_sub_u32", [](u32 a, u32 b) { return a - b; }),
    sum("v_subrev_u32", [](u32 a, u32 b) { return b - a; }),
    sum("v_add_i32", [](u32 a, u32 b) { return a + b; }),
    sum("v_sub_i32", [](u32 a, u32 b) { return a - b; }),
    sum("v_add_co_u32",
        [](u32 a, u32 b) {
          return WithCarry<u32>{a + b, a + b < a};
        }),
    sum("v_sub_co_u32",
        [](u32 a, u32 b) {
          return WithCarry<u32>{a - b, a < b};
        }),
    sum("v_subrev_co_u32",
        [](u32 a, u32 b) {
          return WithCarry<u32>{b - a, b < a};
        }),
    sum("v_addc_co_u32",
        [](u32 a, u32 b, bool c) {
          return WithCarry<u32>{a + b + c, (u64{a} + b + c) >> 32 != 0};
        }),
    sum("v_subb_co_u32",
        [](u32 a, u32 b, bool c) {
          return WithCarry<u32>{a - b - c, a < u64{b} + c};
        }),
    sum("v_subbrev_co_u32",
        [](u32 a, u32 b, bool c) {
          return WithCarry<u32>{b - a - c, b < u64{a} + c};
        }),
    sum("v_add3_u32", [](u32 a, u32 b, u32 c) { return a + b + c; }),
    sum("v_lshl_add_u32", [](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }),
    sum("v_lshl_add_u64", [](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }),
    sum("v_add_lshl_u32", [](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }),
    sum("v_xad_u32", [](u32 a, u32 b, u32 c) { return (a ^ b) + c; }),
    sum("v_mul_lo_u32", [](u32 a, u32 b) { return a * b; }),
    sum("v_mul_lo_i32", [](u32 a, u32 b) { return a * b; }),
    op("v_mul_hi_u32", [](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }),
    op("v_mul_hi_i32", [](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }),
    sum("v_mul_u32_u24", [](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); }),
    sum("v_mul_i32_i24", [](i32 a, i32 b) { return static_cast<u32>((a << 8 >> 8) * i64{b << 8 >> 8}); }),
    op("v_mul_hi_u32_u24",
       [](u32 a, u32 b) { return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) >> 32); }),
    sum("v_mad_u32_u24", [](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; }),
    sum("v_mad_i32_i24",
        [](i32 a, i32 b, u32 c) { return static_cast<u32>((a << 8 >> 8) * i64{b << 8 >> 8}) + c; }),
    sum("v_mad_u64_u32",
        [](u32 a, u32 b, u64 c) {
          return WithCarry<u64>{u64{a} * b + c, u64{a} * b + c < c};
        }),
    sum("v_mad_i64_i32",
        [](i32 a, i32 b, i64 c) {
          i64 sum = 0;
          const bool over = __builtin_add_overflow(i64{a} * b, c, &sum);
          return WithCarry<i64>{sum, over};
        }),
    sum("v_mad_u32_u16", [](u16 a, u16 b, u32 c) { return u32{a} * b + c; }),
    sum("v_mad_i32_i16", [](i16 a, i16 b, i32 c) { return a * b + c; }),
    op("v_min_u32", [](u32 a, u32 b) { return std::min(a, b); }),
    op("v_max_u32", [](u32 a, u32 b) { return std::max(a, b); }),
    op("v_min_i32", [](i32 a, i32 b) { return std::min(a, b); }),
    op("v_max_i32", [](i32 a, i32 b) { return std::max(a, b); }),
    op("v_min3_i32",
       [](i32 a, i32 b, i32 c) {
         return std::min({a, b, c});
       }),
    op("v_max3_i32",
       [](i32 a, i32 b, i32 c) {
         return std::max({a, b, c});
       }),
    op("v_min3_u32",
       [](u32 a, u32 b, u32 c) {
         return std::min({a, b, c});
       }),
    op("v_max3_u32",
       [](u32 a, u32 b, u32 c) {
         return std::max({a, b, c});
       }),
    op("v_med3_i32", [](i32 a, i32 b, i32 c) { return median(a, b, c); }),
    op("v_med3_u32", [](u32 a, u32 b, u32 c) { return median(a, b, c); }),
    op("v_minmax_u32", [](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); }),
    op("v_maxmin_u32", [](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); }),
    op("v_minmax_i32", [](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), c); }),
    op("v_maxmin_i32", [](i32 a, i32 b, i32 c) { return std::min(std::max(a, b), c); }),
    op("v_sad_u32", [](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; }),
    sum("v_add_u16", [](u16 a, u16 b) { return static_cast<u16>(a + b); }),
    sum("v_sub_u16", [](u16 a, u16 b) { return static_cast<u16>(a - b); }),
    sum("v_subrev_u16", [](u16 a, u16 b) { return static_cast<u16>(b - a); }),
    sum("v_mul_lo_u16", [](u16 a, u16 b) { return static_cast<u16>(a * b); }),
    sum("v_mad_u16", [](u16 a, u16 b, u16 c) { return static_cast<u16>(a * b + c); }),
    sum("v_mad_legacy_u16", [](u16 a, u16 b, u16 c) { return static_cast<u16>(a * b + c); }),
    op("v_min_u16", [](u16 a, u16 b) { return std::min(a, b); }),
    op("v_max_u16", [](u16 a, u16 b) { return std::max(a, b); }),
    op("v_min_i16", [](i16 a, i16 b) { return std::min(a, b); }),
    op("v_max_i16", [](i16 a, i16 b) { return std::max(a, b); }),
};

// What comparisons compare: f16 has none of its own.
template <class T>
auto number(T value) {
  if constexpr (std::is_same_v<T, Half>) {
    return float(value);
  } else {
    return value;
  }
}
template <class T>
bool ordered(T a, T b) {
  return number(a) == number(a) && number(b) == number(b);
}
// Every condition for every type.
template <class T>
void add_comparisons(std::map<std::string, VectorOperation>& all, const std::string& type) {
  const auto add = [&](const char* condition, VectorOperation operation) {
    all.emplace(std::string("v_cmp_") + condition + "_" + type, operation);
  };
  add("lt", op("", [](T a, T b) { return number(a) < number(b); }));
  add("le", op("", [](T a, T b) { return number(a) <= number(b); }));
  add("eq", op("", [](T a, T b) { return number(a) == number(b); }));
  add("gt", op("", [](T a, T b) { return number(a) > number(b); }));
  add("ge", op("", [](T a, T b) { return number(a) >= number(b); }));
  add("ne", op("", [](T a, T b) { return number(a) != number(b); }));
  add("neq", op("", [](T a, T b) { return !(number(a) == number(b)); }));
  add("lg", op("", [](T a, T b) { return number(a) < number(b) || number(a) > number(b); }));
  add("nlg", op("", [](T a, T b) { return !(number(a) < number(b) || number(a) > number(b)); }));
  add("nlt", op("", [](T a, T b) { return !(number(a) < number(b)); }));
  add("nle", op("", [](T a, T b) { return !(number(a) <= number(b)); }));
  add("ngt", op("", [](T a, T b) { return !(number(a) > number(b)); }));
  add("nge", op("", [](T a, T b) { return !(number(a) >= number(b)); }));
  add("o", op("", [](T a, T b) { return ordered(a, b); }));
  add("u", op("", [](T a, T b) { return !ordered(a, b); }));
}

const std::map<std::string, VectorOperation>& table() {
  static const std::map<std::string, VectorOperation> all = [] {
    std::map<std::string, VectorOperation> rows;
    for (const VectorOperation& operation : kVectorOperations) rows.emplace(operation.name, operation);
    for (const VectorOperation& operation : float_operations()) rows.emplace(operation.name, operation);
    add_comparisons<float>(rows, "f32");
    add_comparisons<Half>(rows, "f16");
    add_comparisons<double>(rows, "f64");
    add_comparisons<i32>(rows, "i32");
    add_comparisons<u32>(rows, "u32");
    add_comparisons<i16>(rows, "i16");
    add_comparisons<u16>(rows, "u16");
    add_comparisons<i64>(rows, "i64");
    add_comparisons<u64>(rows, "u64");
    return rows;
  }();
  return all;
}

}  // namespace

// v_cmpx does what v_cmp does, to the mask of lanes; v_fma_mixhi writes the other half.
const VectorOperation* find_vector_operation(const std::string& given) {
  std::string name = given;
  if (name.starts_with("v_cmpx_")) name.erase(5, 1);
  if (name == "v_fma_mixhi_f16") name = "v_fma_mixlo_f16";
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace faltung::emulator
