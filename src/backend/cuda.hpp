// NVIDIA GPUs, through the driver's own library, opened at run time.
#ifndef FALTUNG_SRC_BACKEND_CUDA_HPP_
#define FALTUNG_SRC_BACKEND_CUDA_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// What a CUDA device has recorded may also be submitted to a stream of the caller's, after what is there.
class CudaGraph : public Recording {
 public:
  virtual void submit(const Stream& stream) = 0;
};

class CudaDevice : public Device {
 public:
  // Whether somebody records what is submitted to the stream.
  virtual bool is_capturing(const Stream& stream) const = 0;
  // Milliseconds of one replay of what `work` submits to the stream that it is given, captured as a graph:
  // free of launch gaps. One entry a replay, after one that is not timed.
  virtual std::vector<double> time_replays(const std::function<void(const Stream&)>& work, int replays) = 0;
};

// One for each GPU; none where there is no driver.
std::vector<std::shared_ptr<Device>> make_cuda_devices();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_CUDA_HPP_
