// Candidates for problems that are not plain, made of an algorithm's candidates for what they are rewritten
// to, with copies of what does not lie in place around them.
#ifndef FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_
#define FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_

#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

// Of an algorithm that does not compute the problem as it is. Without a pool.
Support supports_rewritten(const Algorithm& algorithm, const Problem& problem, const Target& target);
// Named as those for the largest of the problems that it is rewritten to; the others take the config of that
// name where there is one, else the first.
std::vector<Candidate> rewritten_candidates(const Algorithm& algorithm, const Problem& problem,
                                            const Target& target);
Candidate rewritten_candidate(const Algorithm& algorithm, const Problem& problem, const std::string& config,
                              const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_
