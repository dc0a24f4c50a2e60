// Choosing a kernel: the store's answer, else the cost model's; find measures.
#ifndef FALTUNG_SRC_FINDER_FINDER_HPP_
#define FALTUNG_SRC_FINDER_FINDER_HPP_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/finder/records.hpp"
#include "src/finder/selection.hpp"
#include "src/finder/trial.hpp"
#include "src/plan/plan.hpp"
#include "src/store/store.hpp"

namespace faltung {

class EngineImpl {
 public:
  explicit EngineImpl(const std::string& store_directory);

  std::shared_ptr<const PlanImpl> plan(const Problem& problem, const Request& request);
  Choice find(const Problem& problem, const Request& request, const Progress& progress);
  Choice explain(const Problem& problem, const Request& request);

  // The plan of one kernel, whether it would be chosen or not.
  std::shared_ptr<const PlanImpl> make_plan(const Problem& problem, const Candidate& candidate,
                                            const Request& request);
  Ceilings ceilings(Device& device, int threads);
  std::shared_ptr<const Parallel> workers(const Request& request);
  Store& store() { return store_; }

 private:
  struct Setting;  // a request made concrete

  Setting settle(const Problem& problem, const Request& request);
  void run_final(const Setting& setting, const Selection& selection, Arena& arena, Trials& trials,
                 double budget_ms);
  Choice describe(const Setting& setting, const Selection& selection, const Trials& trials);

  Store store_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<const Parallel>> workers_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_FINDER_HPP_
