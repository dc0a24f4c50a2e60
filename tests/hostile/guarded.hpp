// Host memory that ends, or begins, at a page that may not be touched.
#ifndef FALTUNG_TESTS_HOSTILE_GUARDED_HPP_
#define FALTUNG_TESTS_HOSTILE_GUARDED_HPP_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace faltung::hostile {

enum class Side { begins_at_guard, ends_at_guard };

class Guarded {
 public:
  Guarded(std::size_t bytes, Side side) : bytes_(bytes), side_(side) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    inner_ = (bytes + page - 1) / page * page;
    total_ = inner_ + 2 * page;
    void* const all = ::mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    all_ = static_cast<std::byte*>(all);
    start_ = all_ + page;
    if (inner_ > 0) ::mprotect(start_, inner_, PROT_READ | PROT_WRITE);
    if (inner_ > 0) std::memset(start_, kFill, inner_);
  }
  ~Guarded() { ::munmap(all_, total_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() const { return side_ == Side::ends_at_guard ? start_ + inner_ - bytes_ : start_; }
  std::size_t bytes() const { return bytes_; }
  // From now on a write is a fault.
  void only_read() {
    if (inner_ > 0) ::mprotect(start_, inner_, PROT_READ);
  }
  // Whether the rest of the page that the data does not fill is as it was.
  bool whole() const {
    for (std::size_t i = 0; i < inner_ - bytes_; ++i) {
      const std::byte* rest = side_ == Side::ends_at_guard ? start_ : start_ + bytes_;
      if (rest[i] != static_cast<std::byte>(kFill)) return false;
    }
    return true;
  }

 private:
  static constexpr int kFill = 0xfb;
  std::size_t bytes_, inner_, total_;
  Side side_;
  std::byte *all_, *start_;
};

}  // namespace faltung::hostile

#endif  // FALTUNG_TESTS_HOSTILE_GUARDED_HPP_
