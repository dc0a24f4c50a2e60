// The two ends of a worker: the process that tries kernels, and who asks it. A kernel that hangs or crashes
// takes the process with it and nothing else.
#ifndef FALTUNG_SRC_FINDER_TRUST_WORKER_HPP_
#define FALTUNG_SRC_FINDER_TRUST_WORKER_HPP_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/finder/settings.hpp"
#include "src/finder/trust/examine.hpp"
#include "src/finder/trust/process.hpp"

namespace faltung {

// No kernel can be tried, whichever it is.
class NoWorker : public Error {
 public:
  explicit NoWorker(const std::string& message) : Error(Status::unsupported, message) {}
};

// The command to start as a worker: the one that was given, else `faltung` beside the library or the program,
// else in PATH. Throws NoWorker, which says what to set.
std::string worker_command(const std::string& given);

// One device's worker. It is started when it is first needed and kept; thread-safe.
class Worker {
 public:
  // command: empty for the installed one; see worker_command.
  Worker(std::string device, std::string command);
  ~Worker();
  // Never hangs. Throws NoWorker if there is none or it does not start, if the device itself cannot be used
  // or does not come back after a kernel hung on it, or if it has no compiler or one that ends its process.
  // What calls that come at once need is compiled at once, too.
  Report examine(const Task& task, const Deadlines& deadlines);
  // Has the worker make their plans, all at once. Never hangs; a compiler that does, or crashes, costs the
  // worker its life and is met again in the kernel's own examination. Throws as examine does.
  void compile_ahead(const std::vector<Task>& tasks, const Deadlines& deadlines);

 private:
  std::vector<Task> take_waiting();
  void compile_waiting();
  void start();
  void ask(const std::string& line);
  Report converse(const Task& task);
  Report ended(Phase phase);
  Report hung(Phase phase, double deadline_ms);
  bool passes(Probe::Part part, std::string& why);
  [[noreturn]] void lose(const std::string& what);

  std::string device_, command_;
  std::string lost_;     // why the device can no longer be used; empty while it can
  Deadlines deadlines_;  // of what is asked
  std::mutex mutex_, waiting_mutex_;
  std::vector<Task> waiting_;  // for their turn, and whose programs were not compiled ahead
  std::unique_ptr<LineProcess> process_;
  int owner_ = 0;  // the process that started it: a fork of the caller's makes its own
};

// The other end: answers requests from standard input on standard output until there are no more, or was none
// for so long. Returns the exit code.
int serve_worker(int idle_ms = 30'000);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_WORKER_HPP_
