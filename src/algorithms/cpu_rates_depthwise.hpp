// The part of the CPU's rates that its depthwise kernels are timed for.
#ifndef FALTUNG_SRC_ALGORITHMS_CPU_RATES_DEPTHWISE_HPP_
#define FALTUNG_SRC_ALGORITHMS_CPU_RATES_DEPTHWISE_HPP_

#include <array>

#include "kernels/cpu/depthwise.hpp"
#include "src/algorithms/cpu_rates.hpp"

namespace faltung {

inline constexpr std::size_t kDepthwiseTurn = 5, kDepthwiseKernels = 6;
inline std::size_t depthwise_kernel(Layout layout, DepthwiseTaps taps) {
  if (layout == Layout::nchw) return static_cast<std::size_t>(taps);
  return taps == DepthwiseTaps::known ? 3 : 4;
}
std::array<TileTime, kDepthwiseKernels> measure_depthwise();

// Nanoseconds of a pass on one core, by the cost model, where its data are in the second-level cache.
double depthwise_ns(const DepthwisePass& pass);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CPU_RATES_DEPTHWISE_HPP_
