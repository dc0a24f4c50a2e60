// What packed weights depend on, whatever the algorithm.
#ifndef FALTUNG_SRC_ALGORITHMS_PACKING_HPP_
#define FALTUNG_SRC_ALGORITHMS_PACKING_HPP_

#include <string>

#include "src/problem/problem.hpp"

namespace faltung {

// For Recipe::packing: the filter and how it is used, not the batch, the image or the epilogue. The kernel's
// name, which has its tiles, is compared beside it.
std::string packing_of(const Problem& problem);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_PACKING_HPP_
