// What is to be in the cache before it is needed, brought there beside the products.
#ifndef FALTUNG_KERNELS_CPU_STRETCH_HPP_
#define FALTUNG_KERNELS_CPU_STRETCH_HPP_

#include <algorithm>
#include <cstdint>

#include "src/problem/integers.hpp"

namespace faltung {

// A stretch of memory of which each of so many calls of the micro-kernel fetches a little, step by step
// (BrgemmCall::ahead): many lines asked for at once would wait for each other, and the products for them.
class Stretch {
 public:
  Stretch() = default;
  Stretch(const void* from, std::int64_t bytes, std::int64_t calls, std::int64_t steps)
      : at_(static_cast<const char*>(from)),
        end_(at_ + bytes),
        step_(ceil_div(ceil_div(bytes, std::max<std::int64_t>(calls, 1)), std::max<std::int64_t>(steps, 1))),
        call_(step_ * steps) {}

  // Where the next of so many calls begins, which are one after the other; null at the end.
  const char* next(std::int64_t calls = 1) {
    if (at_ == end_) return nullptr;
    const char* const at = at_;
    at_ = end_ - at_ > calls * call_ ? at_ + calls * call_ : end_;
    return at;
  }
  std::int64_t step() const { return at_ == nullptr ? 0 : step_; }

 private:
  const char *at_ = nullptr, *end_ = nullptr;
  std::int64_t step_ = 0, call_ = 0;
};

// Brings what is next to the second-level cache, all of its lines.
template <int kWrite>
inline void fetch_next(Stretch& stretch) {
  constexpr std::int64_t kLine = 64;
  const char* const at = stretch.next();
  if (at == nullptr) return;
  for (std::int64_t i = 0; i < stretch.step(); i += kLine) __builtin_prefetch(at + i, kWrite, 2);
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_STRETCH_HPP_
