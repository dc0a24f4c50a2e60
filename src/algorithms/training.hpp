// What training has around a convolution, as steps of their own after kernels that know nothing of it.
#ifndef FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_
#define FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_

#include "src/algorithms/algorithm.hpp"

namespace faltung {

inline Problem without_training(Problem problem) {
  problem.training = Training::none;
  return problem;
}

// convolution: a candidate for the problem without it.
Candidate with_training_step(Candidate convolution, const Problem& problem, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_
