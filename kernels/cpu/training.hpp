// What training has around a convolution, as passes over its tensors.
#ifndef FALTUNG_KERNELS_CPU_TRAINING_HPP_
#define FALTUNG_KERNELS_CPU_TRAINING_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

// Channels whose sums are taken together: where they lie side by side, what a cache's line has.
std::int64_t channels_at_once(const Problem& problem);
// The sums of channels [first, first + count), and of their squares with stats, over the summed tensor. In
// double, in one order: their bits depend on nothing else.
void channel_sums(const Problem& problem, const void* summed, float* sums, std::int64_t first,
                  std::int64_t count);

// Elements [first, first + count) of the gradient dx: zero where relu's is not above zero, and as they were
// where it is NaN.
void through_relu(DType dtype, void* dx, const void* relu, std::int64_t first, std::int64_t count);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_TRAINING_HPP_
