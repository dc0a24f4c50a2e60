// What can be read in NVIDIA's machine code.
#ifndef FALTUNG_TESTS_MACHINE_CODE_HPP_
#define FALTUNG_TESTS_MACHINE_CODE_HPP_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace faltung {

// The bits of a Hopper instruction that tell its operation, and how they are in HGMMA: with both operands in
// shared memory, or wherever the first one is.
struct Operation {
  std::uint64_t bits, value;
};
inline constexpr Operation kHgmmaOfShared{0xfff, 0x9f0}, kHgmma{0x1ff, 0x1f0};
// One thread of a warp is chosen, under any condition or under none; a barrier of all memory.
inline constexpr Operation kElect{0xfff, 0x82f}, kElectAlways{0xffff, 0x782f}, kMembar{0xfff, 0x992};

// The copy engine brings a box; what comes after waits for the kernel in front.
inline constexpr Operation kLoadBox{0xfff, 0x5b4}, kWaitForPrevious{0xfff, 0x82e};

// Where instructions of 16 bytes that do it stand in the sections of code of an ELF file, in bytes.
inline std::vector<std::uint64_t> find_instructions(const std::string& elf, const Operation& operation) {
  const auto at = [&](std::size_t offset, auto value) {
    std::memcpy(&value, elf.data() + offset, sizeof value);
    return value;
  };
  const auto sections = at(0x28, std::uint64_t{});
  const auto size = at(0x3a, std::uint16_t{}), count = at(0x3c, std::uint16_t{});
  std::vector<std::uint64_t> found;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t header = sections + std::size_t{i} * size;
    constexpr std::uint64_t kExecutable = 4;
    if ((at(header + 8, std::uint64_t{}) & kExecutable) == 0) continue;
    const auto begin = at(header + 0x18, std::uint64_t{}), bytes = at(header + 0x20, std::uint64_t{});
    for (std::uint64_t offset = begin; offset + 16 <= begin + bytes; offset += 16) {
      if ((at(offset, std::uint64_t{}) & operation.bits) == operation.value) found.push_back(offset);
    }
  }
  return found;
}
inline int count_instructions(const std::string& elf, const Operation& operation) {
  return static_cast<int>(find_instructions(elf, operation).size());
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_MACHINE_CODE_HPP_
