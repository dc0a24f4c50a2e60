// Which kernels may be used. A kernel is eligible on a device once it was tried there in a worker process: on
// a small problem, for one trial serves every size that runs the same programs. What hung, crashed or was
// wrong is quarantined.
#ifndef FALTUNG_SRC_FINDER_TRUST_TRUST_HPP_
#define FALTUNG_SRC_FINDER_TRUST_TRUST_HPP_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "src/finder/selection.hpp"
#include "src/finder/trust/verdicts.hpp"
#include "src/finder/trust/workers.hpp"

namespace faltung {

enum class Standing {
  trusted,      // without a trial: the test suite vouches for it, or TrustPolicy::all
  verified,     // on this device
  untried,      // on this device
  quarantined,  // on this device
};

class Trust {
 public:
  // shipped: see Verdicts. warn: called with one line for each kernel that is put into quarantine.
  Trust(Store& store, const Store* shipped, std::function<void(const std::string&)> warn);

  // Tries nothing.
  Standing standing(const Candidate& candidate, const Settled& settled) const;
  // Moves candidates that are in quarantine to the refusals, with the reason. Throws Error(unsupported) if
  // none is left.
  void sift(Selection& selection, const Settled& settled) const;
  // Whether it may be used. One that is untried is tried now, in the worker: its verdict is kept, and a bad
  // one warned of. Who asks for the same programs meanwhile waits for that verdict.
  bool admit(const Candidate& candidate, const Settled& settled);
  // Has the device's worker compile what admit or a measurement of these will need next, all at once. Does
  // nothing on the CPU.
  void compile_ahead(std::span<const Candidate* const> candidates, const Settled& settled);
  // Tries in the device's worker and keeps nothing of it; see Worker::examine.
  Report examine(const Task& task, const Settled& settled);
  // Stores the verdict: as verified, or in quarantine. problem: that was tried.
  void keep(const Candidate& candidate, const Problem& problem, const Settled& settled, const Report& report,
            std::uint64_t seed);
  // Puts the kernel into quarantine and warns. One that found no memory this time is only passed over.
  void condemn(const Candidate& candidate, const Problem& problem, const Settled& settled,
               const Report& report, std::uint64_t seed);

 private:
  class Turn;
  bool try_now(const Candidate& candidate, const Settled& settled);
  Workers& workers(const Settled& settled);

  Store& store_;
  Verdicts verdicts_;
  std::function<void(const std::string&)> warn_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Workers>> workers_;  // by device and command
  std::set<std::string> tried_now_;                          // keys of verdicts
  std::condition_variable trial_ended_;
};

// What a smaller problem keeps of the one that is asked for: long sums, or a large image.
enum class Keep { channels, image };

// The problem, or a smaller one that the same kernel computes by the same programs, on which a trial takes
// milliseconds. Keep::image: of at least 48 x 48 pixels where the kernel takes them, even if fewer are asked
// for. units: of which the device is to count as many, for a program may be for many rounds of blocks.
struct SmallProblem {
  Problem problem;
  int units;
};
SmallProblem small_problem(const Candidate& candidate, const Settled& settled, Keep keep = Keep::channels);
// Launches in a trial: some kernels are only wrong after hundreds.
inline constexpr int kTrialLaunches = 512;
// The trial that makes a kernel eligible.
Task small_task(const Candidate& candidate, const Settled& settled, std::uint64_t seed);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_TRUST_HPP_
