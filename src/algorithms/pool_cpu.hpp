// Pooling as a step of its own, for algorithms that do not fuse it.
#ifndef FALTUNG_SRC_ALGORITHMS_POOL_CPU_HPP_
#define FALTUNG_SRC_ALGORITHMS_POOL_CPU_HPP_

#include "src/plan/recipe.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// convolution computes problem without its pool; the result computes it with the pool. The convolution's
// output goes to the workspace.
Recipe with_pool_step_cpu(const Problem& problem, Recipe convolution);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_POOL_CPU_HPP_
