// Brings memory to the cache a little at a time, between register tiles, so that it is there when its item
// begins.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_

#include <cstdint>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/stretch.hpp"
#include "src/algorithms/implicit_gemm_tiling.hpp"

namespace faltung {

inline constexpr std::int64_t kFetchedLine = 64;  // bytes

// Steps of a register tile of pixels up to which its stores wait for their lines beside its products.
inline constexpr std::int64_t kFewStepsOfPixels = 512;

// Of lines to fetch what so many steps of a micro-kernel do, one each; what is beyond is asked for at once.
inline BrgemmFetch in_steps(BrgemmFetch fetch, std::int64_t steps) {
  for (; fetch.lines > steps; --fetch.lines) {
    __builtin_prefetch(fetch.at, 0, 3);
    const bool end = --fetch.run_left == 0;
    fetch.at += end ? fetch.run_stride - kFetchedLine * (fetch.run_lines - 1) : kFetchedLine;
    if (end) fetch.run_left = fetch.run_lines;
  }
  return fetch;
}

// Stretches of `bytes` bytes each, `stride` bytes apart; so many of them in each of some rows, which are
// row_stride bytes apart.
struct MemoryRuns {
  const void* from = nullptr;
  std::int64_t count = 0, bytes = 0, stride = 0, rows = 1, row_stride = 0;
};

class Prefetch {
 public:
  Prefetch() = default;
  // In so many tiles of the micro-kernel.
  Prefetch(const MemoryRuns& runs, std::int64_t tiles) : runs_(runs) {
    // A run that begins within a line ends in one more.
    const std::int64_t apart =
        (reinterpret_cast<std::intptr_t>(runs.from) | runs.stride | runs.row_stride) % kFetchedLine;
    const std::int64_t offset = apart == 0 ? 0 : kFetchedLine - (apart & -apart);  // at most
    run_lines_ = ceil_div(std::max<std::int64_t>(runs.bytes, 1) + offset, kFetchedLine);
    row_left_ = runs.count * run_lines_;
    left_ = runs.bytes > 0 ? runs.rows * row_left_ : 0;
    at_ = static_cast<const char*>(runs.from);
    // A call does not pass a row's end.
    tile_ = ceil_div(left_, std::max<std::int64_t>(tiles - runs.rows + 1, 1));
  }

  // What the next call of so many tiles and steps in all fetches. There are many calls, and none divides.
  BrgemmFetch next(std::int64_t steps, std::int64_t tiles = 1) {
    if (left_ <= 0) return {};
    const std::int64_t lines = std::min({tiles * tile_, left_, row_left_});
    const BrgemmFetch fetch{at_ + line_ * kFetchedLine, lines, run_lines_ - line_, run_lines_, runs_.stride};
    left_ -= lines, row_left_ -= lines;
    for (line_ += lines; line_ >= run_lines_; line_ -= run_lines_) at_ += runs_.stride;
    if (row_left_ == 0) {
      row_left_ = runs_.count * run_lines_;
      at_ += runs_.row_stride - runs_.count * runs_.stride;
    }
    return in_steps(fetch, steps);
  }

 private:
  MemoryRuns runs_;
  std::int64_t run_lines_ = 1, left_ = 0, row_left_ = 0, tile_ = 0;  // lines
  const char* at_ = nullptr;                                         // where the next run begins
  std::int64_t line_ = 0;                                            // of it, that is next
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PREFETCH_HPP_
