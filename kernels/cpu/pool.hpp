// Pooling of a convolution's output.
#ifndef FALTUNG_KERNELS_CPU_POOL_HPP_
#define FALTUNG_KERNELS_CPU_POOL_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

// Rows that can be computed at the same time, in any order: of an image, in nchw of a channel.
std::int64_t pool_rows(const Problem& problem);
// Rows [row, row + rows) of a convolution's output, of the images from `image` on, as a tensor of their own.
struct ConvRows {
  const void* data;
  std::int64_t image, row, rows;
};
// nhwc: channels of the tensors that what is read and what is written are slices of.
struct PoolPitches {
  std::int64_t from, to;
};
inline PoolPitches pool_pitches(const Problem& p) { return {p.k, p.k}; }

// Row `row` of the result y from the convolution's output, of which conv holds at least that row's windows. A
// NaN in a window makes its maximum NaN; an average is over the elements inside the image.
void pool_row(const Problem& problem, const ConvRows& conv, void* y, std::int64_t row, PoolPitches pitches);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_POOL_HPP_
