// Whether a kernel is right on a device: guard zones, NaN-filled results, exact on integers, then within the
// bound.
#ifndef FALTUNG_SRC_FINDER_VERIFY_HPP_
#define FALTUNG_SRC_FINDER_VERIFY_HPP_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/oracle.hpp"
#include "src/plan/plan.hpp"

namespace faltung {

struct Verification {
  std::string verdict;  // pass, wrong or out_of_bounds
  std::string what;     // in words, where it did not pass
  double error_over_bound = 0;
  bool passed() const { return verdict == "pass"; }
};

// Runs plan on the oracle's inputs with guard zones around every buffer and a NaN-filled result and
// workspace, and compares. With packed weights and without, the results must be the same to the bit.
Verification verify(const PlanImpl& plan, const Accuracy& accuracy, const Oracle& oracle,
                    const Parallel& parallel);

// Verifies kernels on one problem with both kinds of data: small integers, then random. Inputs and expected
// results are made once and serve every kernel.
class Verifier {
 public:
  Verifier(const Problem& problem, std::shared_ptr<Device> device, std::shared_ptr<const Parallel> parallel,
           std::uint64_t seed);
  Verification kernel(const Algorithm& algorithm, const std::string& config);

 private:
  const Oracle& oracle(Data data, int weight_unit);

  Problem problem_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Parallel> parallel_;
  std::uint64_t seed_;
  std::map<std::pair<Data, int>, Oracle> oracles_;  // by the unit of the weights
};

// The same, for one kernel.
Verification verify_kernel(const Algorithm& algorithm, const std::string& config, const Problem& problem,
                           const std::shared_ptr<Device>& device,
                           const std::shared_ptr<const Parallel>& parallel, std::uint64_t seed);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_VERIFY_HPP_
