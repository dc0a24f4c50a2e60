// Trying one kernel on one problem: compile, verify, run many times, time. What a worker process does; in the
// caller's own process only where the kernel is trusted already.
#ifndef FALTUNG_SRC_FINDER_EXAMINE_HPP_
#define FALTUNG_SRC_FINDER_EXAMINE_HPP_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/finder/trial.hpp"
#include "src/finder/verify.hpp"

namespace faltung {

// What is to be tried, and how thoroughly.
struct Task {
  std::string kernel;
  Problem problem;
  std::string device = "cpu";
  std::string device_key;  // DeviceInfo::key of the one that is meant; empty: whichever has the id
  int threads = 1;
  std::uint64_t seed = 1;
  // Guard zones, results full of NaN, exact on small integers, within the bound; where it is timed as well,
  // only if it came close to best_ms.
  bool verify = true;
  double products = 3e8;        // of the reference, for a check; larger problems are checked on a sample
  int launches = 0;             // so many more, whose results must all be the first one's to the bit
  double time_ms = 0;           // time it for about so long; 0: not at all
  double best_ms = 0;           // stop timing once it cannot come under this; 0: there is no rival yet
  std::size_t arena_bytes = 0;  // of the buffers it is timed on, and how long filling them may take
  double arena_ms = 1e9;
  double predicted_ms = 0;  // of one run, for the deadlines
};

// What became of it.
struct Verdict {
  // pass, slow, wrong, out_of_bounds, hang, crash, compile_error, out_of_memory; declined where the kernel
  // does not take the problem, which says nothing against it.
  std::string verdict = "pass";
  std::string what;  // was seen, in words
  double error_over_bound = -1;
  double compile_ms = 0;
  Timing timing;
  std::size_t workspace_bytes = 0;
  // The device has less memory than it needs at all. If not, out_of_memory may be different another time.
  bool never_fits = false;
  bool passed() const { return verdict == "pass"; }
  static Verdict of(std::string verdict, std::string what) {
    Verdict v;
    v.verdict = std::move(verdict);
    v.what = std::move(what);
    return v;
  }
};

// Tries kernels one after the other. Inputs, expected results and buffers of the last problem are kept.
class Examiner {
 public:
  // watch: told of Phase::run before each run that is waited for.
  Verdict examine(const Task& task, const Watch& watch);
  // Makes the plans of several kernels at once, each in a thread of its own, and keeps them until they are
  // examined or others are made. What fails is left to its examination.
  void compile_ahead(const std::vector<Task>& tasks, const Watch& watch);
  // Whether the device still computes: memory written there comes back. Throws if it does not.
  void probe(const std::string& device);

 private:
  void examine(const Task& task, const Watch& watch, Verdict& verdict, Phase& phase);
  Verification verify(const Task& task, const std::shared_ptr<const PlanImpl>& plan, const Watch& watch);
  void keep_for(const Task& task, const std::shared_ptr<Device>& device);
  const std::shared_ptr<const Parallel>& workers(int count);
  std::shared_ptr<const PlanImpl> make_plan(const Task& task) const;

  std::string kept_;  // what the following are for
  std::optional<Verifier> verifier_;
  std::optional<Oracle> oracle_;
  std::optional<Arena> arena_;
  std::map<int, std::shared_ptr<const Parallel>> workers_;
  std::map<std::string, std::shared_ptr<const PlanImpl>> ahead_;  // by what they are plans of
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_EXAMINE_HPP_
