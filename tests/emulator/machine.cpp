#include "tests/emulator/machine.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>

#include <fmt/core.h>

#include "faltung/faltung.hpp"
#include "tests/emulator/wave.hpp"

namespace faltung::emulator {
namespace {

// The segment that a kernel reads its arguments from.
std::vector<u8> argument_segment(const CodeObject& code, const LaunchShape& shape,
                                 std::span<const Argument> arguments) {
  // Whole 16 bytes, as a driver gives it: compilers load so many at once.
  std::vector<u8> segment(static_cast<std::size_t>(std::max(16, (code.argument_bytes + 15) / 16 * 16)));
  const auto put = [&](const ArgumentPlace& place, const void* value, std::size_t bytes) {
    if (bytes != static_cast<std::size_t>(place.bytes))
      throw Error(Status::bad_problem,
                  fmt::format("an argument of kernel {} at {} has {} bytes, {} were given", code.kernel,
                              place.offset, place.bytes, bytes));
    std::memcpy(segment.data() + place.offset, value, bytes);
  };
  const auto hidden = [&](const ArgumentPlace& place) -> u64 {
    for (int axis = 0; axis < 3; ++axis) {
      const char letter = static_cast<char>('x' + axis);
      if (place.kind == std::string("hidden_block_count_") + letter) return shape.grid[axis];
      if (place.kind == std::string("hidden_group_size_") + letter) return shape.block[axis];
    }
    if (place.kind == "hidden_grid_dims") return 3;
    return 0;
  };
  std::size_t next = 0;
  for (const ArgumentPlace& place : code.arguments) {
    if (place.kind.starts_with("hidden_")) {
      const u64 value = hidden(place);
      put(place, &value, static_cast<std::size_t>(place.bytes));
      continue;
    }
    if (next >= arguments.size())
      throw Error(Status::bad_problem, "too few arguments for kernel " + code.kernel);
    put(place, arguments[next].value, arguments[next].bytes);
    ++next;
  }
  if (next != arguments.size())
    throw Error(Status::bad_problem, "too many arguments for kernel " + code.kernel);
  return segment;
}

// The packet by which a queue is told of a launch (HSA's kernel dispatch packet): compilers read sizes from
// it.
using Packet = std::array<u8, 64>;
Packet packet_of(const LaunchShape& shape) {
  Packet packet{};
  for (int axis = 0; axis < 3; ++axis) {
    const auto block = static_cast<std::uint16_t>(shape.block[axis]);
    const auto threads = static_cast<u32>(shape.grid[axis] * shape.block[axis]);
    std::memcpy(packet.data() + 4 + 2 * axis, &block, sizeof block);
    std::memcpy(packet.data() + 12 + 4 * axis, &threads, sizeof threads);
  }
  return packet;
}

// What a launch lays into memory for its waves.
struct Launched {
  std::vector<u8> arguments;
  Packet packet;
};

// What is in registers when a wave begins, by the kernel's descriptor.
void begin(Wave& wave, const CodeObject& code, const LaunchShape& shape, const Launched& launched) {
  int next = 0;
  const auto put = [&](u64 value, int registers) {
    for (int r = 0; r < registers; ++r, ++next) {
      wave.scalar[next] = static_cast<u32>(value >> (32 * r));
      wave.scalar_undefined[next] = 0;
    }
  };
  // Scalars that the user of a kernel sets, each where its bit says so: private memory as a buffer, the
  // packet and the arguments alone are given a meaning.
  constexpr int kSizes[] = {4, 2, 2, 2, 2, 2, 1};
  constexpr int kPrivate = 0, kPacket = 1, kArguments = 3;
  const bool has_private_buffer = (code.properties >> kPrivate & 1) != 0;
  for (int bit = 0; bit < 7; ++bit) {
    if ((code.properties >> bit & 1) == 0) continue;
    if (bit == kPrivate) {
      put(wave.block.private_memory | u64{1} << 63, 2);  // swizzled
      put(~u32{0} | u64{kAddsLanes} << 32, 2);
    } else if (bit == kArguments) {
      put(reinterpret_cast<u64>(launched.arguments.data()), 2);
    } else if (bit == kPacket) {
      put(reinterpret_cast<u64>(launched.packet.data()), 2);
    } else {
      next += kSizes[bit];
    }
  }
  next = std::max(next, static_cast<int>(code.resources2 >> 1 & 31));
  Block& block = wave.block;
  if (block.chip.generation == 12) {
    wave.scalar[kTrap + 9] = block.id[0], wave.scalar_undefined[kTrap + 9] = 0;
    wave.scalar[kTrap + 7] = block.id[1] | block.id[2] << 16, wave.scalar_undefined[kTrap + 7] = 0;
  } else {
    for (int axis = 0; axis < 3; ++axis) {
      if ((code.resources2 >> (7 + axis) & 1) != 0) put(block.id[axis], 1);
    }
    const bool has_private = (code.resources2 & 1) != 0;
    if (has_private && has_private_buffer) put(wave.private_memory() - block.private_memory, 1);
  }
  const unsigned x = shape.block[0], y = shape.block[1], threads = x * y * shape.block[2];
  const int ids = 1 + static_cast<int>(code.resources2 >> 11 & 3);
  u64 exec = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const unsigned thread = static_cast<unsigned>(wave.number * wave.lanes + lane);
    if (thread >= threads) continue;
    exec |= u64{1} << lane;
    const unsigned id[3] = {thread % x, thread / x % y, thread / x / y};
    if (block.chip.packed_ids) {
      wave.write_vector(0, lane, id[0] | id[1] << 10 | id[2] << 20, 0);
    } else {
      for (int axis = 0; axis < ids; ++axis) wave.write_vector(axis, lane, id[axis], 0);
    }
  }
  wave.scalar[kExec + 1] = wave.scalar_undefined[kExec] = wave.scalar_undefined[kExec + 1] = 0;
  wave.scalar[kM0] = 0, wave.scalar_undefined[kM0] = 0;
  wave.set_mask(kExec, exec);
  wave.first_exec = exec;
  wave.next = code.entry;
}

// The waves of one block, until all have ended.
class Runner {
 public:
  Runner(const CodeObject& code, const LaunchShape& shape, const Launched& launched, Block& block, u64 seed,
         u64 most_instructions)
      : code_(code), block_(block), random_(seed), most_instructions_(most_instructions) {
    const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
    const auto lanes = static_cast<unsigned>(code.lanes);
    private_memory_.resize((threads + lanes - 1) / lanes * lanes *
                           static_cast<std::size_t>(code.private_bytes));
    block.private_memory = reinterpret_cast<u64>(private_memory_.data());
    block.private_bytes = code.private_bytes;
    if (!private_memory_.empty())
      block.memory.add(private_memory_.data(), private_memory_.size(), Memory::Content::undefined,
                       "private memory");
    for (unsigned w = 0; w * lanes < threads; ++w) {
      waves_.push_back(std::make_unique<Wave>(block, static_cast<int>(w), code.lanes));
      begin(*waves_.back(), code, shape, launched);
    }
    block.counts.waves += waves_.size(), block.counts.blocks += 1;
  }
  ~Runner() {
    if (!private_memory_.empty()) block_.memory.remove(private_memory_.data());
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void run() {
    for (;;) {
      std::vector<Wave*> ready;
      for (const auto& wave : waves_)
        if (wave->state == Wave::State::runs) ready.push_back(wave.get());
      if (ready.empty()) {
        if (!meet()) return;
        continue;
      }
      Wave& wave = *ready[random_() % ready.size()];
      // Mostly on to the next barrier, sometimes a few steps.
      const u64 steps = random_() % 2 == 0 ? random_() % 64 + 1 : most_instructions_;
      for (u64 step = 0; step < steps && wave.state == Wave::State::runs; ++step) execute_next(wave);
    }
  }

 private:
  void execute_next(Wave& wave) {
    const Instruction& i = code_.program[wave.next];
    if (++executed_ > most_instructions_)
      wave.fail(i, fmt::format("still runs after {} instructions", most_instructions_));
    ++wave.next;
    execute(wave, i);
  }

  // All waves wait at a barrier, or have ended; false where all have.
  bool meet() {
    const Wave* waits = nullptr;
    const Wave* ended = nullptr;
    for (const auto& wave : waves_) (wave->state == Wave::State::ended ? ended : waits) = wave.get();
    if (waits == nullptr) return false;
    const Instruction& i = code_.program[waits->next - 1];
    if (ended != nullptr)
      waits->fail(i, fmt::format("divergence: waits at a barrier that wave {} never comes to: it has ended",
                                 ended->number));
    for (const auto& wave : waves_) {
      if (wave->next != waits->next)
        wave->fail(code_.program[wave->next - 1],
                   fmt::format("divergence: waits here while wave {} waits at '{}' at {:#x}", waits->number,
                               i.text, i.address));
    }
    for (const auto& wave : waves_) wave->state = Wave::State::runs;
    block_.local.barrier();
    return true;
  }

  const CodeObject& code_;
  Block& block_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Wave>> waves_;
  std::vector<u8> private_memory_;
  const u64 most_instructions_;
  u64 executed_ = 0;
};

}  // namespace

Counts Machine::run(const CodeObject& code, const LaunchShape& shape, std::span<const Argument> arguments) {
  const Launched launched{argument_segment(code, shape, arguments), packet_of(shape)};
  memory_.add(launched.arguments.data(), launched.arguments.size(), Memory::Content::defined,
              "the arguments");
  memory_.add(launched.packet.data(), launched.packet.size(), Memory::Content::defined, "the packet");
  memory_.add(code.image.data(), code.image.size(), Memory::Content::defined, "the code object");
  struct Removed {
    Memory& memory;
    const void *a, *b, *c;
    ~Removed() { memory.remove(a), memory.remove(b), memory.remove(c); }
  } removed{memory_, launched.arguments.data(), launched.packet.data(), code.image.data()};
  Counts counts;
  const Chip chip(code.chip);
  Block block{chip, memory_, local_, counts, code.kernel, {}, &code.program, &code.places};
  u64 seed = seed_;
  for (block.id[2] = 0; block.id[2] < shape.grid[2]; ++block.id[2]) {
    for (block.id[1] = 0; block.id[1] < shape.grid[1]; ++block.id[1]) {
      for (block.id[0] = 0; block.id[0] < shape.grid[0]; ++block.id[0]) {
        local_.begin(code.local_bytes + static_cast<int>(shape.shared_bytes));
        Runner(code, shape, launched, block, seed++, most_instructions_).run();
      }
    }
  }
  return counts;
}

}  // namespace faltung::emulator
