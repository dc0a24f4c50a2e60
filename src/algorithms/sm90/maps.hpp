// How Hopper's bulk copy engine sees an implicit GEMM's tensors.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_MAPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_MAPS_HPP_

#include "kernels/sm90/params.h"
#include "src/algorithms/sm90/kernel_config.hpp"
#include "src/algorithms/sm90/tiling.hpp"
#include "src/backend/tensor_map.hpp"

namespace faltung::sm90 {

// The input as the tiling reads it: NHWC with padded_channels, or NCHW.
MapShape x_map(const Tiling& tiling, const Problem& problem);
// Packed weights: padded_channels, taps, K (times the parts); or the filter as it is: K, taps, channels.
// taps: of all of the filter.
MapShape w_map(const Tiling& tiling, const Problem& problem, std::int64_t taps);
// The NHWC output's, or the residual's: boxes as the consumers store them.
MapShape y_map(const Tiling& tiling, const Problem& problem);
// The results of a phase of a strided backward_data, from its first one on.
MapShape phase_map(const Tiling& tiling, const Problem& engine, const Problem& asked, const Phase& phase);
// The NCHW output by a consumer's rows of so many pixels.
MapShape y_rows_map(const Tiling& tiling, const Problem& problem, int width);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_MAPS_HPP_
