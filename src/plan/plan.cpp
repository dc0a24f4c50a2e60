#include "src/plan/plan.hpp"

#include <cstdint>
#include <functional>
#include <optional>

#include "src/problem/problem.hpp"

namespace faltung {
namespace {

std::byte* align(const void* pointer) {
  return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(pointer)));
}

// A place that is only read is handed on as the same kind of pointer: its steps say which they write.
std::byte* place(const void* pointer) { return static_cast<std::byte*>(const_cast<void*>(pointer)); }

// What the call declares, and nothing else.
void run_call(const Call& call, const Memory& memory, const Parallel& parallel) {
  Memory own;
  for (const std::vector<Place>* declared : {&call.reads, &call.writes}) {
    for (const Place p : *declared) own[p] = memory.at(call.places[static_cast<std::size_t>(p)]);
  }
  call.run(own, parallel);
}

}  // namespace

PlanImpl::PlanImpl(Problem problem, std::string kernel, Recipe recipe, std::shared_ptr<Device> device,
                   const jit::Session& session, std::shared_ptr<const Parallel> parallel, Denormals denormals)
    : problem_(std::move(problem)),
      kernel_(std::move(kernel)),
      recipe_(std::move(recipe)),
      device_(std::move(device)),
      parallel_(std::move(parallel)),
      denormals_(denormals),
      bytes_(problem_) {
  bind(session);
}

void PlanImpl::bind(const jit::Session& session) {
  std::vector<const Launch*> launches;
  std::vector<Bound*> bound;
  for (const auto& [steps, all] : {std::pair(&recipe_.pack, &pack_), {&recipe_.steps, &steps_}}) {
    all->resize(steps->size());
    for (std::size_t i = 0; i < steps->size(); ++i) {
      Bound& one = (*all)[i];
      one.step = &(*steps)[i];
      if (const auto* work = std::get_if<Launch>(&one.step->work))
        launches.push_back(work), bound.push_back(&one);
    }
  }
  std::vector<const jit::Source*> sources;
  for (const Launch* launch : launches) sources.push_back(&launch->source);
  std::vector<jit::Program> programs = session.build(sources);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    bound[i]->launch =
        std::make_unique<const BoundLaunch>(*launches[i], std::move(programs[i]), session.device());
  }
}

std::vector<jit::Program> PlanImpl::programs() const {
  std::vector<jit::Program> all;
  for (const std::vector<Bound>* steps : {&pack_, &steps_}) {
    for (const Bound& bound : *steps) {
      if (bound.launch) all.push_back(bound.launch->program());
    }
  }
  return all;
}

double PlanImpl::compile_ms() const {
  double ms = 0;
  for (const jit::Program& program : programs()) ms += program.compile_ms;
  return ms;
}

std::size_t PlanImpl::workspace_bytes(bool weights_are_packed) const {
  return workspace_to_bring(recipe_.workspace_bytes, weights_are_packed ? 0 : recipe_.packed_bytes);
}

// A caller's parallel_for stands in for the plan's own threads; the division into workers stays the recipe's.
void PlanImpl::execute(const std::vector<Bound>& steps, const Memory& memory,
                       const RunOptions& options) const {
  std::optional<Parallel> callers;
  if (options.parallel_for && parallel_)
    callers.emplace(parallel_->workers(), std::cref(options.parallel_for));
  const Stream stream{callers ? &*callers : parallel_.get(), options.stream};
  for (const Bound& bound : steps) {
    if (bound.launch) {
      bound.launch->run(*device_, memory, stream);
    } else {
      run_call(std::get<Call>(bound.step->work), memory, *stream.parallel);
    }
  }
}

PlanImpl::TensorBytes::TensorBytes(const Problem& p)
    : x(faltung::bytes(p, Tensor::x)),
      w(faltung::bytes(p, Tensor::w)),
      y(faltung::bytes(p, Tensor::y)),
      bias(p.epilogue.bias ? faltung::bytes(p, Tensor::bias) : 0),
      residual(p.epilogue.residual ? faltung::bytes(p, Tensor::residual) : 0),
      relu(p.training == Training::drelu ? faltung::bytes(p, Tensor::relu) : 0),
      sums(faltung::bytes(p, Tensor::sums)),
      affine(faltung::bytes(p, Tensor::scale)),
      slopes(faltung::bytes(p, Tensor::slopes)),
      x_runs(p.x_pitch != 0 ? runs_of(p, x_shape(p)) : Runs{}),
      y_runs(p.y_pitch != 0 ? runs_of(p, y_shape(p)) : Runs{}) {}

// Kernels read while they write. What is only read may be the same memory.
void PlanImpl::check_apart(const Tensors& tensors, const RunOptions& options) const {
  struct Extent {
    const char* name;
    const void* address;
    std::size_t bytes;
    bool is_written;
    Runs runs = {};  // of a slice

    std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(address); }
    bool overlaps(const Extent& other) const {
      return bytes > 0 && other.bytes > 0 && begin() < other.begin() + other.bytes &&
             other.begin() < begin() + bytes && !is_beside(other);
    }
    // Slices of one tensor, of different channels.
    bool is_beside(const Extent& other) const {
      if (runs.period == 0 || runs.period != other.runs.period) return false;
      const auto period = static_cast<std::uintptr_t>(runs.period);
      const auto ahead = static_cast<std::int64_t>((other.begin() - begin() % period + period) % period);
      return ahead >= runs.bytes && ahead + other.runs.bytes <= runs.period;
    }
  };
  const bool reads_w = options.weights == nullptr || recipe_.packed_bytes == 0;
  const Extent extents[] = {
      {"x", tensors.x, bytes_.x, problem_.direction == Direction::backward_data, bytes_.x_runs},
      {"w", tensors.w, reads_w ? bytes_.w : 0, problem_.direction == Direction::backward_weights},
      {"y", tensors.y, bytes_.y, problem_.direction == Direction::forward, bytes_.y_runs},
      {"bias", tensors.bias, bytes_.bias, false},
      {"residual", tensors.residual, bytes_.residual, false, bytes_.y_runs},
      {"relu", tensors.relu, bytes_.relu, false},
      {"sums", tensors.sums, bytes_.sums, true},
      {"scale", tensors.scale, bytes_.affine, false},
      {"shift", tensors.shift, bytes_.affine, false},
      {"slopes", tensors.slopes, bytes_.slopes, false},
      {"workspace", options.workspace, workspace_bytes(options.weights != nullptr), true}};
  for (const Extent& one : extents) {
    if (!one.is_written || one.bytes == 0) continue;
    for (const Extent& other : extents) {
      if (&one == &other || !one.overlaps(other)) continue;
      throw Error(Status::bad_problem, std::string(one.name) + " is written to and overlaps " + other.name +
                                           "; give each memory of its own");
    }
  }
}

std::shared_ptr<const PackedWeights> PlanImpl::pack_weights(const void* w, const RunOptions& options) const {
  if (w == nullptr) throw Error(Status::bad_problem, "pack_weights: w is null");
  check_tensor(w, "pack_weights: w");
  Buffer buffer = device_->allocate(recipe_.packed_bytes + kAlignment);
  Memory memory;
  memory[Place::w] = place(w);
  memory[Place::packed] = align(buffer.pointer);
  execute(pack_, memory, options);
  return std::make_shared<const PackedWeights>(shared_from_this(), std::move(buffer));
}

// A host pointer, or another device's, would be a fault in a kernel, with which the whole device is lost to
// the process. Asking the driver costs as much as a launch, so that callers say what they know already.
void PlanImpl::check_addresses(const Tensors& tensors, const RunOptions& options) const {
  const bool w = options.weights == nullptr || recipe_.packed_bytes == 0;
  const bool workspace = workspace_bytes(options.weights != nullptr) > 0;
  const Addresses known = options.addresses;
  check_tensor(tensors.x, "x", known);
  if (w) check_tensor(tensors.w, "w", known);
  check_tensor(tensors.y, "y", known);
  if (problem_.epilogue.residual) check_tensor(tensors.residual, "residual", known);
  if (bytes_.relu > 0) check_tensor(tensors.relu, "relu", known);
  if (known == Addresses::on_device) return;
  if (bytes_.sums > 0) device_->check_address(tensors.sums, "sums");
  if (bytes_.affine > 0) {
    device_->check_address(tensors.scale, "scale");
    device_->check_address(tensors.shift, "shift");
  }
  if (problem_.epilogue.bias) device_->check_address(tensors.bias, "bias");
  if (bytes_.slopes > 0) device_->check_address(tensors.slopes, "slopes");
  if (workspace) device_->check_address(options.workspace, "workspace");
}

// Likewise a load of several elements at an address between.
void PlanImpl::check_tensor(const void* address, const char* what, Addresses known) const {
  if (known == Addresses::unknown) device_->check_address(address, what);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(address) % recipe_.alignment;
  if (beyond == 0) return;
  throw Error(Status::bad_problem,
              std::string(what) + ": kernel " + kernel_ + " takes addresses that are multiples of " +
                  std::to_string(recipe_.alignment) + " bytes, and this is " + std::to_string(beyond) +
                  " beyond one; copy the tensor, or skip the kernel");
}

bool PlanImpl::takes(const PackedWeights& weights) const {
  const PlanImpl& other = weights.plan();
  if (&other == this) return true;
  return !recipe_.packing.empty() && other.recipe_.packing == recipe_.packing &&
         other.packed_for() == packed_for() && other.recipe_.packed_bytes == recipe_.packed_bytes &&
         other.device_ == device_;
}

void PlanImpl::run(const Tensors& tensors, const RunOptions& options) const {
  const FloatMode mode(denormals_);
  const PackedWeights* weights = options.weights;
  if (weights != nullptr && !takes(*weights)) {
    throw Error(Status::bad_problem, "the packed weights are of kernel " + weights->plan().kernel() +
                                         " for another filter or device; pack them with this plan, of " +
                                         kernel_);
  }
  check_pointers(problem_, tensors, weights != nullptr && recipe_.packed_bytes > 0);
  if (workspace_bytes(weights != nullptr) > 0 && options.workspace == nullptr) {
    throw Error(Status::bad_problem, "kernel " + kernel_ + " needs a workspace of " +
                                         std::to_string(workspace_bytes(weights != nullptr)) +
                                         " bytes, got none");
  }
  check_addresses(tensors, options);
  check_apart(tensors, options);
  Memory memory;
  memory[Place::x] = place(tensors.x);
  memory[Place::w] = place(tensors.w);
  memory[Place::y] = place(tensors.y);
  if (problem_.epilogue.bias) memory[Place::bias] = place(tensors.bias);
  if (problem_.epilogue.residual) memory[Place::residual] = place(tensors.residual);
  if (bytes_.relu > 0) memory[Place::relu] = place(tensors.relu);
  if (bytes_.sums > 0) memory[Place::sums] = place(tensors.sums);
  if (bytes_.affine > 0)
    memory[Place::scale] = place(tensors.scale), memory[Place::shift] = place(tensors.shift);
  if (bytes_.slopes > 0) memory[Place::slopes] = place(tensors.slopes);
  memory[Place::workspace] = align(options.workspace);
  memory.weights_rest = options.weights_rest && (weights != nullptr || recipe_.packed_bytes == 0);
  if (weights != nullptr) {
    memory[Place::packed] = align(weights->buffer().pointer);
  } else if (recipe_.packed_bytes > 0) {
    memory[Place::packed] = memory[Place::workspace] + aligned(recipe_.workspace_bytes);
    const FloatMode packing;
    execute(pack_, memory, options);
  }
  execute(steps_, memory, options);
}

}  // namespace faltung
