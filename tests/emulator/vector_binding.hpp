// A vector instruction's operands as it says them, settled once.
#ifndef FALTUNG_TESTS_EMULATOR_VECTOR_BINDING_HPP_
#define FALTUNG_TESTS_EMULATOR_VECTOR_BINDING_HPP_

#include <vector>

#include "tests/emulator/operations.hpp"

namespace faltung::emulator {

struct VectorBinding {
  struct Source {
    Operand operand;
    OperandType type;
    u64 literal = 0;
    bool negated[2] = {}, absolute = false;  // of a pair each, else the first
    bool high[2] = {false, false};           // which half, or register, is taken for each
    int shift = 0, width = 32;               // SDWA
    bool sign_extended = false;
  };
  std::vector<Source> sources;
  Operand result, carry;
  bool to_exec = false, result_is_high = false, clears_high = false, keeps_high = false;
  bool clamps = false;
  float scale = 1;                          // of a float result
  int result_shift = 0, result_width = 32;  // SDWA
  bool pads = true, pads_sign = false;      // what SDWA leaves of the rest of the result
  bool is_of_words = false;                 // whole registers, of which nothing but signs is changed
};

// The result of an instruction that is of words, one or two, and the lanes that are undefined in each word's
// low and high half.
struct Words {
  u32 lanes[2][kMostLanes];
  u64 undefined[2][2];
};
// False where more is to be known of undefined bits than halves of lanes.
bool compute_words(Wave& wave, const Instruction& i, Words& result);
void commit_words(Wave& wave, const Instruction& i, const Words& result);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_VECTOR_BINDING_HPP_
