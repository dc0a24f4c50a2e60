// A scale and a shift of x's channels, and a ReLU: what a convolution may read its input through.
#ifndef FALTUNG_KERNELS_CPU_AFFINE_HPP_
#define FALTUNG_KERNELS_CPU_AFFINE_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

// What x's elements go through as a kernel reads them: a scale and a shift of each channel, and a ReLU. null:
// nothing.
struct InputAffine {
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool relu = false;
  explicit operator bool() const { return scale != nullptr; }
  // Of channels from this one on.
  InputAffine from(std::int64_t channel) const {
    return *this ? InputAffine{scale + channel, shift + channel, relu} : InputAffine{};
  }
};

// Elements [first, first + count) of what a problem with a scale and shift reads of x, in the order in which
// the layout has them, to `to`, where all of them lie whole.
void through_affine(const Problem& problem, const void* x, const InputAffine& affine, void* to,
                    std::int64_t first, std::int64_t count);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_AFFINE_HPP_
