// Candidates for problems that are not plain, made of an algorithm's candidates for what they are rewritten
// to, with copies of what does not lie in place around them.
#ifndef FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_
#define FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_

#include <memory>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/problem/rewrite_plain.hpp"

namespace faltung {

// What a problem is rewritten to: candidates share it.
using PlainRewrites = std::vector<std::shared_ptr<const PlainRewrite>>;

// A problem for an algorithm that does not compute it as it is. Without a pool. Algorithm and target outlive
// it.
class Rewriting {
 public:
  Rewriting(const Algorithm& algorithm, const Problem& problem, const Target& target);

  const Support& support() const { return support_; }
  // If it is supported. Named as those for the largest of the problems that it is rewritten to; the others
  // take the config of that name where there is one, else the first.
  Shortlist candidates(Extent extent) const;
  // Of these choices for the largest.
  Candidate candidate(const Maker& maker) const;

 private:
  const Algorithm& algorithm_;
  const Target& target_;
  Problem problem_;
  PlainRewrites rewrites_;  // the largest first
  Support support_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_REWRITTEN_HPP_
