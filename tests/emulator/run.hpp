// A plan run on an emulated device, and what came of it.
#ifndef FALTUNG_TESTS_EMULATOR_RUN_HPP_
#define FALTUNG_TESTS_EMULATOR_RUN_HPP_

#include <algorithm>
#include <vector>

#include "src/finder/oracle.hpp"
#include "src/plan/plan.hpp"
#include "src/problem/dtype.hpp"

namespace faltung::emulator {

// What the tests of faults leave out: x's last element, or all that x holds.
enum class Inputs { whole, x_too_short, x_undefined };

// One run of a plan on buffers that are exactly as large as their tensors; what of them nobody wrote is
// undefined.
inline Finding run(const PlanImpl& plan, const Accuracy& accuracy, const Oracle& oracle,
                   const Parallel& parallel, Inputs inputs = Inputs::whole) {
  const Problem& p = oracle.problem();
  Device& device = plan.device();
  const Tensors& host = oracle.tensors();
  const auto buffer = [&](const TensorShape& shape, const void* content) {
    const auto bytes = static_cast<std::size_t>(bytes_of(p, shape));
    Buffer made = device.allocate(bytes);
    if (content != nullptr) device.copy_in(made, content, bytes);
    return made;
  };
  const auto x_bytes = static_cast<std::size_t>(bytes_of(p, x_shape(p)));
  const bool cut = inputs == Inputs::x_too_short;
  const Buffer x = device.allocate(x_bytes - (cut ? static_cast<std::size_t>(size_of(p.dtype)) : 0));
  if (host.x != nullptr && inputs != Inputs::x_undefined) device.copy_in(x, host.x, x.bytes);
  const Buffer w = buffer(w_shape(p), host.w);
  const Buffer y = buffer(p.direction == Direction::forward ? y_shape(p) : conv_shape(p), host.y);
  const Buffer bias = device.allocate(bytes(p, Tensor::bias));
  if (host.bias != nullptr) device.copy_in(bias, host.bias, bias.bytes);
  const Buffer residual = buffer(conv_shape(p), host.residual);
  const std::size_t workspace_bytes = plan.workspace_bytes(false);
  const auto of_channels = [&](Tensor tensor, const void* content) {
    const Buffer made = device.allocate(std::max<std::size_t>(1, bytes(p, tensor)));
    if (content != nullptr) device.copy_in(made, content, bytes(p, tensor));
    return made;
  };
  const Buffer scale = of_channels(Tensor::scale, host.scale), shift = of_channels(Tensor::shift, host.shift);
  const Buffer slopes = of_channels(Tensor::slopes, host.slopes);
  const Buffer workspace = device.allocate(std::max<std::size_t>(1, workspace_bytes));
  RunOptions options;
  options.workspace = workspace_bytes > 0 ? workspace.pointer : nullptr;
  Tensors tensors{x.pointer, w.pointer, y.pointer, host.bias ? bias.pointer : nullptr,
                  host.residual ? residual.pointer : nullptr};
  if (host.scale != nullptr) tensors.scale = scale.pointer, tensors.shift = shift.pointer;
  if (host.slopes != nullptr) tensors.slopes = slopes.pointer;
  plan.run(tensors, options);
  const Buffer& result = p.direction == Direction::forward         ? y
                         : p.direction == Direction::backward_data ? x
                                                                   : w;
  std::vector<std::byte> content(static_cast<std::size_t>(oracle.result_bytes()));
  device.copy_out(content.data(), result, content.size());
  return oracle.check(content.data(), accuracy, parallel);
}

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_RUN_HPP_
