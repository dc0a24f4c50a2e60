// What a network will ask of a GPU, told without a run, a plan, or the GPU: `faltung network prepare` makes
// it ready.
#ifndef FALTUNG_SRC_NETWORK_SURVEY_HPP_
#define FALTUNG_SRC_NETWORK_SURVEY_HPP_

#include <vector>

#include "src/network/lowering.hpp"

namespace faltung::network {

struct Survey {
  std::vector<Problem> problems;      // convolutions and products by constants
  std::vector<jit::Source> programs;  // of all other steps
};

// graph: with all its shapes, after the passes. Each problem and each program once, in the order of the
// steps.
Survey survey(const Graph& graph, const Lowering::Settings& settings);

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_SURVEY_HPP_
