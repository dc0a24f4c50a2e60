// Which kernels may compute a problem, best first by the cost model, and why the others may not.
#ifndef FALTUNG_SRC_FINDER_SELECTION_HPP_
#define FALTUNG_SRC_FINDER_SELECTION_HPP_

#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung {

struct Candidate {
  const Algorithm* algorithm;
  Config config;
  std::string kernel() const { return kernel_name(*algorithm, config.name); }
};

// An algorithm, or a kernel of it, that may not be used.
struct Refusal {
  std::string kernel;   // the algorithm's name where all of it is meant
  std::string verdict;  // declined, skipped or quarantined
  std::string why;
};

struct Selection {
  std::vector<Candidate> candidates;  // best first
  std::vector<Refusal> refusals;
};

// Allowed and skipped kernels: the request's patterns and those of FALTUNG_ONLY and FALTUNG_SKIP (separated
// by commas). A pattern matches a whole kernel name or a whole algorithm name.
class Filter {
 public:
  // Throws Error(bad_problem) for a pattern that no algorithm can match, naming the nearest.
  explicit Filter(const Request& request);
  bool allows(const Algorithm& algorithm, const std::string& config) const;
  // Kernels that are named in full: tried even where their algorithm does not list them for the problem.
  const std::vector<std::string>& forced() const { return forced_; }

 private:
  std::vector<std::string> only_, skip_, forced_;
};

// Throws Error(unsupported), with every refusal, if no candidate is left.
void require_candidates(const Selection& selection, const Problem& problem, const DeviceInfo& device);
// The same.
Selection select(const Problem& problem, const Request& request, const Target& target);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SELECTION_HPP_
