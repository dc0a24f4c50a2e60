// NVIDIA GPUs, through the driver's own library, opened at run time.
#ifndef FALTUNG_SRC_BACKEND_CUDA_HPP_
#define FALTUNG_SRC_BACKEND_CUDA_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// The driver's description of a tensor for the bulk copy engine (Hopper and later): passed to a kernel by
// value, as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

// Boxes of a tensor of up to five dimensions, innermost first. stride_bytes[i] is the distance between
// neighbours in dimension i + 1.
struct TiledMap {
  DType dtype = DType::f16;
  bool rounds_to_tf32 = false;  // f32 alone: what is loaded has 10 bits of mantissa, rounded to nearest
  const void* address = nullptr;
  int rank = 0;
  std::int64_t size[5] = {};
  std::int64_t stride_bytes[4] = {};
  int box[5] = {};
  int step[5] = {1, 1, 1, 1, 1};  // every step-th element in each dimension
  int swizzle_bytes = 0;          // 0, 32, 64 or 128
};

// Columns of pixels of an NHWC tensor at one filter tap: sizes are c, w, h, n; corners are w, h.
struct Im2colMap {
  DType dtype = DType::f16;
  bool rounds_to_tf32 = false;
  const void* address = nullptr;
  std::int64_t size[4] = {};
  std::int64_t stride_bytes[3] = {};
  int lower[2] = {}, upper[2] = {};
  int channels = 0, pixels = 0;  // of one box
  int step[2] = {1, 1};
  int swizzle_bytes = 0;
};

class CudaDevice : public Device {
 public:
  // A map that cannot be encoded throws Error(unsupported) that says which limit it breaks.
  virtual TensorMap encode(const TiledMap& map) const = 0;
  virtual TensorMap encode(const Im2colMap& map) const = 0;

  // Milliseconds of one replay of what `work` submits to the stream that it is given, captured as a graph:
  // free of launch gaps. One entry a replay, after one that is not timed.
  virtual std::vector<double> time_replays(const std::function<void(const Stream&)>& work, int replays) = 0;
};

// One for each GPU; none where there is no driver.
std::vector<std::shared_ptr<Device>> make_cuda_devices();

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_CUDA_HPP_
