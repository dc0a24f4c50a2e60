// How an operator and a copy beside it are run to be timed: on sets of buffers used in turn that together
// exceed twice the last-level cache (at most 1 GiB of them), short ones on a GPU as many in a graph as take a
// millisecond.
#ifndef FALTUNG_TOOLS_OP_RUNS_HPP_
#define FALTUNG_TOOLS_OP_RUNS_HPP_

#include <functional>
#include <memory>
#include <vector>

#include "src/network/interpreter.hpp"
#include "src/network/network.hpp"

namespace faltung::tools {

// Of so many bytes each.
std::size_t sets_beyond_cache(const DeviceInfo& device, std::size_t bytes);

// run: submits one run, on the next set.
class OpTimer {
 public:
  OpTimer(Device& device, std::function<void(const Stream&)> run) : device_(device), run_(std::move(run)) {}
  // Milliseconds of a run: the mean of as many as are recorded together, because gaps between launches are
  // not the kernel's.
  double time_once();
  int runs_at_once() const { return runs_at_once_; }

 private:
  Device& device_;
  std::function<void(const Stream&)> run_;
  std::unique_ptr<Recording> recording_;
  int singles_ = 0, runs_at_once_ = 1;
};

// A plan with the caller's memory.
class OpRuns {
 public:
  OpRuns(const NetworkPlanImpl& plan, const std::vector<network::Array>& inputs);
  // Of the first set's run.
  network::Array result();
  void run_next(const Stream& stream);
  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  struct Set {
    std::vector<const void*> reads;
    std::vector<void*> writes;
  };
  Device& device() const { return plan_.device(); }
  void* copy(const void* from, std::size_t bytes);

  const NetworkPlanImpl& plan_;
  std::size_t result_bytes_ = 0, turn_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Set> sets_;
  NetworkRunOptions options_;
};

// The driver's own copies on a device.
class DriverCopies {
 public:
  DriverCopies(Device& device, std::size_t bytes);
  // False where the driver has none.
  bool run_next(const Stream& stream);

 private:
  struct Set {
    Buffer from, to;
  };
  Device& device_;
  std::size_t bytes_, turn_ = 0;
  std::vector<Set> sets_;
};

}  // namespace faltung::tools

#endif  // FALTUNG_TOOLS_OP_RUNS_HPP_
