// Choosing a kernel: the store's answer, else the cost model's; find measures.
#ifndef FALTUNG_SRC_FINDER_FINDER_HPP_
#define FALTUNG_SRC_FINDER_FINDER_HPP_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/finder/records.hpp"
#include "src/finder/trust.hpp"
#include "src/plan/plan.hpp"
#include "src/store/store.hpp"

namespace faltung {

class EngineImpl {
 public:
  explicit EngineImpl(const std::string& store_directory);

  std::shared_ptr<const PlanImpl> plan(const Problem& problem, const Request& request);
  Choice find(const Problem& problem, const Request& request, const Progress& progress);
  Choice explain(const Problem& problem, const Request& request);

  void on_warning(std::function<void(const std::string&)> warn);

  // Every kernel that may compute the problem, best first by the model, without those in quarantine.
  Selection candidates(const Problem& problem, const Request& request);
  // The plan of one kernel, whether it would be chosen or not.
  std::shared_ptr<const PlanImpl> make_plan(const Problem& problem, const Candidate& candidate,
                                            const Request& request);
  // What the device reaches, as the store has it, else measured.
  Ceilings ceilings(Device& device, int threads);
  // The best of what is measured now and what the store has, for another process may have disturbed either.
  // The store is told.
  Ceilings measure_ceilings(Device& device, int threads);
  std::shared_ptr<const Parallel> workers(const Request& request);
  Store& store() { return store_; }
  Trust& trust() { return trust_; }

 private:
  // A request made concrete.
  struct Setting {
    Problem problem;
    Request request;
    std::shared_ptr<Device> device;
    int threads;
    Target target() const { return {*device, threads}; }
  };
  class Measuring;  // of find

  Setting settle(const Problem& problem, const Request& request);
  Choice describe(const Setting& setting, const Selection& selection, const Trials& trials);
  const Candidate* sure_choice(const Setting& setting, const Selection& selection,
                               const Trials& trials) const;
  void warn(const std::string& line);

  std::mutex mutex_;
  std::function<void(const std::string&)> warn_;
  Store store_;
  std::unique_ptr<const Store> shipped_;  // verdicts on known devices that came with the package, or null
  bool is_lock_;
  Trust trust_;
  std::map<int, std::shared_ptr<const Parallel>> workers_;
};

// The fastest candidate that was measured and found right; null if none was.
const Candidate* best_measured(const Selection& selection, const Trials& trials);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_FINDER_HPP_
