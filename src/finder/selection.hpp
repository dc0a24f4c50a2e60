// Which kernels may compute a problem, best first by the cost model, and why the others may not.
#ifndef FALTUNG_SRC_FINDER_SELECTION_HPP_
#define FALTUNG_SRC_FINDER_SELECTION_HPP_

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/settings.hpp"

namespace faltung {

struct Selection {
  std::vector<Candidate> candidates;  // best first
  std::vector<Report> refusals;       // algorithms, or kernels of theirs, that may not be used
  // Only what takes longer by the model may be missing, and refusals of it.
  double complete_to_ms = std::numeric_limits<double>::infinity();
  bool is_whole() const { return std::isinf(complete_to_ms); }
  const Candidate* find(const std::string& kernel) const;
};

// Throws Error(unsupported), with every refusal, if no candidate is left and none was left out.
void require_candidates(const Selection& selection, const Settled& settled);
// Moves candidates whose recipe throws to the refusals, in its words; then the same.
void require_recipes(Selection& selection, const Settled& settled);
// The same.
Selection select(const Settled& settled, Extent extent = Extent::all, const Ceilings& measured = {});
// Whether it has all that a choice of its first candidate looks at.
bool reaches(const Selection& selection);
// Puts first the first candidate that is ready of those that the model cannot tell from its own first one.
void prefer_ready(Selection& selection, const std::function<bool(const Candidate&)>& is_ready);
// Why the request's limits do not allow this kernel; empty if they do.
std::optional<Report> refused(const Candidate& candidate, const Settled& settled);
// The refusal of a kernel, or of all of an algorithm's, that the filter does not allow.
Report refused_by_patterns(std::string kernel);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SELECTION_HPP_
