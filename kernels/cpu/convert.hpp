// Elements of one dtype as those of another: a network's weights, of which there may be a billion.
#ifndef FALTUNG_KERNELS_CPU_CONVERT_HPP_
#define FALTUNG_KERNELS_CPU_CONVERT_HPP_

#include <cstddef>
#include <cstdint>

#include "src/problem/dtype.hpp"

namespace faltung {

// Rounds to nearest, ties to even. Neither side need be aligned. Returns the first element that is finite,
// and beyond what the other dtype holds; `count` where none is.
std::int64_t convert_elements(DType from_dtype, const std::byte* from, std::int64_t count, DType to_dtype,
                              std::byte* to);

// The smallest and largest of the numbers' magnitudes, zeros and NaNs aside: infinity and 0 where there is
// none.
struct Magnitudes {
  float least, most;
};
Magnitudes magnitudes(const float* values, std::int64_t count);
// What is smaller becomes zero.
void zero_below(float magnitude, float* values, std::int64_t count);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_CONVERT_HPP_
