// A request made concrete, once a call: what it leaves open is filled in from the environment. The variables
// are listed in docs/settings.md; no other file of the finder reads them.
#ifndef FALTUNG_SRC_FINDER_SETTINGS_HPP_
#define FALTUNG_SRC_FINDER_SETTINGS_HPP_

#include <memory>
#include <string>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/problem/float_mode.hpp"

namespace faltung {

// Allowed and skipped kernels: the request's patterns and those of FALTUNG_ONLY and FALTUNG_SKIP (separated
// by commas). A pattern matches a whole kernel name or a whole algorithm name.
class Filter {
 public:
  // Throws Error(bad_problem) for a pattern that no algorithm can match, naming the nearest.
  explicit Filter(const Request& request);
  bool allows(const Algorithm& algorithm, const std::string& kernel) const;
  // Kernels that are named in full: tried even where their algorithm does not list them for the problem.
  const std::vector<std::string>& forced() const { return forced_; }

 private:
  std::vector<std::string> only_, skip_, forced_;
};

// How long a trial may stay in each phase, in milliseconds.
struct Deadlines {
  double start = 60e3;  // of the process
  double open = 60e3;   // the device's driver wakes
  double compile = 120e3;
  double run = 10e3;     // the least; predicted_ms is added, times the following
  double factor = 100;   // how wrong the cost model may be
  double check = 300e3;  // the host's own work
  // run_ms is the least time for a run; a compilation has twelve times that. 0: FALTUNG_DEADLINE, in seconds,
  // else the above.
  static Deadlines of_run(double run_ms);
};

// Who tries kernels, and how long it may take. An empty command: `faltung` beside the program or the library.
struct WorkerPolicy {
  std::string command;
  Deadlines deadlines;
};

WorkerPolicy worker_policy(const Request& request);

struct Settled {
  // Throws Error(bad_problem) that names the offending part.
  Settled(const Problem& problem, const Request& request);

  Problem problem;  // valid, its math said
  std::shared_ptr<Device> device;
  int threads;  // 1 on a GPU
  Filter filter;
  std::size_t workspace_limit;
  bool deterministic;
  Denormals denormals;
  double budget_ms;
  TrustPolicy trust;
  WorkerPolicy worker;
  bool logs_find;

  Target target(const Ceilings& measured = {}) const { return {device->info(), threads, measured}; }
  bool on_cpu() const { return device->info().kind == "cpu"; }
  // What a choice depends on beside what is stored.
  std::string key() const;

 private:
  std::string patterns_;
};

inline constexpr int kMostThreads = 4096;  // workspaces have a part for each
// How many the request has on the device: on a GPU one. Throws Error(bad_problem) beyond kMostThreads.
int threads_of(const Request& request, const DeviceInfo& device);

// FALTUNG_KNOWN_DEVICES, or where the package's file lies; empty for none.
struct KnownDevices {
  std::string file;
  bool asked_for;
};
KnownDevices known_devices();

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_SETTINGS_HPP_
