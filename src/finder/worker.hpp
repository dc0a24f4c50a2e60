// The two ends of a worker: the process that tries kernels, and who asks it. A kernel that hangs or crashes
// takes the process with it and nothing else.
#ifndef FALTUNG_SRC_FINDER_WORKER_HPP_
#define FALTUNG_SRC_FINDER_WORKER_HPP_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/finder/examine.hpp"
#include "src/finder/process.hpp"

namespace faltung {

// How long a trial may stay in each phase, in milliseconds.
struct Deadlines {
  double start = 60e3;  // of the process
  double open = 60e3;   // the device's driver wakes
  double compile = 120e3;
  double run = 10e3;     // the least; predicted_ms is added, times the following
  double factor = 100;   // how wrong the cost model may be
  double check = 300e3;  // the host's own work
  // FALTUNG_DEADLINE, in seconds, is the least time for a run; a compilation has twelve times that.
  static Deadlines from_environment();
  double of(Phase phase, double predicted_ms) const;
};

// The command to start as a worker: FALTUNG_WORKER, else `faltung` beside the program or the library. Throws
// Error(unsupported), which says what to set.
std::string worker_command();

// One device's worker. It is started when it is first needed and kept; thread-safe.
class Worker {
 public:
  explicit Worker(std::string device);
  ~Worker();
  // Never hangs. Throws Error(unsupported) if there is no worker command, Error(device_error) if the device
  // itself cannot be used, or does not come back after a kernel hung on it.
  Verdict examine(const Task& task);
  // Has the worker make their plans, all at once. Never hangs; a compiler that does, or crashes, costs the
  // worker its life and is met again in the kernel's own examination. Throws as examine does.
  void compile_ahead(const std::vector<Task>& tasks);

 private:
  void start();
  void ask(const std::string& line);
  Verdict converse(const Task& task);
  Verdict ended(Phase phase);
  Verdict hung(Phase phase, double deadline_ms);
  void probe(const std::string& after);

  std::string device_;
  std::string lost_;  // why the device can no longer be used; empty while it can
  Deadlines deadlines_ = Deadlines::from_environment();
  std::mutex mutex_;
  std::unique_ptr<LineProcess> process_;
  int owner_ = 0;  // the process that started it: a fork of the caller's makes its own
};

// The other end: answers requests from standard input on standard output until there are no more. Returns the
// exit code.
int serve_worker();

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_WORKER_HPP_
