// Timing a plan: the object that is timed is the plan that will run.
#ifndef FALTUNG_SRC_FINDER_TRIAL_HPP_
#define FALTUNG_SRC_FINDER_TRIAL_HPP_

#include <functional>
#include <memory>
#include <vector>

#include "src/finder/oracle.hpp"
#include "src/plan/plan.hpp"

namespace faltung {

// Device buffers to run a problem on, in several sets that are used in turn so that together they exceed the
// last-level cache: what is timed is then a layer in a network, not one that finds its tensors in the cache.
class Arena {
 public:
  // at_least_bytes: how much all sets together should hold. At most max_sets are made, none once most_ms have
  // gone by; but always two, unless one alone holds so much.
  Arena(Device& device, const Oracle& oracle, std::size_t at_least_bytes, int max_sets = 64,
        double most_ms = 1e9);
  const Tensors& next();
  void begin_again() { turn_ = 0; }  // the next is the first
  const Tensors& first() const { return sets_.front().tensors; }
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  struct Set {
    std::vector<Buffer> buffers;
    Tensors tensors;
  };
  Buffer copy(Device& device, const void* from, std::int64_t bytes);

  std::vector<Set> sets_;
  std::vector<Buffer> constant_;  // weights and bias, shared by the sets
  std::size_t turn_ = 0;
};

// A plan with its packed weights and workspace, run on an arena's sets in turn.
class Runner {
 public:
  Runner(std::shared_ptr<const PlanImpl> plan, Arena& arena);
  // Milliseconds of one run on the next set of buffers. A short run on a device that records is the mean of
  // several of a recording, on the next sets in turn: its launches' gaps are not the kernel's.
  double time_once();
  // How many runs the next time_once takes the mean of.
  int runs_at_once() const { return runs_at_once_; }
  // Called before each run, outside what is timed.
  void before_each(std::function<void()> call) { before_each_ = std::move(call); }
  const PlanImpl& plan() const { return *plan_; }

 private:
  std::shared_ptr<const PlanImpl> plan_;
  Arena& arena_;
  std::shared_ptr<const PackedWeights> weights_;
  Buffer workspace_;
  RunOptions options_;
  std::function<void()> before_each_;
  std::unique_ptr<Recording> recording_;
  double shortest_ms_ = 0;  // of single runs
  int singles_ = 0, runs_at_once_ = 1;
};

// Times the best: may still be the faster one, measured again.
inline constexpr double kClose = 1.2;

struct Timing {
  double median = 0, min = 0, max = 0;  // milliseconds
  int runs = 0;
  bool stopped_early = false;  // it could no longer win
};

Timing summarize(std::vector<double> ms);

// Runs for about budget_ms, at least three times after a warm-up; stops early once it is clear that the
// runner does not come under best_ms. A run that takes the budget several times over is timed once, and is
// its own warm-up.
Timing time_runner(Runner& runner, double budget_ms, double best_ms);

// Runs them in turn, a few milliseconds each, for about budget_ms and at least one round: what the machine
// does meanwhile hits all alike. In the order given.
std::vector<Timing> race(const std::vector<Runner*>& runners, double budget_ms);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRIAL_HPP_
