// What a candidate makes of a problem: steps over the caller's tensors, a workspace and packed weights.
#ifndef FALTUNG_SRC_PLAN_RECIPE_HPP_
#define FALTUNG_SRC_PLAN_RECIPE_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "src/plan/step.hpp"

namespace faltung {

// Workspace and packed weights start on such a boundary; recipes may rely on it.
inline constexpr std::size_t kAlignment = 64;

inline constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What a caller brings for so many bytes of workspace, and of weights that the run packs itself: its pointer
// may be aligned to less.
inline constexpr std::size_t workspace_to_bring(std::size_t workspace, std::size_t packed_by_the_run) {
  if (packed_by_the_run > 0) workspace = aligned(workspace) + packed_by_the_run;
  return workspace == 0 ? 0 : workspace + kAlignment;
}

struct Recipe {
  std::vector<Step> pack;   // read w, write packed: done once where weights are constant
  std::vector<Step> steps;  // done at every run
  std::size_t packed_bytes = 0;
  std::size_t workspace_bytes = 0;  // for all of the plan's workers together
  std::size_t alignment = 1;        // bytes that the addresses of x, w, y and the residual are multiples of
  // What the packed weights depend on, in words: plans whose packing is the same take each other's, whatever
  // their batch and image. Empty: they serve this plan alone.
  std::string packing;
  // What else packs in the same order, in a name of theirs: plans of one such name, whose packing is the
  // same, take each other's. Empty: those of the same kernel alone.
  std::string packed_for;
};

// Whether a run that is timed finds its weights packed: those of forward are constant, those of backward_data
// change at every step, so that packing them is a part of it.
inline bool packs_beforehand(const Problem& problem, const Recipe& recipe) {
  return problem.direction == Direction::forward && recipe.packed_bytes > 0;
}

// Whether a kernel of it reads weights that rest before those in front of it have ended.
bool reads_weights_early(const Recipe& recipe);

// The digests of the programs that a GPU's steps launch, in their order, each once: what a verdict is on.
std::vector<std::string> program_digests(const Recipe& recipe);

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_RECIPE_HPP_
