// What activations add to the predicted time of a convolution on the CPU, by whichever algorithm.
#ifndef FALTUNG_SRC_ALGORITHMS_ACTIVATION_COST_HPP_
#define FALTUNG_SRC_ALGORITHMS_ACTIVATION_COST_HPP_

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Milliseconds of all threads together; 0 on a GPU, where they hide behind memory.
double activation_ms(const Problem& problem, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_ACTIVATION_COST_HPP_
