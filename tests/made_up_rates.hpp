// Rates of a processor that there is not, in place of this one's, so that what goes by them is the same
// everywhere.
#ifndef FALTUNG_TESTS_MADE_UP_RATES_HPP_
#define FALTUNG_TESTS_MADE_UP_RATES_HPP_

#include <vector>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/brgemm_dot.hpp"
#include "src/algorithms/cpu_rates.hpp"

namespace faltung {

// For adopt_cpu_rates. tile: the time of one of so many rows and vectors, and of a way to read, by its
// number.
template <class Tile>
std::vector<double> made_up_rates(const Tile& tile) {
  std::vector<double> all = {static_cast<double>(brgemm_lanes()), 0.5, 0.25, 0.75};
  for (int kernel = 0; kernel < 6; ++kernel) all.insert(all.end(), {2.0 + kernel, 1.0});
  for (int staging = 0; staging < 4; ++staging) all.insert(all.end(), {0.5 + staging, 7.0});
  for (int transform = 0; transform < 4; ++transform) all.insert(all.end(), {1.5 + transform, 9.0});
  for (int vectors = 1; vectors <= kBrgemmMaxVectors; ++vectors) {
    for (int rows = 1; rows <= brgemm_max_rows(vectors); ++rows) {
      for (int reads = 0; reads < 7; ++reads) {
        const TileTime time = tile(rows, vectors, reads);
        all.insert(all.end(), {time.step, time.once});
      }
    }
  }
  if (dot_usable()) all.insert(all.end(), {11.0, 12.0});
  return all;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_MADE_UP_RATES_HPP_
