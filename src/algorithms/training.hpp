// What training has around a convolution, as steps of their own before and after kernels that know nothing of
// it.
#ifndef FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_
#define FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_

#include "kernels/cpu/affine.hpp"
#include "src/algorithms/algorithm.hpp"

namespace faltung {

inline Problem without_training(Problem problem) {
  problem.training = Training::none;
  return problem;
}

// convolution: a candidate for the problem without it.
Candidate with_training_step(Candidate convolution, const Problem& problem, const Target& target);
// What a kernel that reads x through its scale and shift finds of them in a run's memory. Nothing for one
// behind a step that has them.
inline InputAffine input_affine(const Problem& problem, const Memory& m) {
  if (!has_affine(problem)) return {};
  return {reinterpret_cast<const float*>(m[Place::scale]), reinterpret_cast<const float*>(m[Place::shift]),
          problem.affine == Affine::affine_relu};
}
// convolution: a candidate for the problem without its scale and shift. What comes of x goes through the
// workspace.
Candidate with_affine_step(Candidate convolution, const Problem& problem, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_TRAINING_HPP_
