// The part of the CPU's rates that copying an input to where tiles read it is timed for.
#ifndef FALTUNG_SRC_ALGORITHMS_CPU_RATES_STAGING_HPP_
#define FALTUNG_SRC_ALGORITHMS_CPU_RATES_STAGING_HPP_

#include <array>

#include "src/algorithms/cpu_rates.hpp"

namespace faltung {

inline constexpr std::size_t kStagings = 2;

struct StagingRates {
  TileTime copy, fetch;
};
std::array<StagingRates, kStagings> measure_staging();

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CPU_RATES_STAGING_HPP_
