// Brings memory to the cache a little at a time, between register tiles, so that it is there when its item
// begins.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_

#include <cstdint>

#include "src/algorithms/implicit_gemm_tiling.hpp"

namespace faltung {

// Steps of a register tile up to which its stores wait for their lines beside its products: where its rows
// are pixels, and where they are planes, far apart, whose lines keep its operands waiting in turn.
inline constexpr std::int64_t kFewStepsOfPixels = 512, kFewStepsOfPlanes = 48;

// The lines that a tile will be stored to, on their way while it is computed.
inline void fetch_to_write(const float* to, std::int64_t rows, std::int64_t row_stride,
                           std::int64_t columns) {
  constexpr std::int64_t kLineFloats = 16;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; i += kLineFloats)
      __builtin_prefetch(to + row * row_stride + i, 1, 3);
  }
}

class Prefetch {
 public:
  Prefetch() = default;
  // `runs` stretches of `bytes` bytes each, `stride` bytes apart, in so many calls of advance.
  Prefetch(const void* from, std::int64_t runs, std::int64_t bytes, std::int64_t stride, std::int64_t calls)
      : at_(static_cast<const char*>(from)), runs_(runs), bytes_(bytes), stride_(stride) {
    if (runs > 0 && bytes > 0)
      lines_ = ceil_div(runs * ceil_div(bytes, kLine), std::max<std::int64_t>(calls, 1));
  }

  void advance() {
    for (std::int64_t i = 0; i < lines_; ++i) {
      if (done_ >= bytes_) {
        at_ += stride_, done_ = 0;
        --runs_;
      }
      if (runs_ <= 0) return;
      __builtin_prefetch(at_ + done_, 0, 2);
      done_ += kLine;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* at_ = nullptr;
  std::int64_t runs_ = 0, bytes_ = 0, stride_ = 0, done_ = 0, lines_ = 0;
};

// The same for one stretch of memory, a little of it in each of so many calls of the micro-kernel, which does
// it step by step: many lines asked for at once would wait for each other.
class Stretch {
 public:
  Stretch() = default;
  Stretch(const void* from, std::int64_t bytes, std::int64_t calls, std::int64_t steps)
      : at_(static_cast<const char*>(from)),
        end_(at_ + bytes),
        step_(ceil_div(ceil_div(bytes, std::max<std::int64_t>(calls, 1)), std::max<std::int64_t>(steps, 1))),
        call_(step_ * steps) {}

  // Where the next call begins; null at the end.
  const void* next() {
    if (at_ == end_) return nullptr;
    const char* const at = at_;
    at_ = end_ - at_ > call_ ? at_ + call_ : end_;
    return at;
  }
  std::int64_t step() const { return at_ == nullptr ? 0 : step_; }

 private:
  const char *at_ = nullptr, *end_ = nullptr;
  std::int64_t step_ = 0, call_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_
