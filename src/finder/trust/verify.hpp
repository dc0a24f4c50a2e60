// Whether a kernel is right on a device: guard zones, NaN-filled results, exact on integers, then within the
// bound.
#ifndef FALTUNG_SRC_FINDER_TRUST_VERIFY_HPP_
#define FALTUNG_SRC_FINDER_TRUST_VERIFY_HPP_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/oracle.hpp"
#include "src/finder/report.hpp"
#include "src/plan/plan.hpp"

namespace faltung {

// What a trial is doing; each has its own deadline. run: the device works; check: the host does.
enum class Phase { open, compile, run, check };
const char* name(Phase phase);
// Told when a trial comes to a phase.
using Watch = std::function<void(Phase)>;

// Runs plan on the oracle's inputs with guard zones around every buffer and a NaN-filled result and
// workspace, and compares. With packed weights and without, the results must be the same to the bit. The
// report says pass, wrong or out_of_bounds.
Report verify(const PlanImpl& plan, const Accuracy& accuracy, const Oracle& oracle, const Parallel& parallel,
              const Watch& watch = {});

// A candidate's plan on the device, built in the session.
std::shared_ptr<const PlanImpl> make_plan(const Problem& problem, const Candidate& candidate,
                                          const std::shared_ptr<Device>& device, const jit::Session& session,
                                          const std::shared_ptr<const Parallel>& parallel,
                                          Denormals denormals = Denormals::keep);

// Verifies kernels on one problem with both kinds of data: small integers, then random. Inputs and expected
// results are made once and serve every kernel.
class Verifier {
 public:
  Verifier(const Problem& problem, std::shared_ptr<Device> device, std::shared_ptr<const Parallel> parallel,
           std::uint64_t seed, double max_products = 3e8);
  Report kernel(const Candidate& candidate, Store& store);
  // plan: the candidate's, on this problem and device.
  Report kernel(const PlanImpl& plan, const Candidate& candidate, const Watch& watch);
  const Oracle& oracle(Data data);
  const Parallel& parallel() const { return *parallel_; }

 private:
  Problem problem_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Parallel> parallel_;
  std::uint64_t seed_;
  double max_products_;
  std::map<Data, Oracle> oracles_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_TRUST_VERIFY_HPP_
