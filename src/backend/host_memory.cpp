#include "src/backend/host_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace faltung {
namespace {

constexpr std::size_t kLine = 64, kPage = std::size_t{2} << 20;
// Of smaller pieces ordinary pages are few; of larger ones most lies in large pages anyway.
constexpr std::size_t kLeastTogether = std::size_t{16} << 10, kMostTogether = kPage, kTogether = 4 * kPage;

std::size_t up_to(std::size_t bytes, std::size_t multiple) {
  return (std::max<std::size_t>(bytes, 1) + multiple - 1) / multiple * multiple;
}

}  // namespace

std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();  // and rounding overflows nothing
  const bool is_large = bytes >= kPage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kPage : kLine, up_to(bytes, kLine)) != 0) throw std::bad_alloc();
#if defined(__linux__)
  // Where there are none, ordinary ones do. What is beyond the last whole one stays in those, so that no more
  // memory is used than was asked for.
  if (is_large) madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
  return {static_cast<std::byte*>(memory), std::free};
}

std::shared_ptr<std::byte[]> HostPool::allocate(std::size_t bytes) {
  if (bytes < kLeastTogether || bytes > kMostTogether) return host_memory(bytes);
  const std::size_t rounded = up_to(bytes, kLine);
  const std::lock_guard lock(mutex_);
  if (pages_ == nullptr || rounded > kTogether - used_) pages_ = host_memory(kTogether), used_ = 0;
  std::byte* const piece = pages_.get() + used_;
  used_ += rounded;
  return {pages_, piece};
}

}  // namespace faltung
