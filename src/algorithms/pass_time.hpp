// What a step takes that passes so many bytes once, at rates of memory that are usual: a copy, a pool, a sum.
#ifndef FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_
#define FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_

#include <algorithm>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/chip.hpp"

namespace faltung {

// Times what memory gives the H200 that the portable kernels' models were fitted on, too. Of chips that are
// not Hopper's their constants are as they are.
inline double memory_beside_fitted(const Target& target) {
  if (!target.device.has("sm_90a")) return 1;
  return sm90::Chip::beside(target.measured.copy_gbps, sm90::fitted::kCeilings.copy_gbps);
}

// Milliseconds.
inline double pass_ms(double bytes, const Target& target) {
  if (target.device.kind == "cpu") return bytes / (8e6 * target.threads);
  constexpr double kLaunchMs = 0.0025, kUnitBytesPerMs = 2e7;
  return kLaunchMs +
         bytes / (kUnitBytesPerMs * std::max(1, target.device.units) * memory_beside_fitted(target));
}

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_PASS_TIME_HPP_
