// Forward and the two gradients are three views of one trilinear form: <dy, conv(x, w)> = <dx, x> = <dw, w>,
// exactly on integers. Its value for one x, w and dy, by any kernel of any direction.
#ifndef FALTUNG_TESTS_ADJOINT_HPP_
#define FALTUNG_TESTS_ADJOINT_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "src/plan/plan.hpp"
#include "src/problem/dtype.hpp"

namespace faltung {

inline constexpr Direction kDirections[] = {Direction::forward, Direction::backward_data,
                                            Direction::backward_weights};

class TrilinearForm {
 public:
  // Of the problem's tensors in its dtype and layout, whatever its direction.
  TrilinearForm(const Problem& p, std::uint64_t seed) : dtype_(p.dtype), random_(seed) {
    x_ = integers(x_shape(p).elements());
    w_ = integers(w_shape(p).elements());
    dy_ = integers(conv_shape(p).elements());
  }

  // The plan's result, multiplied by the tensor in whose place it stands.
  double by(const PlanImpl& plan) const {
    Device& device = plan.device();
    const Buffer x = upload(device, x_), w = upload(device, w_), dy = upload(device, dy_);
    const bool is_dy = plan.problem().direction == Direction::forward,
               is_x = plan.problem().direction == Direction::backward_data;
    const std::vector<float>& with = is_dy ? dy_ : is_x ? x_ : w_;
    const Buffer& result = is_dy ? dy : is_x ? x : w;
    std::vector<std::byte> bytes(result.bytes, std::byte{0xff});  // NaN
    device.copy_in(result, bytes.data(), bytes.size());
    RunOptions options;
    const Buffer workspace = device.allocate(plan.workspace_bytes(false) + 1);
    options.workspace = workspace.pointer;
    plan.run({x.pointer, w.pointer, dy.pointer, nullptr, nullptr}, options);
    device.synchronize({});
    device.copy_out(bytes.data(), result, bytes.size());
    double sum = 0, largest = 0;  // of integers: both hold them
    for (std::size_t i = 0; i < with.size(); ++i) {
      const double element = load_element(dtype_, bytes.data(), static_cast<std::int64_t>(i));
      largest = std::max(largest, std::abs(element));
      sum += element * with[i];
    }
    // Up to here the dtype has every integer; beyond, this test would ask for too much.
    EXPECT_LE(largest, dtype_ == DType::f32 ? 1 << 24 : dtype_ == DType::f16 ? 2048 : 256) << plan.kernel();
    return sum;
  }

 private:
  // Of 16 bits smaller ones: a result is to be an integer that the dtype has, and has 8 to 11 bits for it.
  std::vector<float> integers(std::int64_t count) {
    const std::uint64_t most = dtype_ == DType::f32 ? 2 : 1;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = static_cast<float>(random_() % (2 * most + 1)) - static_cast<float>(most);
    return values;
  }

  Buffer upload(Device& device, const std::vector<float>& values) const {
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype_)));
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(dtype_, bytes.data(), static_cast<std::int64_t>(i), values[i]);
    const Buffer buffer = device.allocate(bytes.size());
    device.copy_in(buffer, bytes.data(), bytes.size());
    return buffer;
  }

  DType dtype_;
  std::mt19937_64 random_;
  std::vector<float> x_, w_, dy_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_ADJOINT_HPP_
