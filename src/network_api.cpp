// The C++ interface of networks. Each entry computes in the library's own floating-point mode.
#include "src/network/network.hpp"
#include "src/problem/float_mode.hpp"

namespace faltung {

const std::vector<NetworkTensor>& NetworkPlan::inputs() const { return impl_->inputs(); }
const std::vector<NetworkTensor>& NetworkPlan::outputs() const { return impl_->outputs(); }

void NetworkPlan::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                      const NetworkRunOptions& options) const {
  const FloatMode mode;
  impl_->run(inputs, outputs, options);
}

std::size_t NetworkPlan::arena_bytes() const { return impl_->schedule().memory().bytes; }
NetworkReport NetworkPlan::report() const { return impl_->report(); }

NetworkReport NetworkPlan::report(std::span<const void* const> inputs, std::span<void* const> outputs,
                                  int runs) const {
  const FloatMode mode;
  NetworkReport report = impl_->report();
  const std::vector<double> ms = impl_->time_steps(inputs, outputs, runs);
  for (std::size_t s = 0; s < ms.size(); ++s) report.steps[s].ms = ms[s];
  return report;
}

Network::Network(Engine& engine, const std::string& file, const NetworkRequest& request) {
  const FloatMode mode;
  impl_ = std::make_unique<NetworkImpl>(Internals::impl(engine), file, request);
}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

const std::vector<NetworkTensor>& Network::inputs() const { return impl_->inputs(); }
const std::map<std::string, std::string>& Network::metadata() const { return impl_->metadata(); }
NetworkPlan Network::plan(const std::vector<std::vector<std::int64_t>>& sizes) {
  const FloatMode mode;
  return NetworkPlan(impl_->plan(sizes));
}

}  // namespace faltung
