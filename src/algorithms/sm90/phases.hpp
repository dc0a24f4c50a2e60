// backward_data with strides as Hopper's engine, which knows forward, computes it: the results at each
// position within a stride are a dense convolution of stride 1 over y's gradient, with some of the filter's
// taps. One launch has the tiles of all of them, those with most taps first.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_PHASES_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_PHASES_HPP_

#include <string>
#include <vector>

#include "kernels/sm90/params.h"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/tiling.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung::sm90 {

struct Phases {
  // Forward over all of y's gradient, with as many taps in each direction as the largest phase has, and as
  // many results. NHWC, of which a stride leaves pixels whole; NCHW is turned before it, and after.
  Problem engine;
  // Most taps first; their tiles are not counted yet.
  std::vector<Phase> of;
};

// What is asked for as the engine takes it, in the same memory. A transposed convolution is the backward_data
// of another one, before the same epilogue. In NHWC a filter as wide as its stride, without padding across,
// has of S neighbouring pixels one tap each: they are one pixel of S times the channels, and half of the
// phases are gone (of 2 x 2 with stride 2). `repeats` of a bias are side by side then.
struct Asked {
  Problem problem;  // plain
  std::int64_t repeats = 1;
};
Asked as_asked(const Problem& problem);

bool has_phases(const Problem& asked);
// Why not, in words; empty where it has.
std::string without_phases(const Problem& asked);
Phases phases_of(const Problem& asked);

// What the engine, which knows forward alone, computes of a problem in either direction.
Problem engine_problem(const Problem& asked);
// backward_data without strides: whether no padding reaches beyond the filter, which would leave out some of
// y's gradient.
bool reads_whole_gradient(const Problem& asked);
// Whether y's gradient and the result are turned, by steps around the kernel.
bool turns_tensors(const Problem& asked);
// Of the weights where they are packed: as forward over y's gradient would have them, taps from the last one
// back.
Rewrite packed_weights_of(const Problem& asked);

// Every tiling worth trying; problem: engine_problem(asked), or as a form makes it.
std::vector<Tiling> tilings(const Problem& asked, const Problem& problem, const Chip& chip);
// Whether there are any: sooner than all of them.
bool has_tilings(const Problem& asked, const Problem& problem, const Chip& chip);
// Empty if the tiling can compute what was asked for, of which the engine sees problem; else which limit it
// breaks.
std::string unfit(const Tiling& tiling, const Problem& asked, const Problem& problem);

// Where all phases have as many taps and results their tiles take turns.
PhaseOrder phase_order(const std::vector<Phase>& phases);
// The phases with the tiles of each, and how many there are together.
int count_tiles(std::vector<Phase>& phases, const Tiling& tiling, const Problem& engine);
Estimate estimate_phases(const Tiling& tiling, const Problem& asked, const Chip& chip);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_PHASES_HPP_
