// What convolutions are thought to take, or were measured to: by it layouts and slices are chosen.
#include <algorithm>
#include <cmath>

#include "src/network/device_steps.hpp"
#include "src/network/lowering.hpp"

namespace faltung::network {

using i64 = std::int64_t;

Lowering::Priced Lowering::price(const Problem& problem) const {
  Priced priced;
  try {
    priced.considered =
        std::make_shared<const Considered>(settings_.engine.consider(Settled(problem, settings_.request)));
    const Trials& trials = priced.considered->trials;
    const std::vector<const Candidate*> order = plan_order(priced.considered->selection, trials);
    if (order.empty()) return priced;
    const Report* measured = trials.find(order.front()->kernel());
    const double ms = measured != nullptr ? measured->ms : order.front()->cost.ms;
    priced.ns = std::clamp<i64>(static_cast<i64>(std::llround(ms * 1e6)), 0, kNever);
    // A GPU's plans are made ahead, by what is considered then: its long lists are not held.
    if (on_gpu()) priced.considered.reset();
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
  }
  return priced;
}

const Lowering::Priced& Lowering::priced(const Problem& problem) {
  const std::string key = to_string(problem);
  const auto found = priced_.find(key);
  return found != priced_.end() ? found->second : priced_.emplace(key, price(problem)).first->second;
}

i64 Lowering::cost(const Problem& problem) { return priced(problem).ns; }

void Lowering::price_ahead(const std::vector<std::vector<Problem>>& of_nodes) {
  struct Missing {
    const Problem* problem;
    Priced* priced;
  };
  std::vector<Missing> all;
  for (const std::vector<Problem>& problems : of_nodes) {
    for (const Problem& problem : problems) {
      const auto [at, is_new] = priced_.try_emplace(to_string(problem));
      if (is_new) all.push_back({&problem, &at->second});
    }
  }
  settings_.planners.each(static_cast<i64>(all.size()), [&](i64 i, int) {
    const Missing& missing = all[static_cast<std::size_t>(i)];
    *missing.priced = price(*missing.problem);
  });
}

double Lowering::predicted_ms(const Work& work) {
  if (const auto* const convolution = std::get_if<ConvolutionWork>(&work))
    return static_cast<double>(cost(convolution->plan->problem())) * 1e-6;
  return on_gpu() ? device_cost_ms(work, device()) : 0;
}

}  // namespace faltung::network
