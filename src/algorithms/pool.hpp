// Pooling as a step of its own, after kernels that do not fuse it.
#ifndef FALTUNG_SRC_ALGORITHMS_POOL_HPP_
#define FALTUNG_SRC_ALGORITHMS_POOL_HPP_

#include "kernels/cpu/pool.hpp"
#include "src/algorithms/algorithm.hpp"

namespace faltung {

// A GPU's: over the convolution's result that lies at `conv`.
Step pool_step(const Problem& problem, Slot conv, Slot y, PoolPitches pitches, const DeviceInfo& device);

// convolution: a candidate for the problem without its pool. The convolution's result goes through the
// workspace.
Candidate with_pool_step(Candidate convolution, const Problem& problem, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_POOL_HPP_
