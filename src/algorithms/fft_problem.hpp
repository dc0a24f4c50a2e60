// What a convolution by FFT tiles is, on any target.
#ifndef FALTUNG_SRC_ALGORITHMS_FFT_PROBLEM_HPP_
#define FALTUNG_SRC_ALGORITHMS_FFT_PROBLEM_HPP_

#include <algorithm>
#include <string>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// But for the tiles' own limits. kind: of the device.
inline Support fft_serves(const Problem& p, const std::string& kind, int largest_filter) {
  const std::string largest = std::to_string(largest_filter);
  if (p.direction == Direction::backward_weights)
    return Support::declined("it computes fwd and bwd_d, not bwd_w");
  if (p.groups != 1)
    return Support::declined("it has no groups; use depthwise_" + kind + " or direct_" + kind);
  if (p.stride_h != 1 || p.stride_w != 1) return Support::declined("it computes stride 1 alone");
  if (p.dilation_h != 1 || p.dilation_w != 1) return Support::declined("it computes dilation 1 alone");
  if (std::max(p.r, p.s) > largest_filter)
    return Support::declined("its filters are at most " + largest + " x " + largest);
  return Support::supported();
}

// Where no tile's bound is within the math's.
inline std::string fft_errs_too_much(const Problem& p) {
  return std::string("its bound on the error is beyond that of math ") + name(p.math) +
         " for a filter this small; ask for math fast";
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_FFT_PROBLEM_HPP_
