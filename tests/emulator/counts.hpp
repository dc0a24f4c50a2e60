// What an emulated launch did, by unit, and the least time that a compute unit needs for that.
#ifndef FALTUNG_TESTS_EMULATOR_COUNTS_HPP_
#define FALTUNG_TESTS_EMULATOR_COUNTS_HPP_

#include <span>
#include <string>

#include "tests/emulator/numbers.hpp"

namespace faltung::emulator {

struct Counts {
  u64 waves = 0, blocks = 0;
  // Instructions, of whole waves.
  u64 vector = 0, scalar = 0, matrix = 0, branches = 0, constants = 0, global = 0, local = 0, barriers = 0;
  u64 matrix_cycles = 0;  // of a SIMD's matrix unit, by AMD's calculator
  u64 loaded_bytes = 0, stored_bytes = 0, local_bytes = 0;
  u64 lines = 0;         // of the L1 cache that loads and stores touch, instruction by instruction
  u64 local_cycles = 0;  // that local memory is busy
  u64 conflicts = 0;     // of those, what conflicts of banks add
  u64 most_ways = 1;     // that an access went at most, for banks that were asked for several words

  // A lower bound of the cycles of one compute unit that runs all of it on four SIMDs: of each unit by what
  // it issues. Never a measured time.
  struct Bound {
    u64 vector, matrix, local, memory;
    u64 cycles() const;
    const char* unit() const;  // that sets it
  };
  Bound bound(int lanes) const;
  // One line: the counts and the bound.
  std::string text(int lanes) const;
};

// The cycles that an access of all lanes to local memory takes, and how many without conflicts.
struct LocalCost {
  int cycles, least;
};
// addresses: of the active lanes, in their order; bytes of each.
LocalCost local_cost(std::span<const u32> addresses, int bytes);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_COUNTS_HPP_
