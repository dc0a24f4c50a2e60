// A wave: its registers, what of them is defined, and what is still on its way to them.
#ifndef FALTUNG_TESTS_EMULATOR_WAVE_HPP_
#define FALTUNG_TESTS_EMULATOR_WAVE_HPP_

#include <deque>
#include <string>
#include <vector>

#include "tests/emulator/counts.hpp"
#include "tests/emulator/instruction.hpp"
#include "tests/emulator/memory.hpp"

namespace faltung::emulator {

// What chips differ in, as far as instructions tell.
struct Chip {
  std::string name;         // gfx90a
  int generation = 9;       // 9, 10, 11 or 12
  bool packed_ids = false;  // a work-item's three numbers share v0
  explicit Chip(const std::string& name = "gfx90a");
};

// The counters of memory operations under way that a wave can wait for.
enum class Counter : u8 { loads, stores, local, constants };
inline constexpr int kCounters = 4;

struct Block;  // what the waves of a block share

class Wave {
 public:
  Wave(Block& block, int number, int lanes);

  // Registers, without any check.
  u32 vector[kVectors][kMostLanes] = {};
  u64 undefined[kVectors][2];  // lanes whose low and high half nobody wrote
  u32 scalar[kScalars + 8] = {};
  u32 scalar_undefined[kScalars + 8];
  bool scc = false, scc_undefined = true;

  Block& block;
  const int number, lanes;
  std::size_t next = 0;  // instruction
  enum class State : u8 { runs, waits, ended } state = State::runs;
  u64 first_exec = 0;  // the lanes that it began with

  u64 private_memory() const;  // of its first lane
  u64 all_lanes() const { return lanes == 64 ? ~u64{0} : (u64{1} << lanes) - 1; }
  u64 exec() const { return mask(kExec) & all_lanes(); }
  u64 mask(int index) const { return scalar[index] | (lanes == 64 ? u64{scalar[index + 1]} << 32 : 0); }
  void set_mask(int index, u64 value, u64 undefined_lanes = 0);

  // A scalar operand of 32 or 64 bits, checked; undefined: its bits that are.
  u64 read_scalar(const Operand& operand, Form form, Number number, const Instruction& i,
                  u64* undefined = nullptr);
  void write_scalar(const Operand& operand, Form form, u64 value, const Instruction& i, u64 undefined = 0);
  // A scalar that decides where to go or what to address: must be defined.
  u64 read_defined(const Operand& operand, Form form, const Instruction& i);
  // Register `part` of a vector operand, of lanes that are to be defined where `must`.
  const u32* read_vector(const Operand& operand, int part, const Instruction& i);
  void must_be_defined(const Operand& operand, int part, u64 of_lanes, const Instruction& i) const;
  void write_vector(int index, int lane, u32 value, u32 undefined_bits) {
    vector[index][lane] = value;
    put_undefined(undefined[index][0], lane, (undefined_bits & 0xffff) != 0);
    put_undefined(undefined[index][1], lane, (undefined_bits >> 16) != 0);
  }
  // Before it is written.
  void settle_vector(int index, const Instruction& i) const {
    if (pending_vector_[index]) fail_pending(index, true, i);
  }
  // Before a load from memory writes it: loads come back in their order, so that an earlier one may be under
  // way.
  void settle_for_load(int index, const Instruction& i);
  void settle_scalar(int index, const Instruction& i) const {
    if (pending_scalar_[index]) fail_pending(index, false, i);
  }

  // A memory operation is under way; registers that it will write.
  void issue(Counter counter, const Operand* destination, int registers, bool writes_local = false);
  void wait(Counter counter, int most);
  // Whether writes to local memory may still be under way.
  bool writes_local() const;

  [[noreturn]] void fail(const Instruction& i, const std::string& what) const;

 private:
  struct UnderWay {
    Operand::Kind kind;
    int first, count;
    bool is_constant, writes_local;
  };
  static void put_undefined(u64& lanes_of_half, int lane, bool is_undefined) {
    lanes_of_half = (lanes_of_half & ~(u64{1} << lane)) | u64{is_undefined} << lane;
  }
  std::deque<UnderWay>& queue(Counter counter);
  [[noreturn]] void fail_pending(int index, bool is_vector, const Instruction& i) const;
  std::deque<UnderWay> queues_[kCounters];
  u8 pending_vector_[kVectors] = {}, pending_scalar_[kScalars + 8] = {};
};

// A block while it runs.
struct Block {
  const Chip& chip;
  Memory& memory;
  LocalMemory& local;
  Counts& counts;
  std::string kernel;
  unsigned id[3] = {};
  const std::vector<Instruction>* program = nullptr;
  const std::map<u64, std::size_t>* places = nullptr;  // of addresses in the program
  u64 private_memory = 0;                              // of its waves in turn, lane by lane
  int private_bytes = 0;                               // of a lane
};

// Of a buffer's descriptor: each lane has memory of its own behind the address.
inline constexpr u32 kAddsLanes = 1u << 23;

void execute(Wave& wave, const Instruction& i);
void execute_vector(Wave& wave, const Instruction& i);
void execute_scalar(Wave& wave, const Instruction& i);
void execute_memory(Wave& wave, const Instruction& i);
void execute_matrix(Wave& wave, const Instruction& i);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_WAVE_HPP_
