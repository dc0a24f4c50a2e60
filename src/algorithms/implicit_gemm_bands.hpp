// A convolution and the pool behind it in one pass: bands of the convolution's rows, each pooled while it is
// in the cache.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_BANDS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_BANDS_HPP_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/algorithms/implicit_gemm_taps.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

struct Band {
  std::int64_t image;
  std::int64_t conv_row;       // the first of PoolBands::conv_rows()
  std::int64_t y_row, y_rows;  // of the pooled result
};

class PoolBands {
 public:
  // None where the pool is better a step of its own: rows too long for the cache, or windows that overlap so
  // much that too many rows would be computed twice. threads: so many that there are bands for all; 0 where
  // only the answer matters.
  static std::optional<PoolBands> make(const Problem& problem, int threads);

  // The convolution of one band: conv_rows() rows of one image, written as a tensor of their own.
  TapConvolution convolution() const;
  std::int64_t conv_rows() const { return conv_rows_; }
  std::size_t bytes() const { return static_cast<std::size_t>(conv_rows_ * row_bytes_); }
  std::int64_t count() const;
  Band band(std::int64_t index) const;
  // Writes the pooled rows of a band whose convolution is in `conv`.
  void pool(const Band& band, const void* conv, void* y) const;

 private:
  PoolBands(const Problem& problem, std::int64_t y_rows);
  std::int64_t bands_per_image() const;
  double repeated() const;  // rows computed, over those there are

  Problem p_;
  std::int64_t y_rows_, conv_rows_, row_bytes_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_BANDS_HPP_
