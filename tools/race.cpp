#include "tools/race.hpp"

#include <algorithm>
#include <thread>

#include "src/finder/trial.hpp"

namespace faltung::tools {

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

namespace {

struct Counted {
  Block block;
  bool disturbed;
};

Counted undisturbed(const Contestant& contestant, double ms, Pace* pace) {
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    const Block block = contestant(ms);
    if (pace == nullptr || pace->is_kept()) return {block, false};
    const double took = ms_since(begin);
    if (!pace->regain()) return {block, true};
    pace->lost(took);
  }
}

}  // namespace

std::vector<Standing> race(const std::vector<Contestant>& contestants, const RacePolicy& policy, Pace* pace) {
  struct Score {
    std::vector<double> medians;
    double spent = 0;
    int runs = 0, disturbed = 0;
  };
  std::vector<Score> scores(contestants.size());
  for (int block = 0; block < policy.blocks; ++block) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Score& score = scores[i];
      if (block > 0 && score.spent > policy.most_ms) continue;
      const auto [result, disturbed] = undisturbed(contestants[i], policy.least_ms / policy.blocks, pace);
      score.disturbed += disturbed;
      score.medians.push_back(result.median);
      score.spent += result.median * result.runs;
      score.runs += result.runs;
      // Workers spin a while for their next step before they sleep; the next contestant must not pay for it.
      if (contestants.size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::vector<Standing> standings;
  for (Score& score : scores) {
    const Timing timing = summarize(std::move(score.medians));
    standings.push_back({timing.median, timing.min, timing.max, score.runs, score.disturbed});
  }
  return standings;
}

}  // namespace faltung::tools
