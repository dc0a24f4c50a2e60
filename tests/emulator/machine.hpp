// Runs kernels: block after block, the waves of a block in an order that a seed decides.
#ifndef FALTUNG_TESTS_EMULATOR_MACHINE_HPP_
#define FALTUNG_TESTS_EMULATOR_MACHINE_HPP_

#include <span>

#include "src/backend/backend.hpp"
#include "tests/emulator/code_object.hpp"
#include "tests/emulator/counts.hpp"
#include "tests/emulator/memory.hpp"

namespace faltung::emulator {

class Machine {
 public:
  // More instructions than any kernel of a small problem needs: a block that runs on is caught in a loop.
  static constexpr u64 kMostInstructions = 10'000'000;
  explicit Machine(u64 seed = 1, u64 most_instructions = kMostInstructions)
      : seed_(seed), most_instructions_(most_instructions) {}
  Memory& memory() { return memory_; }

  // arguments: the kernel's, in order, without the hidden ones. Throws Error(device_error) that says which
  // instruction of which wave did what it must not, Error(bad_problem) for arguments that are not the
  // kernel's.
  Counts run(const CodeObject& code, const LaunchShape& shape, std::span<const Argument> arguments);

 private:
  Memory memory_;
  LocalMemory local_;
  u64 seed_, most_instructions_;
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_MACHINE_HPP_
