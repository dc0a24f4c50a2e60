// What is known of an emitted kernel that nothing here runs.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_NKI_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_NKI_HPP_

#include <string>
#include <vector>

#include "src/backend/nki.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// A table of the engines' work, as it is predicted. Throws as Algorithm::candidate does.
std::vector<std::string> engines_of_nki(const Problem& problem, const std::string& config,
                                        const NkiCore& core);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_NKI_HPP_
