// Most vector instructions take whole registers and leave one, or pairs of them: these are executed in place.
#include <algorithm>

#include "tests/emulator/operations.hpp"
#include "tests/emulator/vector_binding.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {

bool compute_words(Wave& wave, const Instruction& i, Words& result) {
  const VectorBinding& b = *i.binding;
  const int words = words_of(i.vector->result.form);
  constexpr std::size_t kSources = 4;
  u32 changed[2 * kSources][kMostLanes];
  const u32* in[2 * kSources];
  u64 low[2] = {}, high[2] = {};  // undefined halves of any source
  std::size_t at = 0;
  for (const VectorBinding::Source& source : b.sources) {
    for (int word = 0; word < words; ++word, ++at) {
      const bool second = words == 2 && source.high[word];
      const u32 kept = source.absolute ? 0x7fffffff : ~0u, turned = source.negated[word] ? 0x80000000 : 0;
      if (source.operand.is_vector()) {
        const int index = source.operand.index + (second ? 1 : 0);
        wave.settle_vector(index, i);
        low[word] |= wave.undefined[index][0] & wave.exec();
        high[word] |= wave.undefined[index][1] & wave.exec();
        in[at] = wave.vector[index];
        if (kept == ~0u && turned == 0) continue;
        std::transform(in[at], in[at] + wave.lanes, changed[at],
                       [&](u32 bits) { return (bits & kept) ^ turned; });
      } else {
        u64 value = source.literal, unknown = 0;
        if (source.operand.kind != Operand::Kind::literal)
          value = wave.read_scalar(source.operand, words == 2 ? Form::wide : Form::word, source.type.number,
                                   i, &unknown);
        if (unknown != 0) return false;
        std::fill_n(changed[at], wave.lanes, (static_cast<u32>(value >> (second ? 32 : 0)) & kept) ^ turned);
      }
      in[at] = changed[at];
    }
  }
  for (int word = 0; word < words; ++word) {
    const u64 any = low[word] | high[word];
    if (any != 0 && i.vector->taint == Taint::bits) return false;
    result.undefined[word][0] = i.vector->taint == Taint::whole ? any : low[word];
    result.undefined[word][1] = any;
  }
  for (int lane = 0; lane < wave.lanes; lane += kWords) {
    u32* const out[2] = {result.lanes[0] + lane, result.lanes[1] + lane};
    i.vector->run_words(out, in);
    for (std::size_t source = 0; source < at; ++source) in[source] += kWords;
  }
  return true;
}

void commit_words(Wave& wave, const Instruction& i, const Words& result) {
  const u64 written = wave.exec();
  for (int word = 0; word < words_of(i.vector->result.form); ++word) {
    const int index = i.binding->result.index + word;
    wave.settle_vector(index, i);
    const u32* const from = result.lanes[word];
    u32* const to = wave.vector[index];
    if (written == wave.all_lanes()) {
      std::copy_n(from, wave.lanes, to);
    } else {
      for (int lane = 0; lane < wave.lanes; ++lane)
        if ((written >> lane & 1) != 0) to[lane] = from[lane];
    }
    for (const int half : {0, 1}) {
      u64& lanes = wave.undefined[index][half];
      lanes = (lanes & ~written) | result.undefined[word][half];
    }
  }
}

}  // namespace faltung::emulator
