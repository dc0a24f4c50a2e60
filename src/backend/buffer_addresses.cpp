#include "src/backend/buffer_addresses.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "faltung/faltung.hpp"

#include <sys/mman.h>

namespace faltung {
namespace {

struct BufferRange {
  std::size_t bytes;     // of the buffer
  std::size_t reserved;  // of the address space
  void* buffer;
  const void* device;
  std::uint64_t serial;
};

struct BufferRanges {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, BufferRange> by_begin;
  std::uint64_t last_serial = 0;
};

// Never destroyed: buffers may be freed while the process ends.
BufferRanges& buffer_ranges() {
  static BufferRanges* const all = new BufferRanges;
  return *all;
}

}  // namespace

void* reserve_range(void* buffer, std::size_t bytes, const void* device) {
  constexpr std::size_t kPage = 4096;
  // A page more, so that the address past one buffer's end is never the next one's begin.
  const std::size_t reserved = (bytes + kPage - 1) / kPage * kPage + kPage;
  void* begin = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw Error(Status::out_of_memory,
                "no " + std::to_string(reserved) + " bytes of address space for a buffer");
  }
  const std::unique_lock lock(buffer_ranges().mutex);
  BufferRanges& all = buffer_ranges();
  all.by_begin[reinterpret_cast<std::uintptr_t>(begin)] = {bytes, reserved, buffer, device,
                                                           ++all.last_serial};
  return begin;
}

void release_range(void* begin) {
  std::size_t reserved = 0;
  {
    const std::unique_lock lock(buffer_ranges().mutex);
    const auto found = buffer_ranges().by_begin.find(reinterpret_cast<std::uintptr_t>(begin));
    if (found == buffer_ranges().by_begin.end()) return;
    reserved = found->second.reserved;
    buffer_ranges().by_begin.erase(found);
  }
  munmap(begin, reserved);
}

BufferPlace locate(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::shared_lock lock(buffer_ranges().mutex);
  auto after = buffer_ranges().by_begin.upper_bound(wanted);
  if (after == buffer_ranges().by_begin.begin()) return {};
  const auto& [begin, range] = *--after;
  const std::size_t offset = wanted - begin;
  // The address at the end is the buffer's too: an empty tensor may lie there.
  if (offset > range.bytes) return {};
  return {range.buffer, offset, range.bytes - offset, range.device, range.serial};
}

}  // namespace faltung
