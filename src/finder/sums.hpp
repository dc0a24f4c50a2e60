// Whether the sums that training takes of a tensor's channels are right.
#ifndef FALTUNG_SRC_FINDER_SUMS_HPP_
#define FALTUNG_SRC_FINDER_SUMS_HPP_

#include "src/finder/oracle.hpp"

namespace faltung {

// summed: the tensor as it is stored, in host memory; sums: what was made of it. Of integers whose sum no
// order rounds each must be exact; else it may err by as much as a chain of fp32 additions.
Finding check_sums(const Problem& problem, const void* summed, const float* sums);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SUMS_HPP_
