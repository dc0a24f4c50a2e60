// Scalar arithmetic, a row an instruction.
#include <algorithm>
#include <map>

#include "tests/emulator/operations.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

enum class Scc : u8 { keeps, writes };

template <class R>
constexpr Form result_form() {
  if constexpr (std::is_void_v<R>) {
    return Form::none;
  } else {
    return Registers<R>::type.form;
  }
}

template <class F, class R, class... A, std::size_t... I>
void run_scalar(ScalarState& state, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<R>) {
    F{}(state.scc, Registers<A>::of(state.in[I])...);
  } else {
    state.out = Registers<R>::bits(F{}(state.scc, Registers<A>::of(state.in[I])...));
  }
}
template <class F, class R, class... A>
constexpr ScalarOperation scalar_operation(const char* name, Taint taint, Scc scc, R (*)(bool&, A...)) {
  return {name,
          taint,
          scc == Scc::writes,
          result_form<R>(),
          sizeof...(A),
          {Registers<A>::type...},
          [](ScalarState& state) { run_scalar<F, R, A...>(state, std::index_sequence_for<A...>()); }};
}
template <class F>
constexpr ScalarOperation sets(const char* name, F f) {
  return scalar_operation<F>(name, Taint::whole, Scc::writes, +f);
}
template <class F>
constexpr ScalarOperation keeps(const char* name, F f) {
  return scalar_operation<F>(name, Taint::whole, Scc::keeps, +f);
}
template <class F>
constexpr ScalarOperation bits_set(const char* name, F f) {
  return scalar_operation<F>(name, Taint::bits, Scc::writes, +f);
}
template <class F>
constexpr ScalarOperation bits_keep(const char* name, F f) {
  return scalar_operation<F>(name, Taint::bits, Scc::keeps, +f);
}

template <class T>
T nonzero(bool& scc, T value) {
  scc = value != 0;
  return value;
}
template <class T>
u64 field(T value, u32 selector, int size) {
  const u32 offset = selector & static_cast<u32>(size - 1), width = selector >> 16 & 127;
  if (width == 0) return 0;
  const T shifted = static_cast<T>(value >> offset);
  if (width >= static_cast<u32>(size)) return static_cast<u64>(shifted);
  const int left = size - static_cast<int>(width);
  using U = std::make_unsigned_t<T>;
  return static_cast<u64>(static_cast<T>(static_cast<U>(shifted) << left) >> left);
}
i32 signed16(u32 value) { return static_cast<i16>(value); }
u32 saturating(double v) {
  return std::isnan(v) || v <= 0 ? 0 : v >= 4294967295.0 ? ~0u : static_cast<u32>(v);
}
i32 saturating_signed(double v) {
  return std::isnan(v)        ? 0
         : v <= -2147483648.0 ? INT32_MIN
         : v >= 2147483647.0  ? INT32_MAX
                              : static_cast<i32>(v);
}
template <int N>
u32 shifted_sum(bool& scc, u32 a, u32 b) {
  const u64 sum = (u64{a} << N) + b;
  scc = sum >> 32 != 0;
  return static_cast<u32>(sum);
}

constexpr ScalarOperation kScalarOperations[] = {
    bits_keep("s_mov_b32", [](bool&, u32 a) { return a; }),
    bits_keep("s_mov_b64", [](bool&, u64 a) { return a; }),
    bits_keep("s_movk_i32", [](bool&, u32 a) { return signed16(a); }),
    bits_keep("s_cmov_b32", [](bool& scc, u32 a, Old<u32> d) { return scc ? a : d.value; }),
    bits_keep("s_cselect_b32", [](bool& scc, u32 a, u32 b) { return scc ? a : b; }),
    bits_keep("s_cselect_b64", [](bool& scc, u64 a, u64 b) { return scc ? a : b; }),
    bits_set("s_not_b32", [](bool& scc, u32 a) { return nonzero(scc, ~a); }),
    bits_set("s_not_b64", [](bool& scc, u64 a) { return nonzero(scc, ~a); }),
    bits_set("s_and_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a & b); }),
    bits_set("s_and_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, a & b); }),
    bits_set("s_or_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a | b); }),
    bits_set("s_or_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, a | b); }),
    bits_set("s_xor_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a ^ b); }),
    bits_set("s_xor_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, a ^ b); }),
    bits_set("s_andn2_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a & ~b); }),
    bits_set("s_andn2_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, a & ~b); }),
    bits_set("s_orn2_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a | ~b); }),
    bits_set("s_orn2_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, a | ~b); }),
    bits_set("s_nand_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, ~(a & b)); }),
    bits_set("s_nand_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, ~(a & b)); }),
    bits_set("s_nor_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, ~(a | b)); }),
    bits_set("s_nor_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, ~(a | b)); }),
    bits_set("s_xnor_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, ~(a ^ b)); }),
    bits_set("s_xnor_b64", [](bool& scc, u64 a, u64 b) { return nonzero(scc, ~(a ^ b)); }),
    bits_set("s_lshl_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a << (b & 31)); }),
    bits_set("s_lshl_b64", [](bool& scc, u64 a, u32 b) { return nonzero(scc, a << (b & 63)); }),
    bits_set("s_lshr_b32", [](bool& scc, u32 a, u32 b) { return nonzero(scc, a >> (b & 31)); }),
    bits_set("s_lshr_b64", [](bool& scc, u64 a, u32 b) { return nonzero(scc, a >> (b & 63)); }),
    bits_set("s_ashr_i32", [](bool& scc, i32 a, u32 b) { return nonzero(scc, a >> (b & 31)); }),
    bits_set("s_ashr_i64", [](bool& scc, i64 a, u32 b) { return nonzero(scc, a >> (b & 63)); }),
    bits_set("s_bfe_u32",
             [](bool& scc, u32 a, u32 b) { return nonzero(scc, static_cast<u32>(field(a, b, 32))); }),
    bits_set("s_bfe_i32",
             [](bool& scc, i32 a, u32 b) { return nonzero(scc, static_cast<u32>(field(a, b, 32))); }),
    bits_set("s_bfe_u64", [](bool& scc, u64 a, u32 b) { return nonzero(scc, field(a, b, 64)); }),
    bits_set("s_bfe_i64", [](bool& scc, i64 a, u32 b) { return nonzero(scc, field(a, b, 64)); }),
    bits_keep("s_bfm_b32", [](bool&, u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }),
    bits_keep("s_pack_ll_b32_b16", [](bool&, u32 a, u32 b) { return (a & 0xffff) | b << 16; }),
    bits_keep("s_pack_lh_b32_b16", [](bool&, u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }),
    bits_keep("s_pack_hh_b32_b16", [](bool&, u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }),
    bits_keep("s_pack_hl_b32_b16", [](bool&, u32 a, u32 b) { return a >> 16 | b << 16; }),
    bits_keep("s_sext_i32_i16", [](bool&, u32 a) { return signed16(a); }),
    bits_keep("s_sext_i32_i8", [](bool&, u32 a) { return i32{static_cast<i8>(a)}; }),
    bits_keep("s_bitset0_b32", [](bool&, u32 a, Old<u32> d) { return d.value & ~(1u << (a & 31)); }),
    bits_keep("s_bitset1_b32", [](bool&, u32 a, Old<u32> d) { return d.value | 1u << (a & 31); }),
    bits_keep("s_brev_b32",
              [](bool&, u32 a) {
                u32 r = 0;
                for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
                return r;
              }),
    keeps("s_ff1_i32_b32", [](bool&, u32 a) { return a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a)); }),
    keeps("s_ff1_i32_b64", [](bool&, u64 a) { return a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a)); }),
    keeps("s_flbit_i32_b32",
          [](bool&, u32 a) { return a == 0 ? ~0u : static_cast<u32>(std::countl_zero(a)); }),
    keeps("s_flbit_i32_b64",
          [](bool&, u64 a) { return a == 0 ? ~0u : static_cast<u32>(std::countl_zero(a)); }),
    sets("s_bcnt1_i32_b32",
         [](bool& scc, u32 a) { return nonzero(scc, static_cast<u32>(std::popcount(a))); }),
    sets("s_bcnt1_i32_b64",
         [](bool& scc, u64 a) { return nonzero(scc, static_cast<u32>(std::popcount(a))); }),
    sets("s_add_u32",
         [](bool& scc, u32 a, u32 b) {
           scc = a + b < a;
           return a + b;
         }),
    sets("s_sub_u32",
         [](bool& scc, u32 a, u32 b) {
           scc = a < b;
           return a - b;
         }),
    sets("s_addc_u32",
         [](bool& scc, u32 a, u32 b) {
           const u64 sum = u64{a} + b + scc;
           scc = sum >> 32 != 0;
           return static_cast<u32>(sum);
         }),
    sets("s_subb_u32",
         [](bool& scc, u32 a, u32 b) {
           const bool borrow = scc;
           scc = a < u64{b} + borrow;
           return a - b - borrow;
         }),
    sets("s_add_i32",
         [](bool& scc, i32 a, i32 b) {
           i32 r = 0;
           scc = __builtin_add_overflow(a, b, &r);
           return r;
         }),
    sets("s_sub_i32",
         [](bool& scc, i32 a, i32 b) {
           i32 r = 0;
           scc = __builtin_sub_overflow(a, b, &r);
           return r;
         }),
    sets("s_addk_i32",
         [](bool& scc, u32 a, Old<i32> d) {
           i32 r = 0;
           scc = __builtin_add_overflow(d.value, signed16(a), &r);
           return r;
         }),
    keeps("s_mulk_i32", [](bool&, u32 a, Old<u32> d) { return d.value * static_cast<u32>(signed16(a)); }),
    keeps("s_add_u64", [](bool&, u64 a, u64 b) { return a + b; }),
    keeps("s_sub_u64", [](bool&, u64 a, u64 b) { return a - b; }),
    keeps("s_mul_u64", [](bool&, u64 a, u64 b) { return a * b; }),
    keeps("s_mul_i32", [](bool&, u32 a, u32 b) { return a * b; }),
    keeps("s_mul_hi_u32", [](bool&, u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }),
    keeps("s_mul_hi_i32", [](bool&, i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }),
    sets("s_lshl1_add_u32", [](bool& scc, u32 a, u32 b) { return shifted_sum<1>(scc, a, b); }),
    sets("s_lshl2_add_u32", [](bool& scc, u32 a, u32 b) { return shifted_sum<2>(scc, a, b); }),
    sets("s_lshl3_add_u32", [](bool& scc, u32 a, u32 b) { return shifted_sum<3>(scc, a, b); }),
    sets("s_lshl4_add_u32", [](bool& scc, u32 a, u32 b) { return shifted_sum<4>(scc, a, b); }),
    sets("s_abs_i32",
         [](bool& scc, i32 a) {
           return nonzero(scc, a < 0 ? static_cast<u32>(-i64{a}) : static_cast<u32>(a));
         }),
    sets("s_absdiff_i32",
         [](bool& scc, i32 a, i32 b) {
           const i64 d = i64{a} - b;
           return nonzero(scc, static_cast<u32>(d < 0 ? -d : d));
         }),
    sets("s_min_i32",
         [](bool& scc, i32 a, i32 b) {
           scc = a < b;
           return std::min(a, b);
         }),
    sets("s_min_u32",
         [](bool& scc, u32 a, u32 b) {
           scc = a < b;
           return std::min(a, b);
         }),
    sets("s_max_i32",
         [](bool& scc, i32 a, i32 b) {
           scc = a > b;
           return std::max(a, b);
         }),
    sets("s_max_u32",
         [](bool& scc, u32 a, u32 b) {
           scc = a > b;
           return std::max(a, b);
         }),
    sets("s_bitcmp0_b32", [](bool& scc, u32 a, u32 b) { scc = (a >> (b & 31) & 1) == 0; }),
    sets("s_bitcmp1_b32", [](bool& scc, u32 a, u32 b) { scc = (a >> (b & 31) & 1) == 1; }),
    sets("s_cmp_eq_u64", [](bool& scc, u64 a, u64 b) { scc = a == b; }),
    sets("s_cmp_lg_u64", [](bool& scc, u64 a, u64 b) { scc = a != b; }),
    // chips from RDNA 3.5 on have floats among their scalars
    keeps("s_add_f32", [](bool&, float a, float b) { return a + b; }),
    keeps("s_sub_f32", [](bool&, float a, float b) { return a - b; }),
    keeps("s_mul_f32", [](bool&, float a, float b) { return a * b; }),
    keeps("s_fmac_f32", [](bool&, float a, float b, Old<float> d) { return std::fma(a, b, d.value); }),
    keeps("s_fmamk_f32", [](bool&, float a, float k, float c) { return std::fma(a, k, c); }),
    keeps("s_fmaak_f32", [](bool&, float a, float b, float k) { return std::fma(a, b, k); }),
    keeps("s_cvt_f32_i32", [](bool&, i32 a) { return static_cast<float>(a); }),
    keeps("s_cvt_f32_u32", [](bool&, u32 a) { return static_cast<float>(a); }),
    keeps("s_cvt_u32_f32", [](bool&, float a) { return saturating(a); }),
    keeps("s_cvt_i32_f32", [](bool&, float a) { return saturating_signed(a); }),
    keeps("v_s_rcp_f32", [](bool&, float a) { return 1.0f / a; }),
    keeps("v_s_sqrt_f32", [](bool&, float a) { return std::sqrt(a); }),
    keeps("v_s_rsq_f32",
          [](bool&, float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }),
    keeps("v_s_exp_f32",
          [](bool&, float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }),
    keeps("v_s_log_f32",
          [](bool&, float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }),
    keeps("s_trunc_f32", [](bool&, float a) { return std::trunc(a); }),
    keeps("s_floor_f32", [](bool&, float a) { return std::floor(a); }),
    sets("s_cmp_lt_f32", [](bool& scc, float a, float b) { scc = a < b; }),
    sets("s_cmp_ge_f32", [](bool& scc, float a, float b) { scc = a >= b; }),
    sets("s_cmp_gt_f32", [](bool& scc, float a, float b) { scc = a > b; }),
    sets("s_cmp_le_f32", [](bool& scc, float a, float b) { scc = a <= b; }),
    sets("s_cmp_eq_f32", [](bool& scc, float a, float b) { scc = a == b; }),
};

// s_cmp and s_cmpk: every condition, of signed and unsigned numbers. cmpk's second operand has 16 bits.
void add_comparisons(std::map<std::string, ScalarOperation>& all) {
  const auto add = [&](const std::string& condition, ScalarOperation of_signed, ScalarOperation of_unsigned,
                       ScalarOperation k_signed, ScalarOperation k_unsigned) {
    all.emplace("s_cmp_" + condition + "_i32", of_signed),
        all.emplace("s_cmp_" + condition + "_u32", of_unsigned);
    all.emplace("s_cmpk_" + condition + "_i32", k_signed),
        all.emplace("s_cmpk_" + condition + "_u32", k_unsigned);
  };
#define FALTUNG_EMULATOR_CONDITION(name, sign)                             \
  add(name, sets("", [](bool& scc, i32 a, i32 b) { scc = a sign b; }),     \
      sets("", [](bool& scc, u32 a, u32 b) { scc = a sign b; }),           \
      sets("", [](bool& scc, i32 a, u32 b) { scc = a sign signed16(b); }), \
      sets("", [](bool& scc, u32 a, u32 b) { scc = a sign(b & 0xffff); }));
  FALTUNG_EMULATOR_CONDITION("eq", ==)
  FALTUNG_EMULATOR_CONDITION("lg", !=)
  FALTUNG_EMULATOR_CONDITION("lt", <)
  FALTUNG_EMULATOR_CONDITION("le", <=)
  FALTUNG_EMULATOR_CONDITION("gt", >)
  FALTUNG_EMULATOR_CONDITION("ge", >=)
#undef FALTUNG_EMULATOR_CONDITION
}

}  // namespace

const ScalarOperation* find_scalar_operation(const std::string& name) {
  static const std::map<std::string, ScalarOperation> all = [] {
    std::map<std::string, ScalarOperation> rows;
    for (const ScalarOperation& operation : kScalarOperations) rows.emplace(operation.name, operation);
    add_comparisons(rows);
    return rows;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

void execute_scalar(Wave& wave, const Instruction& i) {
  const ScalarOperation& operation = *i.scalar;
  ScalarState state, ones;
  state.scc = wave.scc;
  std::size_t next = operation.result == Form::none ? 0 : 1;
  u64 unknown[3] = {};
  bool any = false;
  for (int s = 0; s < operation.sources; ++s) {
    const OperandType& type = operation.source[s];
    const Operand& operand = type.is_old ? i.operands.at(0) : i.operands.at(next++);
    state.in[s] = wave.read_scalar(operand, type.form, type.number, i, &unknown[s]);
    if (type.number == Number::f32) {
      if (operand.absolute) state.in[s] &= 0x7fffffff;
      if (operand.negated) state.in[s] ^= 0x80000000;
    }
    any = any || unknown[s] != 0;
  }
  u64 unknown_out = any ? ~u64{0} : 0;
  if (any && operation.taint == Taint::bits) {
    ones = state;
    for (int s = 0; s < operation.sources; ++s) ones.in[s] |= unknown[s], state.in[s] &= ~unknown[s];
    operation.run(ones);
  }
  operation.run(state);
  if (any && operation.taint == Taint::bits) unknown_out = ones.out ^ state.out;
  if (operation.writes_scc)
    wave.scc = state.scc, wave.scc_undefined = any && (unknown_out != 0 || operation.result == Form::none);
  if (operation.result != Form::none)
    wave.write_scalar(i.operands.at(0), operation.result, state.out, i, unknown_out);
  wave.block.counts.scalar += 1;
}

}  // namespace faltung::emulator
