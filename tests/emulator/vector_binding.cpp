#include "tests/emulator/vector_binding.hpp"

#include "faltung/faltung.hpp"

namespace faltung::emulator {
namespace {

bool is_pair(Form form) { return form == Form::pair_of_halves || form == Form::pair_of_words; }

struct Selection {
  int shift, width;
};
Selection selection(const Instruction& i, const std::string& which) {
  const auto found = i.words.find(which);
  if (found == i.words.end() || found->second == "DWORD") return {0, 32};
  const int number = found->second.back() - '0';
  return found->second.starts_with("WORD") ? Selection{16 * number, 16} : Selection{8 * number, 8};
}

u64 literal_bits(const Operand& operand, const OperandType& type, bool mixed_half) {
  const auto f16 = [&] { return u64{double_to_f16(*operand.real)}; };
  const auto f32 = [&] { return u64{std::bit_cast<u32>(static_cast<float>(*operand.real))}; };
  const auto value = static_cast<i64>(operand.integer);
  switch (type.form) {
    case Form::half:
    case Form::pair_of_halves:
      return operand.real ? f16() : operand.integer & 0xffffffff;
    case Form::wide:
      if (operand.real) return std::bit_cast<u64>(*operand.real);
      return type.number == Number::f64 && (value > 64 || value < -16) ? operand.integer << 32
                                                                       : operand.integer;
    case Form::pair_of_words: {
      const u64 word = operand.real ? f32() : operand.integer & 0xffffffff;
      return word | word << 32;
    }
    case Form::mixed:
      return operand.real ? (mixed_half ? f16() : f32()) : operand.integer & 0xffffffff;
    default:
      return operand.real ? f32() : operand.integer & 0xffffffff;
  }
}

// 16-bit results that keep the other half of their register on gfx9, too.
constexpr const char* kKeepsHigh[] = {"v_fma_f16",       "v_mad_u16",       "v_mad_i16",
                                      "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_div_fixup_f16"};

}  // namespace

std::shared_ptr<const VectorBinding> bind_vector(const Instruction& i) {
  const VectorOperation& operation = *i.vector;
  auto binding = std::make_shared<VectorBinding>();
  VectorBinding& b = *binding;
  std::size_t next = 0;
  const auto take = [&] {
    if (next >= i.operands.size())
      throw Error(Status::unsupported, "the emulator misses operands in '" + i.text + "'");
    return i.operands[next++];
  };
  int printed = 0;
  for (int s = 0; s < operation.sources; ++s) printed += operation.source[s].is_old ? 0 : 1;
  const bool is_compare = operation.result.form == Form::mask;
  b.to_exec = i.mnemonic.starts_with("v_cmpx_");
  if (!is_compare || i.operands.size() > static_cast<std::size_t>(printed)) b.result = take();
  if (operation.carries) b.carry = take();
  const bool is_mixed = i.mnemonic.starts_with("v_fma_mix");
  for (int s = 0; s < operation.sources; ++s) {
    VectorBinding::Source source;
    source.type = operation.source[s];
    const int position = static_cast<int>(b.sources.size());
    if (source.type.is_old) {
      source.operand = b.result;
      source.high[1] = true;
    } else if (source.type.form == Form::mask && next >= i.operands.size()) {
      source.operand.kind = Operand::Kind::scalar, source.operand.index = kVcc, source.operand.count = 2;
    } else {
      source.operand = take();
      source.absolute = source.operand.absolute;
      source.negated[0] = source.operand.negated;
      source.high[0] = i.bit("op_sel", position) != 0;
      source.high[1] = i.bit("op_sel_hi", position, is_mixed ? 0 : 1) != 0;
      if (is_pair(source.type.form)) {
        source.negated[0] = i.bit("neg_lo", position) != 0,
        source.negated[1] = i.bit("neg_hi", position) != 0;
      }
      if (i.is_sdwa && position < 2) {
        const Selection selected = selection(i, position == 0 ? "src0_sel" : "src1_sel");
        source.shift = selected.shift, source.width = selected.width;
        source.sign_extended = source.operand.sign_extended;
      }
      source.literal = literal_bits(source.operand, source.type, source.high[1]);
    }
    b.sources.push_back(source);
  }
  b.clamps = i.has("clamp");
  b.scale = i.has("mul") ? static_cast<float>(i.value("mul")) : i.has("div") ? 0.5f : 1.0f;
  b.result_is_high =
      i.mnemonic == "v_fma_mixhi_f16" || (!is_pair(operation.result.form) && i.bit("op_sel", printed) != 0);
  for (const char* name : kKeepsHigh) b.keeps_high = b.keeps_high || i.mnemonic == name;
  if (i.is_sdwa) {
    const Selection selected = selection(i, "dst_sel");
    b.result_shift = selected.shift, b.result_width = selected.width;
    const auto unused = i.words.find("dst_unused");
    b.pads = unused == i.words.end() || unused->second != "UNUSED_PRESERVE";
    b.pads_sign = unused != i.words.end() && unused->second == "UNUSED_SEXT";
  }
  b.is_of_words = operation.run_words != nullptr && !i.is_dpp && !i.is_sdwa && !b.clamps && b.scale == 1 &&
                  b.result.is_vector();
  return binding;
}

}  // namespace faltung::emulator
