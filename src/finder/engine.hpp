// Choosing a kernel: the store's answer, else the cost model's; find measures.
#ifndef FALTUNG_SRC_FINDER_ENGINE_HPP_
#define FALTUNG_SRC_FINDER_ENGINE_HPP_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/finder/records.hpp"
#include "src/finder/trust/trust.hpp"
#include "src/plan/plan.hpp"
#include "src/store/store.hpp"

namespace faltung {

// What may compute a problem, and what was measured of it: what a plan is chosen from. Of the selection as
// much as that takes.
struct Considered {
  Selection selection;
  Trials trials;
  std::uint64_t forgotten;  // how often the engine had forgotten its plans before
};

// A kernel that was made ready, or why not; compile_ms is what was compiled for it now, by whichever process.
struct Prepared {
  Report report;
  bool tried = false;  // now
};

class EngineImpl {
 public:
  explicit EngineImpl(const std::string& store_directory);

  // A plan that was made before is returned again, until find measures or a kernel fails. considered: what
  // `consider` has said of this problem, where it was asked before; it counts until then, too.
  std::shared_ptr<const PlanImpl> plan(const Problem& problem, const Request& request,
                                       const Considered* considered = nullptr);
  // Throws Error(unsupported) where nothing may compute it.
  Considered consider(const Settled& settled);
  // Makes those of several problems side by side, for compilers take long: `plan` has them then. What fails
  // is said where it is asked for.
  void plan_ahead(const std::vector<Problem>& problems, const Request& request);
  Choice find(const Problem& problem, const Request& request, const Progress& progress);
  Choice explain(const Problem& problem, const Request& request);
  // The kernels that a plan takes first, or with more than one those that find would time first, compiled
  // and, where the device runs, tried: one after the other until so many are ready. keeps: the store itself
  // has their code then, and not what was shipped alone.
  std::vector<Prepared> prepare(const Problem& problem, const Request& request, int kernels, bool keeps);

  void on_warning(std::function<void(const std::string&)> warn);

  // Every kernel that may compute the problem, best first by the model, without those in quarantine. First of
  // all one whose verdict came with the package, where the model has no better one: it need not be waited
  // for.
  // Extent::nearest: as far as `plan` looks unless kernels fail.
  Selection candidates(const Settled& settled, Extent extent = Extent::all);
  // The plan of one kernel, whether it would be chosen or not.
  std::shared_ptr<const PlanImpl> make_plan(const Settled& settled, const Candidate& candidate);
  // What the device reaches, as the store has it, else measured.
  Ceilings ceilings(Device& device, int threads);
  // The best of what is measured now and what the store has, for another process may have disturbed either.
  // The store is told.
  Ceilings measure_ceilings(Device& device, int threads);
  std::shared_ptr<const Parallel> workers(int threads);
  // Who plans a network: on a CPU those that run it, for a GPU every processor, for as long as it is held.
  std::shared_ptr<const Parallel> planners(const DeviceInfo& device, int threads);
  Store& store() { return store_; }
  Trust& trust() { return trust_; }

 private:
  class Measuring;  // of find

  Choice describe(const Settled& settled, const Selection& selection, const Trials& trials);
  std::shared_ptr<const PlanImpl> kept_plan(const std::string& key);  // or null
  std::shared_ptr<const PlanImpl> choose(const Settled& settled, const Considered& considered);
  void forget_plans();
  // Of a GPU: whether the package has verdicts of it, and what it was measured to reach; zeros if it was not.
  struct Known {
    bool is_shipped = false;
    Ceilings ceilings;
  };
  Known known(const Settled& settled);
  void warn(const std::string& line);

  std::mutex mutex_;  // of what follows but the store, what was shipped and trust, which have their own
  std::function<void(const std::string&)> warn_;
  std::vector<std::string> unheard_;  // before there was somebody to warn: what was wrong at the beginning
  Store store_;
  std::shared_ptr<const Store> shipped_;  // what came with the package of known devices, or null
  bool is_lock_;
  Trust trust_;
  std::once_flag rates_;  // the CPU's are the store's
  std::map<int, std::shared_ptr<const Parallel>> workers_;
  std::map<std::string, std::shared_ptr<const PlanImpl>> plans_;  // by Settled::key
  std::map<std::string, Known> known_;                            // by a GPU's key
  std::atomic<std::uint64_t> forgotten_{0};  // how often plans_ were: something was measured, or failed
};

// What is behind the public handles, for the command, the tests and the other parts of the library.
struct Internals {
  static EngineImpl& impl(Engine& engine) { return *engine.impl_; }
  static const PlanImpl& impl(const Plan& plan) { return *plan.impl_; }
};

// The fastest candidate that was measured and found right; null if none was. One that was far behind when it
// was timed was not checked (-1), and does not win because others were slower in a later round.
const Candidate* best_measured(const Selection& selection, const Trials& trials);

// What was measured and failed, a line each, for messages.
std::string failures_of(const Trials& trials);

// The order in which plan takes them: the fastest that was measured, then by the model; without those that
// were measured and failed. It is a function of the problem, the device, what was measured for it and what
// came with the package.
std::vector<const Candidate*> plan_order(const Selection& selection, const Trials& trials);

// The order in which find measures: what was best before, then the first choice of each algorithm that the
// model has hope for, then the rest; each part by the model.
std::vector<const Candidate*> find_order(const Selection& selection, const Trials& trials);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_ENGINE_HPP_
