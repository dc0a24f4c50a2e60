// implicit_gemm_mma_gpu's gradient of the weights: what is its own.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_WEIGHTS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_WEIGHTS_HPP_

#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung::mma_weights {

// Of a problem of this direction whose dtype and math the matrix units serve.
Support supports(const Problem& problem);
std::vector<Candidate> list(const Problem& problem, const Target& target);
// Throws Error(bad_problem) where config is no name of these.
Maker parse(const std::string& config);

}  // namespace faltung::mma_weights

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MMA_WEIGHTS_HPP_
