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
  void store(u64 address, int bytes, u64 value, u32 undefined = 0);

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
  // For a new block: nothing is defined. It has at most 32 waves.
  void begin(int bytes);
  void barrier() { ++epoch_; }
  int bytes() const { return bytes_; }

  // Takes note of an access; false where it is outside, or races with another wave.
  bool access(u32 address, int bytes, int wave, bool writes) {
    if (!holds(address, bytes)) return false;
    const u32 end = address + static_cast<u32>(bytes);
    for (u32 half = address / 2; half * 2 < end; ++half) {
      Shadow& s = shadows_[half];
      if (!writes && s.read == tag(wave)) continue;  // as before: others cannot have written since
      if (others_wrote(s, wave) || (writes && others_read(s, wave))) return false;
      if (writes) {
        s.written = tag(wave);
      } else {
        s.readers = (s.read / kWaves == epoch_ ? s.readers : 0) | u32{1} << wave;
        s.read = tag(wave);
      }
    }
    return true;
  }
  // What is wrong with an access that was refused.
  std::string fault(u32 address, int bytes, int wave, bool writes) const;
  u64 load(u32 address, int bytes, u32& undefined) const {
    if (bytes == 4 && address % 2 == 0) {  // as nearly all are
      u32 word = 0;
      std::memcpy(&word, content_.data() + address, sizeof word);
      const Shadow* const halves = shadows_.data() + address / 2;
      undefined = u32{halves[0].defined != block_} * 3 | u32{halves[1].defined != block_} * 12;
      return word;
    }
    u64 value = 0;
    std::memcpy(&value, content_.data() + address, static_cast<std::size_t>(bytes));
    undefined = 0;
    const u32 end = address + static_cast<u32>(bytes);
    for (u32 half = address / 2; half * 2 < end; ++half)
      if (shadows_[half].defined != block_) undefined |= bytes_of_half(half, address, bytes);
    return value;
  }
  void store(u32 address, int bytes, u64 value, u32 undefined) {
    if (bytes == 4 && address % 2 == 0) {
      const auto word = static_cast<u32>(value);
      std::memcpy(content_.data() + address, &word, sizeof word);
      Shadow* const halves = shadows_.data() + address / 2;
      halves[0].defined = (undefined & 3) != 0 ? 0 : block_;
      halves[1].defined = (undefined & 12) != 0 ? 0 : block_;
      return;
    }
    std::memcpy(content_.data() + address, &value, static_cast<std::size_t>(bytes));
    const u32 end = address + static_cast<u32>(bytes);
    for (u32 half = address / 2; half * 2 < end; ++half)
      shadows_[half].defined = (undefined & bytes_of_half(half, address, bytes)) != 0 ? 0 : block_;
  }

 private:
  struct Shadow {
    u32 written = 0, read = 0;  // the newest: its epoch, and the wave
    u32 readers = 0;            // of that epoch, a bit for each wave
    u32 defined = 0;            // the block that did
  };
  static constexpr u32 kWaves = 32;
  u32 tag(int wave) const { return epoch_ * kWaves + static_cast<u32>(wave); }
  // A bit for each of `bytes` bytes from the address on that lies in these two.
  static u32 bytes_of_half(u32 half, u32 address, int bytes) {
    const u32 both = half * 2 >= address ? u32{3} << (half * 2 - address) : u32{3} >> (address - half * 2);
    return both & ((u32{1} << bytes) - 1);
  }
  bool holds(u32 address, int bytes) const {
    return address <= static_cast<u32>(bytes_) &&
           static_cast<u32>(bytes) <= static_cast<u32>(bytes_) - address;
  }
  bool others_wrote(const Shadow& s, int wave) const {
    return s.written / kWaves == epoch_ && s.written != tag(wave);
  }
  bool others_read(const Shadow& s, int wave) const {
    return s.read / kWaves == epoch_ && (s.readers & ~(u32{1} << wave)) != 0;
  }
  int bytes_ = 0;
  u32 epoch_ = 0, block_ = 0;
  std::vector<u8> content_;
  std::vector<Shadow> shadows_;  // of two bytes each
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_MEMORY_HPP_
