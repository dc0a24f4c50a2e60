#include "tools/pace.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace faltung::tools {

using Clock = std::chrono::steady_clock;

bool Gauge::is_kept() {
  // A neighbour's load changes the clock by up to 1.3; two threads on one core leave each some 0.6.
  constexpr double kMostBehind = 1.4;
  // The best of a few: a single interrupt is none of what lasts.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const double now = rate();
    fastest = std::max(fastest, now);
    if (fastest <= kMostBehind * now) return true;
  }
  return false;
}

Pace::Pace(std::vector<Gauge> gauges, double patience_ms) : gauges_(std::move(gauges)) {
  for (Gauge& gauge : gauges_) gauge.patience_ms = patience_ms;
}

bool Pace::is_kept() {
  const auto behind =
      std::find_if_not(gauges_.begin(), gauges_.end(), [](Gauge& gauge) { return gauge.is_kept(); });
  if (behind == gauges_.end()) return true;
  behind_ = static_cast<std::size_t>(behind - gauges_.begin());
  return false;
}

bool Pace::regain() {
  constexpr std::chrono::milliseconds kPause(20);
  Gauge& gauge = gauges_[behind_];
  while (gauge.patience_ms > 0) {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(kPause);
    const bool kept = gauge.is_kept();
    lost(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    if (kept) return true;
  }
  return false;
}

Pace pace_of(std::shared_ptr<const Parallel> workers, const Ceilings& ceilings, double patience_ms,
             std::shared_ptr<Copies> copies) {
  // Each takes some tenth of a millisecond.
  constexpr long kRounds = 60'000;
  constexpr std::size_t kCopied = std::size_t{4} << 20;
  const auto multiply_adds = [workers] {
    multiply_add_gflops(*workers, kRounds / 10);  // wakes them
    return multiply_add_gflops(*workers, kRounds);
  };
  const auto copied = [workers, copies = std::move(copies)] { return copies->gbps(*workers, kCopied); };
  return Pace({{multiply_adds, ceilings.f32.gflops}, {copied, ceilings.copy_gbps}}, patience_ms);
}

}  // namespace faltung::tools
