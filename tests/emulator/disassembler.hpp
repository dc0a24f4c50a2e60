// LLVM's disassembler in this process, opened at run time: a process a kernel took longer than the kernels.
#ifndef FALTUNG_TESTS_EMULATOR_DISASSEMBLER_HPP_
#define FALTUNG_TESTS_EMULATOR_DISASSEMBLER_HPP_

#include <span>
#include <string>
#include <vector>

#include "tests/emulator/numbers.hpp"

namespace faltung::emulator {

// An instruction as llvm-objdump writes it, and where it lies.
struct Line {
  u64 address = 0;
  std::string text;
};

// The instructions of code that lies at an address; what is none is left out. Throws Error(unsupported) where
// LLVM 19 is missing or knows no such chip.
std::vector<Line> disassembled(std::span<const u8> code, u64 address, const std::string& chip);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_DISASSEMBLER_HPP_
