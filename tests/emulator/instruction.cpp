#include "tests/emulator/instruction.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "faltung/faltung.hpp"
#include "tests/emulator/operations.hpp"

namespace faltung::emulator {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& what) {
  throw Error(Status::unsupported, "the emulator cannot read '" + what + "' in '" + text + "'");
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end - begin + 1));
}

// Parts between separators that are in no brackets.
std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> all;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == separator && depth == 0) {
      if (const std::string own = trimmed(part); !own.empty()) all.push_back(own);
      part.clear();
    } else {
      part += c;
    }
  }
  if (const std::string own = trimmed(part); !own.empty()) all.push_back(own);
  return all;
}

std::optional<i64> integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  u64 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return negative ? -static_cast<i64>(value) : static_cast<i64>(value);
}

struct Named {
  const char* name;
  int index, count;
};
constexpr Named kNamed[] = {{"vcc", kVcc, 2},   {"vcc_lo", kVcc, 1},   {"vcc_hi", kVcc + 1, 1},
                            {"exec", kExec, 2}, {"exec_lo", kExec, 1}, {"exec_hi", kExec + 1, 1},
                            {"m0", kM0, 1},     {"null", kNull, 1}};
struct Family {
  const char* prefix;
  Operand::Kind kind;
  int first;
};
constexpr Family kFamilies[] = {{"ttmp", Operand::Kind::scalar, kTrap},
                                {"v", Operand::Kind::vector, 0},
                                {"a", Operand::Kind::vector, kAccumulators},
                                {"s", Operand::Kind::scalar, 0}};

bool read_register(const std::string& text, Operand& operand) {
  for (const Named& named : kNamed) {
    if (text != named.name) continue;
    operand.kind = Operand::Kind::scalar, operand.index = named.index, operand.count = named.count;
    return true;
  }
  if (text == "scc" || text == "src_scc") return operand.kind = Operand::Kind::scc, true;
  if (text == "off") return operand.kind = Operand::Kind::none, true;
  for (const Family& family : kFamilies) {
    if (!text.starts_with(family.prefix)) continue;
    std::string numbers = text.substr(std::string_view(family.prefix).size());
    std::optional<i64> first, last;
    if (numbers.starts_with('[') && numbers.ends_with(']')) {
      const std::size_t colon = numbers.find(':');
      first = integer(numbers.substr(1, std::min(colon, numbers.size() - 1) - 1));
      last =
          colon == std::string::npos ? first : integer(numbers.substr(colon + 1, numbers.size() - colon - 2));
    } else {
      first = last = integer(numbers);
    }
    if (!first || !last) continue;
    operand.kind = family.kind;
    operand.index = family.first + static_cast<int>(*first);
    operand.count = static_cast<int>(*last - *first) + 1;
    return true;
  }
  return false;
}

Operand read_operand(std::string text, const std::string& whole) {
  const std::string given = text;
  Operand operand;
  if (const auto value = integer(text)) {
    operand.kind = Operand::Kind::literal, operand.integer = static_cast<u64>(*value);
    return operand;
  }
  const auto unwrap = [&](const char* open, const char* close) {
    const std::string_view o(open), c(close);
    if (text.size() < o.size() + c.size() || !text.starts_with(o) || !text.ends_with(c)) return false;
    text = text.substr(o.size(), text.size() - o.size() - c.size());
    return true;
  };
  char* end = nullptr;
  const double real = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0' && text.find('.') != std::string::npos) {
    operand.kind = Operand::Kind::literal, operand.real = real;
    return operand;
  }
  if (unwrap("-", "") || unwrap("neg(", ")")) operand.negated = true;
  if (unwrap("|", "|") || unwrap("abs(", ")")) operand.absolute = true;
  if (unwrap("sext(", ")")) operand.sign_extended = true;
  if (const auto value = integer(text)) {
    operand.kind = Operand::Kind::literal, operand.integer = static_cast<u64>(*value);
  } else if (!read_register(text, operand)) {
    refuse(whole, given);
  }
  return operand;
}

void read_modifier(const std::string& text, Instruction& instruction) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::vector<i64>& values = instruction.modifiers[name];
  if (colon == std::string::npos) return;
  std::string rest = text.substr(colon + 1);
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  for (const std::string& part : parts(rest, ',')) {
    if (const auto value = integer(part)) {
      values.push_back(*value);
    } else {
      instruction.words[name] = part;
    }
  }
}

// Instructions whose operands are words of their own: only control reads them, as text.
constexpr const char* kOwnWords[] = {"s_waitcnt",
                                     "s_delay_alu",
                                     "s_sendmsg",
                                     "s_setreg",
                                     "s_getreg",
                                     "s_wait_",
                                     "s_nop",
                                     "s_clause",
                                     "s_sleep",
                                     "s_inst_prefetch",
                                     "s_set_inst_prefetch",
                                     "s_code_end",
                                     "s_setprio",
                                     "s_round_mode",
                                     "s_denorm_mode",
                                     "s_ttrace"};

// Names that later chips give to what earlier ones had.
struct Alias {
  const char *later, *earlier;
};
constexpr Alias kAliases[] = {
    {"s_add_co_u32", "s_add_u32"},
    {"s_sub_co_u32", "s_sub_u32"},
    {"s_add_co_i32", "s_add_i32"},
    {"s_sub_co_i32", "s_sub_i32"},
    {"s_add_co_ci_u32", "s_addc_u32"},
    {"s_sub_co_ci_u32", "s_subb_u32"},
    {"s_and_not1_b32", "s_andn2_b32"},
    {"s_and_not1_b64", "s_andn2_b64"},
    {"s_or_not1_b32", "s_orn2_b32"},
    {"s_or_not1_b64", "s_orn2_b64"},
    {"s_ctz_i32_b32", "s_ff1_i32_b32"},
    {"s_clz_i32_u32", "s_flbit_i32_b32"},
    {"s_cls_i32", "s_flbit_i32"},
    {"s_ctz_i32_b64", "s_ff1_i32_b64"},
    {"s_clz_i32_u64", "s_flbit_i32_b64"},
    {"s_and_not1_saveexec_b32", "s_andn2_saveexec_b32"},
    {"s_and_not1_saveexec_b64", "s_andn2_saveexec_b64"},
    {"s_and_not0_saveexec_b32", "s_andn1_saveexec_b32"},
    {"v_ctz_i32_b32", "v_ffbl_b32"},
    {"v_clz_i32_u32", "v_ffbh_u32"},
    {"v_cls_i32", "v_ffbh_i32"},
    {"v_min_num_f32", "v_min_f32"},
    {"v_max_num_f32", "v_max_f32"},
    {"v_min_num_f16", "v_min_f16"},
    {"v_max_num_f16", "v_max_f16"},
    {"v_min_num_f64", "v_min_f64"},
    {"v_max_num_f64", "v_max_f64"},
    {"v_min3_num_f32", "v_min3_f32"},
    {"v_max3_num_f32", "v_max3_f32"},
    {"v_med3_num_f32", "v_med3_f32"},
    {"v_maxmin_num_f32", "v_maxmin_f32"},
    {"v_minmax_num_f32", "v_minmax_f32"},
    {"v_pk_min_num_f16", "v_pk_min_f16"},
    {"v_pk_max_num_f16", "v_pk_max_f16"},
    {"v_cvt_floor_i32_f32", "v_cvt_flr_i32_f32"},
    {"v_cvt_nearest_i32_f32", "v_cvt_rpi_i32_f32"},
    {"v_cvt_pk_rtz_f16_f32", "v_cvt_pkrtz_f16_f32"},
    {"v_add_nc_u32", "v_add_u32"},
    {"v_sub_nc_u32", "v_sub_u32"},
    {"v_subrev_nc_u32", "v_subrev_u32"},
    {"v_add_nc_i32", "v_add_i32"},
    {"v_sub_nc_i32", "v_sub_i32"},
    {"v_add_nc_u16", "v_add_u16"},
    {"v_sub_nc_u16", "v_sub_u16"},
    {"v_add_nc_i16", "v_add_i16"},
    {"v_sub_nc_i16", "v_sub_i16"},
    {"v_add_co_ci_u32", "v_addc_co_u32"},
    {"v_sub_co_ci_u32", "v_subb_co_u32"},
    {"v_subrev_co_ci_u32", "v_subbrev_co_u32"},
    {"v_dot2acc_f32_f16", "v_dot2c_f32_f16"},
    {"v_mad_co_u64_u32", "v_mad_u64_u32"},
    {"v_mad_co_i64_i32", "v_mad_i64_i32"},
    {"s_add_nc_u64", "s_add_u64"},
    {"s_sub_nc_u64", "s_sub_u64"},
    {"s_addk_co_i32", "s_addk_i32"},
    {"v_mul_dx9_zero_f32", "v_mul_legacy_f32"},
};

std::string base_name(const std::string& mnemonic, Instruction& instruction) {
  std::string name = mnemonic;
  for (const char* suffix : {"_dpp", "_sdwa", "_e32", "_e64"}) {
    if (!name.ends_with(suffix)) continue;
    name.resize(name.size() - std::string_view(suffix).size());
    instruction.is_dpp = instruction.is_dpp || std::string_view(suffix) == "_dpp";
    instruction.is_sdwa = instruction.is_sdwa || std::string_view(suffix) == "_sdwa";
  }
  if (name.starts_with("v_dual_")) name = "v_" + name.substr(7);
  for (const Alias& alias : kAliases) {
    if (name == alias.later) return alias.earlier;
  }
  return name;
}

}  // namespace

Instruction parse_instruction(const std::string& given) {
  Instruction instruction;
  instruction.text = trimmed(given);
  std::string text = instruction.text;
  if (const std::size_t dual = text.find(" :: "); dual != std::string::npos) {
    instruction.second = std::make_unique<Instruction>(parse_instruction(text.substr(dual + 4)));
    text.resize(dual);
  }
  const std::size_t space = text.find_first_of(" \t");
  const std::string mnemonic = text.substr(0, space);
  instruction.mnemonic = base_name(mnemonic, instruction);
  if (space == std::string::npos) return instruction;
  for (const char* own : kOwnWords) {
    if (mnemonic.starts_with(own)) return instruction;
  }
  for (const std::string& part : parts(text.substr(space), ',')) {
    const std::vector<std::string> pieces = parts(part, ' ');
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const bool is_modifier =
          i > 0 || (pieces[i].find(':') != std::string::npos && pieces[i].find('[') > pieces[i].find(':'));
      if (is_modifier) {
        read_modifier(pieces[i], instruction);
      } else {
        instruction.operands.push_back(read_operand(pieces[i], text));
      }
    }
  }
  return instruction;
}

Instruction decode(const std::string& text) {
  const auto find = [&](Instruction& i) {
    i.vector = find_vector_operation(i.mnemonic);
    i.scalar = find_scalar_operation(i.mnemonic);
    i.memory = find_memory_operation(i.mnemonic);
    i.matrix = find_matrix_operation(i.mnemonic);
    i.control = find_control(i.mnemonic);
    if (!i.vector && !i.scalar && !i.memory && !i.matrix && !i.control)
      throw Error(Status::unsupported, "the emulator does not know " + i.mnemonic + " ('" + i.text + "')");
    if (i.vector) i.binding = bind_vector(i);
  };
  Instruction instruction = parse_instruction(text);
  find(instruction);
  if (instruction.second) find(*instruction.second);
  return instruction;
}

}  // namespace faltung::emulator
