// Timing several implementations in turn, A B A B, so that what disturbs the machine disturbs them all.
#ifndef FALTUNG_TOOLS_RACE_HPP_
#define FALTUNG_TOOLS_RACE_HPP_

#include <chrono>
#include <functional>
#include <vector>

#include "tools/block.hpp"
#include "tools/pace.hpp"

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
  int disturbed = 0;  // blocks among them after which the machine had lost its pace
};

double ms_since(std::chrono::steady_clock::time_point begin);

// A block that ends with the machine's pace lost does not count and is run again, while there is patience.
std::vector<Standing> race(const std::vector<Contestant>& contestants, const RacePolicy& policy,
                           Pace* pace = nullptr);

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_RACE_HPP_
