// What a step takes that passes so many bytes once, at rates of memory that are usual: a copy, a pool, a sum.
#ifndef FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_
#define FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_

#include <algorithm>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Milliseconds.
inline double pass_ms(double bytes, const Target& target) {
  if (target.device.kind == "cpu") return bytes / (8e6 * target.threads);
  constexpr double kLaunchMs = 0.0025, kUnitBytesPerMs = 2e7;
  return kLaunchMs + bytes / (kUnitBytesPerMs * std::max(1, target.device.units));
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_
