// What tilings and their cost need to know of the chip.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_CHIP_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_CHIP_HPP_

#include <algorithm>

#include "src/backend/backend.hpp"

namespace faltung::sm90 {

struct Chip {
  int multiprocessors = 1;

  static Chip of(const DeviceInfo& info) { return {std::max(1, info.units)}; }
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
