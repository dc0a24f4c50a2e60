// One instruction as llvm-objdump writes it, taken apart.
#ifndef FALTUNG_TESTS_EMULATOR_INSTRUCTION_HPP_
#define FALTUNG_TESTS_EMULATOR_INSTRUCTION_HPP_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/emulator/numbers.hpp"

namespace faltung::emulator {

// Scalar registers are numbered as the hardware does; vector registers from 0, accumulation registers after
// them.
inline constexpr int kVcc = 106, kTrap = 108, kM0 = 124, kNull = 125, kExec = 126, kScalars = 128;
inline constexpr int kAccumulators = 256, kVectors = 512, kMostLanes = 64;

struct Operand {
  enum class Kind : u8 { none, vector, scalar, literal, scc };
  Kind kind = Kind::none;
  int index = 0, count = 1;    // registers
  u64 integer = 0;             // a literal's
  std::optional<double> real;  // a literal that is written as such: its bits depend on the instruction
  bool negated = false, absolute = false, sign_extended = false;
  bool is_vector() const { return kind == Kind::vector; }
};

struct VectorOperation;
struct VectorBinding;
struct ScalarOperation;
struct MemoryOperation;
struct MatrixOperation;
class Wave;

struct Instruction {
  u64 address = 0;
  std::string text;      // as it was written
  std::string mnemonic;  // without the suffix of its encoding, by the oldest of its names
  std::vector<Operand> operands;
  std::map<std::string, std::vector<i64>> modifiers;  // offset:16 is {16}; glc is {}
  std::map<std::string, std::string> words;           // dst_sel:WORD_1
  bool is_dpp = false, is_sdwa = false;

  // What it does: one of these.
  const VectorOperation* vector = nullptr;
  std::shared_ptr<const VectorBinding> binding;  // a vector operation's operands
  const ScalarOperation* scalar = nullptr;
  const MemoryOperation* memory = nullptr;
  const MatrixOperation* matrix = nullptr;
  void (*control)(Wave&, const Instruction&) = nullptr;
  std::unique_ptr<Instruction> second;  // of a dual instruction

  bool has(const std::string& modifier) const { return modifiers.contains(modifier); }
  i64 value(const std::string& modifier, i64 otherwise = 0) const {
    const auto found = modifiers.find(modifier);
    return found == modifiers.end() || found->second.empty() ? otherwise : found->second.front();
  }
  // Of a list such as op_sel:[0,1].
  i64 bit(const std::string& modifier, int which, i64 otherwise = 0) const {
    const auto found = modifiers.find(modifier);
    if (found == modifiers.end() || static_cast<std::size_t>(which) >= found->second.size()) return otherwise;
    return found->second[static_cast<std::size_t>(which)];
  }
};

// A line without its comment. Throws Error(unsupported) with the line where an operand cannot be read; does
// not say what it does.
Instruction parse_instruction(const std::string& text);
// The same, and what it does. Throws Error(unsupported) for an instruction that the emulator does not know.
Instruction decode(const std::string& text);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_INSTRUCTION_HPP_
