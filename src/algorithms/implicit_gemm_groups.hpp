// Implicit GEMM for nhwc with few channels a group.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GROUPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GROUPS_HPP_

#include <memory>

#include "src/algorithms/implicit_gemm_part.hpp"

namespace faltung {

// Whether a vector holds some groups whole, of the input as of the output.
bool groups_fit_lanes(const Problem& problem);

// Tiles of so many pixels and a vector.
std::unique_ptr<ImplicitGemmPart> make_group_lanes(const Problem& problem, const TapConvolution& convolution,
                                                   int rows, int threads);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_GROUPS_HPP_
