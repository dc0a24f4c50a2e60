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

std::string version() { return FALTUNG_VERSION; }

}  // namespace faltung
