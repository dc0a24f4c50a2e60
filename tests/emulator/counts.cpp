#include "tests/emulator/counts.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace faltung::emulator {

// A SIMD issues a wave64's vector instruction in four cycles and a wave32's in one; local memory serves 32
// banks of four bytes a cycle, the L1 cache a line.
Counts::Bound Counts::bound(int lanes) const {
  constexpr u64 kSimds = 4;
  const u64 issue = lanes == 64 ? 4 : 1;
  return {vector * issue / kSimds, matrix_cycles / kSimds, local_cycles, lines};
}

u64 Counts::Bound::cycles() const { return std::max({vector, matrix, local, memory}); }
const char* Counts::Bound::unit() const {
  const u64 most = cycles();
  return most == matrix   ? "matrix units"
         : most == vector ? "vector units"
         : most == local  ? "local memory"
                          : "the L1 cache";
}

std::string Counts::text(int lanes) const {
  const Bound b = bound(lanes);
  return fmt::format(
      "{} blocks, {} waves: {} vector, {} matrix, {} scalar, {} branches, {} loads of constants, {} of "
      "memory ({} bytes "
      "in, {} out, {} lines), {} of local memory ({} cycles, {} of them conflicts), {} barriers; bound by "
      "count, never "
      "measured: {} cycles of a compute unit by {}",
      blocks, waves, vector, matrix, scalar, branches, constants, global, loaded_bytes, stored_bytes, lines,
      local, local_cycles, conflicts, barriers, b.cycles(), b.unit());
}

namespace {

// Whether each lane asks for the words of the one before it or for the next ones, each a bank of its own:
// most do.
bool in_a_row(std::span<const u32> addresses, std::size_t words) {
  for (std::size_t i = 1; i < addresses.size(); ++i) {
    const u32 step = addresses[i] / 4 - addresses[i - 1] / 4;
    if (step != 0 && step != words) return false;
  }
  return true;
}

}  // namespace

// As many neighbouring lanes a cycle as 32 banks serve; each more cycle for a bank that is asked for another
// word.
LocalCost local_cost(std::span<const u32> addresses, int bytes) {
  constexpr std::size_t kBanks = 32;
  const std::size_t words = static_cast<std::size_t>(std::max(1, bytes / 4)),
                    lanes = std::max<std::size_t>(1, kBanks / words);
  LocalCost cost{0, 0};
  for (std::size_t first = 0; first < addresses.size(); first += lanes) {
    cost.least += 1;
    if (in_a_row(addresses.subspan(first, std::min(lanes, addresses.size() - first)), words)) {
      cost.cycles += 1;
      continue;
    }
    u32 asked[kBanks][kBanks * 4];
    std::size_t count[kBanks] = {};
    for (std::size_t i = first; i < std::min(addresses.size(), first + lanes); ++i) {
      for (std::size_t w = 0; w < words; ++w) {
        const u32 word = addresses[i] / 4 + static_cast<u32>(w);
        u32* const of_bank = asked[word % kBanks];
        std::size_t& known = count[word % kBanks];
        if (std::find(of_bank, of_bank + known, word) == of_bank + known) of_bank[known++] = word;
      }
    }
    cost.cycles += static_cast<int>(*std::max_element(count, count + kBanks));
  }
  return cost;
}

}  // namespace faltung::emulator
