// Timing several implementations in turn, A B A B, so that what disturbs the machine disturbs them all.
#ifndef FALTUNG_TOOLS_RACE_HPP_
#define FALTUNG_TOOLS_RACE_HPP_

#include <chrono>
#include <functional>
#include <vector>

#include "tools/block.hpp"

namespace faltung::tools {

// Runs for about this many milliseconds, at least once.
using Contestant = std::function<Block(double ms)>;

struct RacePolicy {
  int blocks = 9;         // of each contestant
  double least_ms = 200;  // of runs, over a contestant's blocks
  double most_ms = 4000;  // a contestant that has used more leaves
};

struct Standing {
  double ms = 0;                  // median of the blocks' medians
  double ms_min = 0, ms_max = 0;  // the fastest and the slowest block's median
  int runs = 0;
};

double ms_since(std::chrono::steady_clock::time_point begin);

std::vector<Standing> race(const std::vector<Contestant>& contestants, const RacePolicy& policy);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_RACE_HPP_
