// A schedule's steps bound to a GPU: kernels loaded, arguments laid out, constants there.
#ifndef FALTUNG_SRC_NETWORK_DEVICE_PROGRAM_HPP_
#define FALTUNG_SRC_NETWORK_DEVICE_PROGRAM_HPP_

#include <memory>
#include <span>
#include <vector>

#include "src/network/schedule.hpp"

namespace faltung::network {

// The memory of one run.
struct RunMemory {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  std::byte* arena;
};

class DeviceProgram {
 public:
  DeviceProgram(const Schedule& schedule, EngineImpl& engine, std::shared_ptr<Device> device);

  Device& device() const { return *device_; }
  std::size_t size() const { return steps_.size(); }
  // Whether a step reads or writes the caller's memory.
  bool is_callers(std::size_t step) const { return !steps_[step].callers.empty(); }
  // Submits the steps [first, last) and waits for nothing; allocates nothing. Thread-safe.
  void submit(std::size_t first, std::size_t last, const RunMemory& memory, const Stream& stream) const;

 private:
  // The caller's memory at one of a launch's places.
  struct Callers {
    faltung::Place place;
    Place from;
  };
  struct Bound {
    const NetworkStep* step;
    std::vector<std::unique_ptr<const BoundLaunch>> launches;  // none of a convolution's, whose plan has them
    std::vector<Callers> callers;
  };

  Bound place(const NetworkStep& step, class DeviceConstants& constants, std::vector<Launch>& launches) const;
  std::byte* address(const Place& place, const RunMemory& memory) const;
  void run_convolution(const NetworkStep& step, const RunMemory& memory, const Stream& stream) const;

  std::shared_ptr<Device> device_;
  std::vector<std::size_t> constants_at_;  // of the schedule's, in the buffer
  faltung::Buffer constants_;
  std::vector<Bound> steps_;
};

}  // namespace faltung::network

#endif  // FALTUNG_SRC_NETWORK_DEVICE_PROGRAM_HPP_
