// What tilings and their cost need to know of the chip.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_CHIP_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_CHIP_HPP_

#include <algorithm>
#include <cmath>

#include "src/algorithms/candidate.hpp"
#include "src/algorithms/sm90/fitted.hpp"

namespace faltung::sm90 {

struct Chip {
  int multiprocessors = 1;
  // Times what the models' constants were fitted on has: memory's rate, and that at which a multiprocessor's
  // matrix units go through their instructions. What lies in the last cache goes by neither.
  double memory = 1, pace = 1;

  static Chip of(const DeviceInfo& info) { return {std::max(1, info.units)}; }
  // For a cost. 1 of what was not measured.
  static Chip of(const Target& target, const Problem& p) {
    Chip chip = of(target.device);
    const Ceilings &here = target.measured, &there = fitted::kCeilings;
    const auto products = [&](const Ceilings& c) {
      return (p.dtype == DType::f16 ? c.f16 : p.dtype == DType::bf16 ? c.bf16 : c.tf32).gflops;
    };
    chip.memory = beside(here.copy_gbps, there.copy_gbps);
    chip.pace = beside(products(here) / chip.multiprocessors, products(there) / fitted::kMultiprocessors);
    return chip;
  }
  // Two measurements of one kind of chip differ by less than 5 %.
  static double beside(double measured, double fitted) {
    constexpr double kSame = 0.05;
    const double ratio = measured / fitted;
    return measured <= 0 || std::abs(ratio - 1) < kSame ? 1 : ratio;
  }
  // Clusters of 4 and 8 lie within a part of the chip each, and the parts have odd multiprocessors over: of
  // 132 blocks 120 fit at once.
  int clustered() const { return multiprocessors * 10 / 11; }
};

// What shared memory leaves of a multiprocessor's 256 KB is the cache that loads of threads go through. It
// comes in steps: of shared memory, so much to a block.
constexpr int kCacheAndShared = 256 * 1024, kMostShared = 228 * 1024;
constexpr int kSharedSteps[] = {195 * 1024, 163 * 1024, 131 * 1024};

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_CHIP_HPP_
