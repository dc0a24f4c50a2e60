// The C++ interface over the road.
#include "src/finder/finder.hpp"
#include "src/plan/plan.hpp"

namespace faltung {

const Problem& Plan::problem() const { return impl_->problem(); }
const std::string& Plan::kernel() const { return impl_->kernel(); }
std::size_t Plan::workspace_bytes(bool weights_are_packed) const {
  return impl_->workspace_bytes(weights_are_packed);
}
std::size_t Plan::packed_weights_bytes() const { return impl_->recipe().packed_bytes; }
std::shared_ptr<const PackedWeights> Plan::pack_weights(const void* w) const {
  return impl_->pack_weights(w);
}
void Plan::run(const Tensors& tensors, const RunOptions& options) const { impl_->run(tensors, options); }

Engine::Engine(const std::string& store) : impl_(std::make_unique<EngineImpl>(store)) {}
Engine::~Engine() = default;

void Engine::on_warning(std::function<void(const std::string& line)> warn) {
  impl_->on_warning(std::move(warn));
}

Plan Engine::plan(const Problem& problem, const Request& request) {
  return Plan(impl_->plan(problem, request));
}

Choice Engine::find(const Problem& problem, const Request& request, const Progress& progress) {
  return impl_->find(problem, request, progress);
}

Choice Engine::explain(const Problem& problem, const Request& request) {
  return impl_->explain(problem, request);
}

std::string version() { return FALTUNG_VERSION; }

}  // namespace faltung
