// Several workers of one device, for callers that come at once.
#ifndef FALTUNG_SRC_FINDER_TRUST_WORKERS_HPP_
#define FALTUNG_SRC_FINDER_TRUST_WORKERS_HPP_

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "src/finder/trust/worker.hpp"

namespace faltung {

// So many for the device: a trial is the host's work for most of its time. Where one process's kernel that
// hangs would hold up another's, one.
int most_workers(const DeviceInfo& device);

// Each is started when all before it have callers. Thread-safe.
class Workers {
 public:
  Workers(std::string device, std::string command, int most);
  // As Worker has them. What is timed has the device alone.
  Report examine(const Task& task, const Deadlines& deadlines);
  void compile_ahead(const std::vector<Task>& tasks, const Deadlines& deadlines);

 private:
  struct Slot {
    Slot(const std::string& device, const std::string& command) : worker(device, command) {}
    Worker worker;
    int callers = 0;
  };
  class Turn;

  const std::string device_, command_;
  const std::size_t most_;
  std::shared_mutex timing_;
  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_WORKERS_HPP_
