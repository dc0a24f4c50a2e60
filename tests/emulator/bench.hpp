// A wave by itself, for instructions that are tested alone.
#ifndef FALTUNG_TESTS_EMULATOR_BENCH_HPP_
#define FALTUNG_TESTS_EMULATOR_BENCH_HPP_

#include <string>

#include "tests/emulator/operations.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {

// All lanes on.
struct Bench {
  explicit Bench(const std::string& name, int lanes = 64) : chip(name), wave(block, 0, lanes) {
    local.begin(4096);
    wave.set_mask(kExec, wave.all_lanes());
    wave.first_exec = wave.all_lanes();
    wave.scc_undefined = false;
  }
  void vector(int index, int lane, u64 value, int registers = 2) {
    for (int r = 0; r < registers; ++r)
      wave.write_vector(index + r, lane, static_cast<u32>(value >> (32 * r)), 0);
  }
  void scalar(int index, u64 value, int registers = 2) {
    for (int r = 0; r < registers; ++r)
      wave.scalar[index + r] = static_cast<u32>(value >> (32 * r)), wave.scalar_undefined[index + r] = 0;
  }
  u64 wide(int index, int lane) const {
    return wave.vector[index][lane] | u64{wave.vector[index + 1][lane]} << 32;
  }
  void run(const std::string& text) { execute(wave, decode(text)); }

  Chip chip;
  Memory memory;
  LocalMemory local;
  Counts counts;
  Block block{chip, memory, local, counts, "a test", {}, nullptr, nullptr};
  Wave wave;
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_BENCH_HPP_
