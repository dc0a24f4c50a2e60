#include "tests/emulator/memory.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace faltung::emulator {

void Memory::add(const void* begin, std::size_t bytes, Content content, const std::string& name) {
  Range range{reinterpret_cast<u64>(begin), reinterpret_cast<u64>(begin) + bytes, name, {}};
  if (content == Content::undefined) range.undefined.assign(bytes, 1);
  ranges_[range.begin] = std::move(range);
  last_ = nullptr;
}

void Memory::remove(const void* begin) {
  ranges_.erase(reinterpret_cast<u64>(begin));
  last_ = nullptr;
}

Memory::Range* Memory::search(u64 address) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  Range& range = std::prev(after)->second;
  if (address >= range.end) return nullptr;
  return last_ = &range;
}

void Memory::define(const void* begin, std::size_t bytes) {
  Range* const range = find(reinterpret_cast<u64>(begin));
  if (range == nullptr || range->undefined.empty()) return;
  const std::size_t at = reinterpret_cast<u64>(begin) - range->begin;
  std::fill_n(range->undefined.begin() + static_cast<std::ptrdiff_t>(at),
              std::min(bytes, range->undefined.size() - at), u8{0});
}

std::string Memory::fault(u64 address, int bytes) {
  const Range* const range = find(address);
  if (range != nullptr)
    return fmt::format("{} bytes at {:#x} cross the end of {}", bytes, address, range->name);
  const auto after = ranges_.upper_bound(address);
  std::string near;
  if (after != ranges_.begin()) {
    const Range& before = std::prev(after)->second;
    near = fmt::format("; {} ends {} bytes before", before.name, address - before.end);
  }
  if (after != ranges_.end())
    near += fmt::format("; {} begins {} bytes after", after->second.name, after->second.begin - address);
  return fmt::format("{} bytes at {:#x} are in no buffer{}", bytes, address, near);
}

u64 Memory::load(u64 address, int bytes, u32& undefined) {
  u64 value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), static_cast<std::size_t>(bytes));
  undefined = 0;
  const Range* const range = find(address);
  if (!range->undefined.empty()) {
    for (int i = 0; i < bytes; ++i)
      undefined |= u32{range->undefined[address - range->begin + static_cast<u64>(i)]} << i;
  }
  return value;
}

void Memory::store(u64 address, int bytes, u64 value, u32 undefined) {
  std::memcpy(reinterpret_cast<void*>(address), &value, static_cast<std::size_t>(bytes));
  Range* const range = find(address);
  if (!range->undefined.empty()) {
    u8* const known = range->undefined.data() + (address - range->begin);
    for (int i = 0; i < bytes; ++i) known[i] = undefined >> i & 1;
  }
}

void LocalMemory::begin(int bytes) {
  bytes_ = bytes;
  content_.resize(std::max(content_.size(), static_cast<std::size_t>(bytes)));
  shadows_.resize(content_.size() / 2 + 1);
  constexpr u32 kMostEpochs = 1u << 26;  // with a wave's number they are 32 bits
  if (epoch_ > kMostEpochs) {
    std::fill(shadows_.begin(), shadows_.end(), Shadow{});
    epoch_ = block_ = 0;
  }
  ++epoch_, ++block_;
}

std::string LocalMemory::fault(u32 address, int bytes, int wave, bool writes) const {
  if (!holds(address, bytes))
    return fmt::format("{} bytes at {} of {} in local memory", bytes, address, bytes_);
  u32 i = address / 2;
  while (!others_wrote(shadows_[i], wave) && !(writes && others_read(shadows_[i], wave))) ++i;
  const Shadow& s = shadows_[i];
  return fmt::format("a race: wave {} {} byte {} of local memory, which {} since the last barrier", wave,
                     writes ? "writes" : "reads", 2 * i,
                     others_wrote(s, wave) ? fmt::format("wave {} wrote", s.written % kWaves)
                                           : std::string("another wave read"));
}

}  // namespace faltung::emulator
