// The memories that emulated kernels see: buffers by their own addresses, and a block's local memory. They
// know what was written, and by whom.
#ifndef FALTUNG_TESTS_EMULATOR_MEMORY_HPP_
#define FALTUNG_TESTS_EMULATOR_MEMORY_HPP_

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/emulator/numbers.hpp"

namespace faltung::emulator {

// Device memory lies where the host has it; an address is good where a buffer is.
class Memory {
 public:
  enum class Content { undefined, defined };
  void add(const void* begin, std::size_t bytes, Content content, const std::string& name);
  void remove(const void* begin);
  void define(const void* begin, std::size_t bytes);

  bool holds(u64 address, int bytes) {
    const Range* const range = find(address);
    return range != nullptr && address + static_cast<u64>(bytes) <= range->end;
  }
  // What is wrong with an access that no buffer holds.
  std::string fault(u64 address, int bytes);
  // Of an address that a buffer holds. undefined: a bit for each byte that nobody wrote.
  u64 load(u64 address, int bytes, u32& undefined);
  void store(u64 address, int bytes, u64 value);

 private:
  struct Range {
    u64 begin = 0, end = 0;
    std::string name;
    std::vector<u8> undefined;  // a byte each; none where all is defined
  };
  Range* find(u64 address) {
    return last_ != nullptr && address - last_->begin < last_->end - last_->begin ? last_ : search(address);
  }
  Range* search(u64 address);
  std::map<u64, Range> ranges_;
  Range* last_ = nullptr;
};

// A block's: who wrote and who read each two bytes since the last barrier.
class LocalMemory {
 public:
  // For a new block: nothing is defined.
  void begin(int bytes);
  void barrier() { ++epoch_; }
  int bytes() const { return bytes_; }

  // Takes note of an access; false where it is outside, or races with another wave.
  bool access(u32 address, int bytes, int wave, bool writes);
  // What is wrong with an access that was refused.
  std::string fault(u32 address, int bytes, int wave, bool writes) const;
  u64 load(u32 address, int bytes, u32& undefined) {
    u64 value = 0;
    std::memcpy(&value, content_.data() + address, static_cast<std::size_t>(bytes));
    undefined = 0;
    for (u32 i = 0; i < static_cast<u32>(bytes); ++i)
      undefined |= u32{shadows_[(address + i) / 2].defined != block_} << i;
    return value;
  }
  void store(u32 address, int bytes, u64 value, u32 undefined);

 private:
  struct Shadow {
    u32 writes = 0, reads = 0;  // the epoch of the newest
    int writer = 0;
    u64 readers = 0;
    u32 defined = 0;  // the block that did
  };
  bool holds(u32 address, int bytes) const {
    return address <= static_cast<u32>(bytes_) &&
           static_cast<u32>(bytes) <= static_cast<u32>(bytes_) - address;
  }
  bool others_wrote(const Shadow& s, int wave) const { return s.writes == epoch_ && s.writer != wave; }
  bool others_read(const Shadow& s, int wave) const {
    return s.reads == epoch_ && (s.readers & ~(u64{1} << wave)) != 0;
  }
  int bytes_ = 0;
  u32 epoch_ = 0, block_ = 0;
  std::vector<u8> content_;
  std::vector<Shadow> shadows_;  // of two bytes each
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_MEMORY_HPP_
