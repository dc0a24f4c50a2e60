// The part of the CPU's rates that Winograd's transforms are timed for.
#ifndef FALTUNG_SRC_ALGORITHMS_CPU_RATES_WINOGRAD_HPP_
#define FALTUNG_SRC_ALGORITHMS_CPU_RATES_WINOGRAD_HPP_

#include <array>

#include "src/algorithms/cpu_rates.hpp"

namespace faltung {

inline constexpr std::size_t kWinogradTransforms = 4;
// Which one a layout's F(m x m, 3 x 3) is, m 2 or 4.
inline std::size_t winograd_transform(Layout layout, int m) {
  return (layout == Layout::nhwc ? 2u : 0u) + (m == 2 ? 0u : 1u);
}
std::array<TransformTime, kWinogradTransforms> measure_winograd();

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CPU_RATES_WINOGRAD_HPP_
