#include "src/plan/plan.hpp"

#include <cstdint>
#include <functional>
#include <optional>

#include "src/problem/problem.hpp"

namespace faltung {
namespace {

std::byte* align(void* pointer) {
  return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(pointer)));
}

void run_all(const std::vector<Step>& steps, const Invocation& invocation) {
  for (const Step& step : steps) step.run(invocation);
}

}  // namespace

PlanImpl::PlanImpl(Problem problem, std::string kernel, Recipe recipe, std::shared_ptr<Device> device,
                   std::shared_ptr<const Parallel> parallel)
    : problem_(std::move(problem)),
      kernel_(std::move(kernel)),
      recipe_(std::move(recipe)),
      device_(std::move(device)),
      parallel_(std::move(parallel)) {}

std::size_t PlanImpl::workspace_bytes(bool weights_are_packed) const {
  std::size_t bytes = recipe_.workspace_bytes;
  if (!weights_are_packed && recipe_.packed_bytes > 0) bytes = aligned(bytes) + recipe_.packed_bytes;
  return bytes == 0 ? 0 : bytes + kAlignment;  // the caller's pointer may be aligned to less
}

std::shared_ptr<const PackedWeights> PlanImpl::pack_weights(const void* w) const {
  if (w == nullptr) throw Error(Status::bad_problem, "pack_weights: w is null");
  check_tensor(w, "pack_weights: w");
  Buffer buffer = device_->allocate(recipe_.packed_bytes + kAlignment);
  Invocation invocation;
  invocation.tensors.w = const_cast<void*>(w);
  invocation.packed = align(buffer.pointer);
  invocation.stream = {parallel_.get(), nullptr};
  run_all(recipe_.pack, invocation);
  device_->synchronize(invocation.stream);
  return std::make_shared<const PackedWeights>(shared_from_this(), std::move(buffer));
}

// A host pointer, or another device's, would be a fault in a kernel, with which the whole device is lost to
// the process.
void PlanImpl::check_addresses(const Tensors& tensors, const RunOptions& options) const {
  const bool w = options.weights == nullptr || recipe_.packed_bytes == 0;
  const bool workspace = workspace_bytes(options.weights != nullptr) > 0;
  check_tensor(tensors.x, "x");
  if (w) check_tensor(tensors.w, "w");
  check_tensor(tensors.y, "y");
  if (problem_.epilogue.bias) device_->check_address(tensors.bias, "bias");
  if (problem_.epilogue.residual) check_tensor(tensors.residual, "residual");
  if (workspace) device_->check_address(options.workspace, "workspace");
}

// Likewise a load of several elements at an address between.
void PlanImpl::check_tensor(const void* address, const char* what) const {
  device_->check_address(address, what);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(address) % recipe_.alignment;
  if (beyond == 0) return;
  throw Error(Status::bad_problem,
              std::string(what) + ": kernel " + kernel_ + " takes addresses that are multiples of " +
                  std::to_string(recipe_.alignment) + " bytes, and this is " + std::to_string(beyond) +
                  " beyond one; copy the tensor, or skip the kernel");
}

void PlanImpl::run(const Tensors& tensors, const RunOptions& options) const {
  const PackedWeights* weights = options.weights;
  if (weights != nullptr && weights->plan() != this) {
    throw Error(Status::bad_problem, "the packed weights belong to another plan; pack them with this one");
  }
  check_pointers(problem_, tensors, weights != nullptr && recipe_.packed_bytes > 0);
  if (workspace_bytes(weights != nullptr) > 0 && options.workspace == nullptr) {
    throw Error(Status::bad_problem, "kernel " + kernel_ + " needs a workspace of " +
                                         std::to_string(workspace_bytes(weights != nullptr)) +
                                         " bytes, got none");
  }
  check_addresses(tensors, options);
  // A caller's parallel_for stands in for the plan's own threads; the division into workers stays the
  // recipe's.
  std::optional<Parallel> callers;
  if (options.parallel_for && parallel_)
    callers.emplace(parallel_->workers(), std::cref(options.parallel_for));
  Invocation invocation;
  invocation.tensors = tensors;
  invocation.workspace = align(options.workspace);
  invocation.stream = {callers ? &*callers : parallel_.get(), options.stream};
  if (weights != nullptr) {
    invocation.packed = align(weights->buffer().pointer);
  } else if (recipe_.packed_bytes > 0) {
    invocation.packed = invocation.workspace + aligned(recipe_.workspace_bytes);
    run_all(recipe_.pack, invocation);
  }
  run_all(recipe_.steps, invocation);
}

}  // namespace faltung
