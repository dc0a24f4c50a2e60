// What a pixel of bf16 pairs is where tiles read it: staged with its filter row's taps side by side, staged
// as it is, or read in place.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PAIRS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PAIRS_HPP_

#include <cstdint>
#include <vector>

#include "src/algorithms/implicit_gemm_taps.hpp"

namespace faltung {

// What AMX's tiles and those of dot products differ in.
struct PairTile {
  int rows;           // of a group
  std::int64_t step;  // channels
  double merges;      // a filter row's taps lie side by side where so many times fewer products pay for it
};

// A staged filter row or single tap: where it reads, and which of the filter's elements it holds.
struct StagedTap {
  std::int64_t h, w;
  std::vector<Tap> parts;  // in the order of the staged pixel's channels
};

struct PairPixels {
  std::vector<StagedTap> taps;
  bool merges = false, merges_neighbours = false, staged = false;
  std::int64_t pixel = 0;  // channels of a staged pixel: a multiple of a step
  std::int64_t pitch = 0;  // from one staged pixel to the next
};
PairPixels pair_pixels(const TapConvolution& convolution, const PairTile& tile);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_PAIRS_HPP_
