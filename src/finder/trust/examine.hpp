// Trying one kernel on one problem: compile, verify, run many times, time. What a worker process does; in the
// caller's own process only where the kernel is trusted already.
#ifndef FALTUNG_SRC_FINDER_TRUST_EXAMINE_HPP_
#define FALTUNG_SRC_FINDER_TRUST_EXAMINE_HPP_

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/finder/trial.hpp"
#include "src/finder/trust/verify.hpp"

namespace faltung {

// What is to be tried, and how thoroughly.
struct Task {
  std::string kernel;
  Problem problem;
  std::string device = "cpu";
  std::string device_key;  // DeviceInfo::key of the one that is meant; empty: whichever has the id
  std::string store;       // where compiled kernels are kept; empty: the default place
  // offline_compiler_of the device's code, by which it is compiled until the device is opened; empty where
  // there is none, or what it leaves in the store is not found.
  std::string compiler;
  int units = 0;  // of which it is to count as many: some programs depend on them. 0: as many as it has
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
  // The problem of the trial after this one, otherwise the same: its references are made while this one's
  // programs are compiled.
  std::optional<Problem> next;
};

// Whether a device still does what every kernel needs of it.
struct Probe {
  enum class Part { memory, compiler };
  std::string device;
  Part part = Part::memory;
};
inline const char* name(Probe::Part part) { return part == Probe::Part::memory ? "memory" : "compiler"; }

// Tries kernels one after the other. Inputs, expected results and buffers are kept: those of the last problem
// that was timed, and those of the last one that was not, for a find goes to and fro between them.
class Examiner {
 public:
  // watch: told of Phase::run before each run that is waited for.
  Report examine(const Task& task, const Watch& watch);
  // Makes the plans of several kernels at once, each in a thread of its own, and keeps them until they are
  // examined or others are made. What fails is left to its examination.
  void compile_ahead(const std::vector<Task>& tasks, const Watch& watch);
  // Throws if memory written there does not come back; if a kernel of one line does not compile.
  void probe(const Probe& probe);

 private:
  void examine(const Task& task, const Watch& watch, Report& report, Phase& phase);
  // Has the task's programs compiled into the store where its device was not yet opened here: a driver takes
  // a tenth of a second to wake. The milliseconds that it took, once it is done; invalid where nothing is to
  // be.
  std::future<double> compile_unopened(const Task& task);
  // What trials of one problem share.
  struct Kept {
    std::string what;
    std::optional<Verifier> verifier;
    std::optional<Oracle> oracle;
    std::optional<Arena> arena;
  };
  Kept& kept_for(const Task& task, const std::shared_ptr<Device>& device);
  Kept make_kept(const Task& task, const std::shared_ptr<Device>& device);
  const std::shared_ptr<const Parallel>& workers(int count);
  Store& store(const std::string& location);
  std::shared_ptr<const PlanImpl> plan_of(const Task& task, const Candidate& candidate, Store& store) const;

  Kept timed_, untimed_, next_;
  std::set<std::string> opened_;  // devices
  std::map<int, std::shared_ptr<const Parallel>> workers_;
  std::map<std::string, Store> stores_;
  std::map<std::string, std::shared_ptr<const PlanImpl>> ahead_;  // by what they are plans of
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_EXAMINE_HPP_
