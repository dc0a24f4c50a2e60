// Kernels that keep a list of the filter's taps, and one for each phase of a gradient's strides.
#ifndef FALTUNG_SRC_ALGORITHMS_TAP_LISTS_HPP_
#define FALTUNG_SRC_ALGORITHMS_TAP_LISTS_HPP_

#include <cstdint>
#include <string>

#include "src/problem/problem.hpp"

namespace faltung {

// Why such kernels decline: every candidate makes its lists to reckon what it costs, which beyond this would
// take seconds and gigabytes before anything is computed. Empty if they do not.
inline std::string beyond_tap_lists(const Problem& p) {
  constexpr std::int64_t kMostTaps = 1 << 18, kMostPhases = 1 << 12;
  if (const std::int64_t taps = p.t * p.r * p.s; taps > kMostTaps)
    return "it lists the filter's taps, and " + std::to_string(taps) + " are more than " +
           std::to_string(kMostTaps);
  if (phases(p) > kMostPhases)
    return "it lists taps for each remainder by the strides, which are more than " +
           std::to_string(kMostPhases);
  return "";
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_TAP_LISTS_HPP_
