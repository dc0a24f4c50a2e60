#include "tools/pace.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/cpu/ceilings.hpp"

namespace faltung::tools {

using Clock = std::chrono::steady_clock;

Pace::Pace(std::function<double()> rate, double fastest, double patience_ms)
    : rate_(std::move(rate)), fastest_(fastest), patience_ms_(patience_ms) {}

bool Pace::is_kept() {
  // A neighbour's load changes the clock by up to 1.3; two threads on one core leave each some 0.6.
  constexpr double kMostBehind = 1.4;
  // The best of a few: a single interrupt is none of what lasts.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const double rate = rate_();
    fastest_ = std::max(fastest_, rate);
    if (fastest_ <= kMostBehind * rate) return true;
  }
  return false;
}

bool Pace::regain() {
  constexpr std::chrono::milliseconds kPause(20);
  while (patience_ms_ > 0) {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(kPause);
    const bool kept = is_kept();
    lost(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    if (kept) return true;
  }
  return false;
}

Pace pace_of(std::shared_ptr<const Parallel> workers, double f32_gflops, double patience_ms) {
  constexpr long kRounds = 60'000;  // a tenth of a millisecond
  return Pace(
      [workers = std::move(workers)] {
        multiply_add_gflops(*workers, kRounds / 10);  // wakes them
        return multiply_add_gflops(*workers, kRounds);
      },
      f32_gflops, patience_ms);
}

}  // namespace faltung::tools
