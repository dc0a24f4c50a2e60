#include "src/finder/trust/workers.hpp"

#include <algorithm>
#include <optional>

namespace faltung {

int most_workers(const DeviceInfo& device) {
  // On an H200 with 16 processors four passed 18 trials a second, fourteen 19.
  constexpr int kMost = 4, kProcessorsEach = 4;
  return device.dialect == "cuda" ? std::clamp(available_processors() / kProcessorsEach, 1, kMost) : 1;
}

// A worker for the time of a call: the first that nobody has, else a new one, else that of the fewest.
class Workers::Turn {
 public:
  explicit Turn(Workers& workers) : workers_(workers) {
    const std::lock_guard lock(workers_.mutex_);
    auto& slots = workers_.slots_;
    const auto least = std::ranges::min_element(slots, {}, [](const auto& slot) { return slot->callers; });
    const bool is_free = least != slots.end() && (*least)->callers == 0;
    if (!is_free && slots.size() < workers_.most_) {
      slots.push_back(std::make_unique<Slot>(workers_.device_, workers_.command_));
      slot_ = slots.back().get();
    } else {
      slot_ = least->get();
    }
    ++slot_->callers;
  }
  ~Turn() {
    const std::lock_guard lock(workers_.mutex_);
    --slot_->callers;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  Worker& worker() const { return slot_->worker; }

 private:
  Workers& workers_;
  Slot* slot_;
};

Workers::Workers(std::string device, std::string command, int most)
    : device_(std::move(device)), command_(std::move(command)), most_(static_cast<std::size_t>(most)) {}

Report Workers::examine(const Task& task, const Deadlines& deadlines) {
  std::shared_lock beside(timing_, std::defer_lock);
  std::unique_lock alone(timing_, std::defer_lock);
  task.time_ms > 0 ? alone.lock() : beside.lock();
  return Turn(*this).worker().examine(task, deadlines);
}

void Workers::compile_ahead(const std::vector<Task>& tasks, const Deadlines& deadlines) {
  Turn(*this).worker().compile_ahead(tasks, deadlines);
}

}  // namespace faltung
