// The C++ interface over the road. Each entry computes in the library's own floating-point mode.
#include "src/backend/memory_pool.hpp"
#include "src/backend/opencl.hpp"
#include "src/finder/engine.hpp"
#include "src/plan/plan.hpp"
#include "src/problem/float_mode.hpp"

namespace faltung {

const Problem& Plan::problem() const { return impl_->problem(); }
const std::string& Plan::kernel() const { return impl_->kernel(); }
std::size_t Plan::workspace_bytes(bool weights_are_packed) const {
  return impl_->workspace_bytes(weights_are_packed);
}
std::size_t Plan::packed_weights_bytes() const { return impl_->recipe().packed_bytes; }
std::shared_ptr<const PackedWeights> Plan::pack_weights(const void* w, const RunOptions& options) const {
  const FloatMode mode;
  return impl_->pack_weights(w, options);
}
void Plan::run(const Tensors& tensors, const RunOptions& options) const { impl_->run(tensors, options); }

Engine::Engine(const std::string& store) {
  const FloatMode mode;
  impl_ = std::make_unique<EngineImpl>(store);
}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::on_warning(std::function<void(const std::string& line)> warn) {
  impl_->on_warning(std::move(warn));
}

Plan Engine::plan(const Problem& problem, const Request& request) {
  const FloatMode mode;
  return Plan(impl_->plan(problem, request));
}

Choice Engine::find(const Problem& problem, const Request& request, const Progress& progress) {
  const FloatMode mode;
  return impl_->find(problem, request, progress);
}

Choice Engine::explain(const Problem& problem, const Request& request) {
  const FloatMode mode;
  return impl_->explain(problem, request);
}

MemoryPool::MemoryPool(const std::string& device, std::size_t limit) {
  const FloatMode mode;
  impl_ = std::make_unique<MemoryPoolImpl>(find_device(device), limit);
}
MemoryPool::~MemoryPool() = default;
void* MemoryPool::allocate(std::size_t bytes) { return impl_->allocate(bytes); }
void MemoryPool::free(void* pointer) { impl_->free(pointer); }
void MemoryPool::copy_in(void* to, const void* from, std::size_t bytes) { impl_->copy_in(to, from, bytes); }
void MemoryPool::copy_out(void* to, const void* from, std::size_t bytes) { impl_->copy_out(to, from, bytes); }
std::size_t MemoryPool::trim() { return impl_->trim(); }
MemoryStats MemoryPool::stats() const { return impl_->stats(); }

std::shared_ptr<void> adopt(const std::string& device, void* cl_mem) {
  const FloatMode mode;
  const auto opencl = std::dynamic_pointer_cast<OpenClDevice>(find_device(device));
  if (opencl == nullptr) {
    throw Error(Status::bad_problem,
                "adopt: " + device + " is no OpenCL device; its pointers are used as they are");
  }
  const Buffer buffer = opencl->adopt(cl_mem);
  return {buffer.owner, buffer.pointer};
}

std::vector<DeviceDescription> devices() {
  const FloatMode mode;
  std::vector<DeviceDescription> all;
  for (const std::shared_ptr<Device>& device : list_devices()) {
    const DeviceInfo& d = device->info();
    all.push_back({d.id, d.kind, d.description, d.driver, d.units, d.memory_bytes, d.features});
  }
  return all;
}

std::string version() { return FALTUNG_VERSION; }

}  // namespace faltung
