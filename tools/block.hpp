// How one block of runs is timed: the same lines for us and for the peers in bench/peers.
#ifndef FALTUNG_TOOLS_BLOCK_HPP_
#define FALTUNG_TOOLS_BLOCK_HPP_

#include <algorithm>
#include <functional>
#include <vector>

namespace faltung::tools {

// Several runs in a row of one implementation, each timed, after a warm-up that is not.
struct Block {
  double median, min, max;  // milliseconds
  int runs;
};

// time_once: milliseconds of one run on the next set of buffers, the mean of `runs_at_once` of them.
inline Block run_block(
    const std::function<double()>& time_once, double ms,
    const std::function<int()>& runs_at_once = [] { return 1; }) {
  // The warm-up wakes the threads, and outlasts those of the contestant before, which spin a while.
  constexpr double kWarmUp = 1;
  double spent = 0;
  do {
    const int runs = runs_at_once();
    spent += time_once() * runs;
  } while (spent < kWarmUp);
  if (spent > 20 * kWarmUp && spent > ms)
    return {spent, spent, spent, 1};  // so long that its start is nothing
  std::vector<double> times;
  spent = 0;
  int runs = 0;
  do {
    const int together = runs_at_once();
    times.push_back(time_once());
    spent += times.back() * together;
    runs += together;
  } while (spent < ms);
  std::sort(times.begin(), times.end());
  const std::size_t half = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {median, times.front(), times.back(), runs};
}

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_BLOCK_HPP_
