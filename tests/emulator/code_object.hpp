// A compiled program, as the driver would load it: linked, laid out in memory, decoded.
#ifndef FALTUNG_TESTS_EMULATOR_CODE_OBJECT_HPP_
#define FALTUNG_TESTS_EMULATOR_CODE_OBJECT_HPP_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/instruction.hpp"

namespace faltung::emulator {

// One argument in the segment that a kernel reads its arguments from.
struct ArgumentPlace {
  int offset = 0, bytes = 0;
  std::string kind;  // global_buffer, by_value, hidden_block_count_x, ...
};

struct CodeObject {
  std::string chip, kernel;
  std::vector<u8> image;  // of the loaded segments
  u64 base = 0;           // where the image lies: what the code's own addresses are counted from
  std::vector<Instruction> program;
  std::map<u64, std::size_t> places;  // of the program's instructions, by address
  std::size_t entry = 0;
  // What the kernel asks for.
  std::vector<ArgumentPlace> arguments;
  int argument_bytes = 0, local_bytes = 0, private_bytes = 0, lanes = 64;
  int vector_registers = 0, scalar_registers = 0, spilled_registers = 0;
  // From the kernel's descriptor.
  u32 resources2 = 0, properties = 0;
};

// file: what clang made for the chip, linked or not. Needs LLVM 19's library. Throws Error(unsupported) where
// that is missing, and with its name, the kernel and the line where there is an instruction that the emulator
// does not know.
std::shared_ptr<CodeObject> load_code_object(const std::string& file, const std::string& chip,
                                             const std::string& kernel);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_CODE_OBJECT_HPP_
