// How Hopper's bulk copy engine sees an implicit GEMM's tensors. A tensor that it cannot address throws
// Error(unsupported).
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_MAPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_MAPS_HPP_

#include "src/algorithms/implicit_gemm_sm90.hpp"
#include "src/backend/cuda.hpp"

namespace faltung::sm90 {

inline int narrow(std::int64_t value) { return static_cast<int>(value); }

// The input as the tiling reads it: NHWC with padded_channels, or NCHW.
TensorMap x_map(const CudaDevice& device, const Tiling& tiling, const Problem& problem, const void* x);
// Packed weights: padded_channels, taps, K (times the parts).
TensorMap w_map(const CudaDevice& device, const Tiling& tiling, const Problem& problem, const void* w);
// The NHWC output's, or the residual's: boxes as the consumers store them.
TensorMap y_map(const CudaDevice& device, const Tiling& tiling, const Problem& problem, const void* y);
// The NCHW output by a consumer's rows of so many pixels.
TensorMap y_rows_map(const CudaDevice& device, const Tiling& tiling, const Problem& problem, const void* y,
                     int width);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_SM90_MAPS_HPP_
