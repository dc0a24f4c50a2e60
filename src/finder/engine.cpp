#include "src/finder/engine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

#include "src/algorithms/ceilings.hpp"
#include "src/finder/lock.hpp"
#include "src/finder/report.hpp"
#include "src/finder/shipped.hpp"
#include "src/finder/trust/verify.hpp"

namespace faltung {

const Candidate* best_measured(const Selection& selection, const Trials& trials) {
  for (const Report& m : trials.all()) {
    if (!is_right(m)) continue;
    if (const Candidate* candidate = selection.find(m.kernel)) return candidate;
  }
  return nullptr;
}

std::vector<const Candidate*> plan_order(const Selection& selection, const Trials& trials) {
  const Candidate* known = best_measured(selection, trials);
  std::vector<const Candidate*> order;
  if (known != nullptr) order.push_back(known);
  for (const Candidate& candidate : selection.candidates) {
    const Report* m = trials.find(candidate.kernel());
    if (&candidate != known && (m == nullptr || passed(*m))) order.push_back(&candidate);
  }
  return order;
}

namespace {

// Whether a choice among the nearest is the choice among all: what was measured may be none of them, and they
// may all have failed.
bool decides(const Selection& nearest, const Trials& trials) {
  const auto right = std::find_if(trials.all().begin(), trials.all().end(), is_right);
  if (right != trials.all().end()) return nearest.find(right->kernel) != nullptr;
  return !plan_order(nearest, trials).empty();
}

// What was chosen, and why.
void log_choice(const Settled& s, const Candidate& candidate, const Report* measured, bool locked) {
  const std::string why = locked                ? "the lock names it"
                          : measured != nullptr ? fmt::format("measured {:.4g} ms", measured->ms)
                                                : fmt::format("predicted {:.4g} ms", candidate.cost.ms);
  fmt::print(stderr, "faltung: plan: {} for {} on {}, {}\n", candidate.kernel(), to_string(s.problem),
             s.device->info().id, why);
}

// What a first plan waits for, before it does.
void log_wait(const Settled& s, const Candidate& candidate) {
  fmt::print(
      stderr,
      "faltung: plan: {} for {} is new on {}: its programs are compiled where they are not known, and tried "
      "once, in a process of their own\n",
      candidate.kernel(), to_string(s.problem), s.device->info().id);
}

// A lock may name a kernel that its algorithm does not list because its errors may grow beyond what the
// problem's math admits.
std::optional<Report> refused_by_math(const Candidate& candidate, const Settled& s) {
  const double growth = candidate.accuracy.growth, admitted = admitted_growth(s.problem);
  const double of_chain = candidate.accuracy.rms_of_chain;
  const bool is_coarse = s.problem.math == Math::f32 && of_chain > Accuracy::kAsFp32;
  if (growth <= admitted && !is_coarse) return std::nullopt;
  const std::vector<Candidate> all = candidate.algorithm->candidates(s.problem, s.target());
  if (std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.config == candidate.config; }))
    return std::nullopt;
  const std::string why =
      is_coarse ? fmt::format(
                      "its root mean square error may be {:.0f} times a chain's of fp32 multiply-adds, and "
                      "math=f32 admits {:.0f}",
                      of_chain, Accuracy::kAsFp32)
                : fmt::format("its error may grow to {:.1f} roundings, and math={} admits {:.0f}", growth,
                              name(s.problem.math), admitted);
  return report_of(Outcome::skipped, why, candidate.kernel());
}

}  // namespace

EngineImpl::EngineImpl(const std::string& store_directory)
    : store_(store_directory, [this](const std::string& line) { warn(line); }),
      shipped_(open_shipped([this](const std::string& line) { warn(line); })),
      is_lock_(is_lock(store_)),
      trust_(store_, shipped_.get(), [this](const std::string& line) { warn(line); }) {
  if (!is_lock_) ship(store_, shipped_);
}

void EngineImpl::on_warning(std::function<void(const std::string&)> warn) {
  std::vector<std::string> unheard;
  {
    const std::lock_guard lock(mutex_);
    warn_ = warn;
    if (warn) unheard.swap(unheard_);
  }
  for (const std::string& line : unheard) warn(line);
}

void EngineImpl::warn(const std::string& line) {
  std::function<void(const std::string&)> warn;
  {
    const std::lock_guard lock(mutex_);
    warn = warn_;
    constexpr std::size_t kMostUnheard = 16;
    if (!warn && unheard_.size() < kMostUnheard) unheard_.push_back(line);
  }
  const CallersFloatMode callers;
  if (warn) warn(line);
}

Selection EngineImpl::candidates(const Settled& s, Extent extent) {
  Selection selection;
  if (!is_lock_) {
    if (s.on_cpu()) std::call_once(rates_, [&] { share_cpu_rates(store_, s.device->info()); });
    selection = select(s, extent, known(s).ceilings);
  } else {
    // What a lock names is asked what every candidate is.
    const std::string kernel = locked_kernel(store_, s.problem, s.device->info());
    const auto refuse = [&](const std::string& why) {
      throw Error(Status::unsupported, "the lock " + store_.directory() + " names " + kernel + " for " +
                                           to_string(s.problem) + ", which " + why);
    };
    Candidate candidate;
    try {
      candidate = find_candidate(kernel, s.problem, s.target());
    } catch (const Error& error) {  // as of another version
      refuse(std::string("cannot be used: ") + error.what());
    }
    std::optional<Report> refusal =
        s.filter.allows(*candidate.algorithm, kernel) ? refused(candidate, s) : refused_by_patterns(kernel);
    if (!refusal) refusal = refused_by_math(candidate, s);
    if (refusal) refuse(std::string("is ") + name(refusal->outcome) + ": " + refusal->why);
    selection.candidates.push_back(std::move(candidate));
  }
  trust_.sift(selection, s);
  if (!reaches(selection)) return candidates(s, Extent::all);
  if (!is_lock_ && known(s).is_shipped) {
    prefer_ready(selection, [&](const Candidate& candidate) {
      try {
        return shipped_->get(kVerified, verdict_key(candidate, s.problem, s.device->info())).has_value();
      } catch (const std::exception&) {  // its recipe's, said when it is made
        return false;
      }
    });
  }
  return selection;
}

// What has verdicts in the package has its ceilings there.
EngineImpl::Known EngineImpl::known(const Settled& s) {
  if (s.on_cpu()) return {};
  const DeviceInfo& device = s.device->info();
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace(device.key);
  if (is_new) {
    known->second.is_shipped = shipped_ != nullptr && load_ceilings(*shipped_, device, s.threads);
    known->second.ceilings = load_ceilings(store_, device, s.threads).value_or(Ceilings{});
  }
  return known->second;
}

std::shared_ptr<const Parallel> EngineImpl::workers(int threads) {
  std::shared_ptr<const Parallel> made;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Parallel>& workers = workers_[threads];
    if (workers) return workers;
    made = workers = std::make_shared<const Parallel>(threads);
  }
  if (made->threads() < threads) {
    warn(fmt::format("{} of {} threads could be started; they share the work of all", made->threads(),
                     threads));
  }
  return made;
}

std::shared_ptr<const Parallel> EngineImpl::planners(const DeviceInfo& device, int threads) {
  return device.kind == "cpu" ? workers(threads) : std::make_shared<const Parallel>(available_processors());
}

std::shared_ptr<const PlanImpl> EngineImpl::make_plan(const Settled& s, const Candidate& candidate) {
  return faltung::make_plan(s.problem, candidate, s.device, jit::Session(*s.device, store_),
                            s.on_cpu() ? workers(s.threads) : nullptr, s.denormals);
}

Considered EngineImpl::consider(const Settled& s) {
  const std::uint64_t forgotten = forgotten_;
  Trials trials(store_, s.problem, s.device->info(), s.threads);
  Selection selection = candidates(s, Extent::nearest);
  if (!selection.is_whole() && !decides(selection, trials)) selection = candidates(s);
  return {std::move(selection), std::move(trials), forgotten};
}

std::shared_ptr<const PlanImpl> EngineImpl::plan(const Problem& problem, const Request& request,
                                                 const Considered* considered) {
  const Settled s(problem, request);
  const std::string key = s.key();
  if (std::shared_ptr<const PlanImpl> kept = kept_plan(key)) return kept;
  std::optional<Considered> afresh;
  if (considered == nullptr || considered->forgotten != forgotten_) considered = &afresh.emplace(consider(s));
  std::shared_ptr<const PlanImpl> plan = choose(s, *considered);
  // So many that a network's all fit; a caller with ever new shapes must not fill the memory.
  constexpr std::size_t kMostPlans = 1024;
  const std::lock_guard lock(mutex_);
  if (considered->forgotten != forgotten_) return plan;  // it would outlive what was measured meanwhile
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.emplace(key, plan);
  return plan;
}

void EngineImpl::plan_ahead(const std::vector<Problem>& problems, const Request& request) {
  std::map<std::string, const Problem*> missing;
  for (const Problem& problem : problems) {
    const std::string key = Settled(problem, request).key();
    if (!kept_plan(key)) missing.emplace(key, &problem);
  }
  if (missing.size() < 2) return;
  std::vector<const Problem*> order;
  for (const auto& [key, problem] : missing) order.push_back(problem);
  // More than there are processors, for some wait: for a program that another one compiles, or for a trial.
  const auto count = static_cast<std::int64_t>(order.size());
  const Parallel threads(static_cast<int>(std::min<std::int64_t>(count, 2 * available_processors())));
  threads.each(count, [&](std::int64_t i, int) {
    try {
      plan(*order[static_cast<std::size_t>(i)], request);
    } catch (const std::exception&) {  // comes again from `plan`, who asked for it by itself
    }
  });
}

std::shared_ptr<const PlanImpl> EngineImpl::kept_plan(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : found->second;
}

void EngineImpl::forget_plans() {
  const std::lock_guard lock(mutex_);
  plans_.clear();
  ++forgotten_;
}

std::shared_ptr<const PlanImpl> EngineImpl::choose(const Settled& s, const Considered& considered) {
  const Trials& trials = considered.trials;
  std::string failures = failures_of(trials), no_worker;
  std::set<std::string> asked;
  const auto first_of = [&](const Selection& selection) -> std::shared_ptr<const PlanImpl> {
    for (const Candidate* candidate : plan_order(selection, trials)) {
      const std::string kernel = candidate->kernel();
      if (!asked.insert(kernel).second) continue;
      if (!no_worker.empty() || s.logs_find) {
        const bool is_new = trust_.standing(*candidate, s) == Standing::untried;
        // What need not be tried may still serve.
        if (is_new && !no_worker.empty()) continue;
        if (is_new) log_wait(s, *candidate);
      }
      try {
        if (trust_.admit(*candidate, s)) {
          std::shared_ptr<const PlanImpl> plan = make_plan(s, *candidate);
          if (s.logs_find) log_choice(s, *candidate, trials.find(kernel), is_lock_);
          return plan;
        }
        forget_plans();
      } catch (const NoWorker& error) {
        no_worker = error.what();
      } catch (const std::exception& error) {
        const auto* known = dynamic_cast<const Error*>(&error);
        if (known != nullptr && known->status() == Status::bad_problem) throw;
        // The next one answers, in this call.
        failures += "\n  " + kernel + " failed: " + error.what();
        warn(kernel + " is passed over: " + error.what());
      }
    }
    return nullptr;
  };
  std::shared_ptr<const PlanImpl> plan = first_of(considered.selection);
  // None of the nearest serves.
  if (plan == nullptr && !considered.selection.is_whole())
    plan = first_of(select(s, Extent::all, known(s).ceilings));
  if (plan != nullptr) return plan;
  if (!no_worker.empty()) no_worker = ": " + no_worker;
  throw Error(Status::unsupported, "no kernel can be used for " + to_string(s.problem) + " on " +
                                       s.device->info().id + no_worker + failures);
}

Choice EngineImpl::explain(const Problem& problem, const Request& request) {
  const Settled s(problem, request);
  Selection selection = candidates(s);
  require_recipes(selection, s);
  return describe(s, selection, Trials(store_, s.problem, s.device->info(), s.threads));
}

Ceilings EngineImpl::ceilings(Device& device, int threads) {
  const std::optional<Ceilings> known = load_ceilings(store_, device.info(), threads);
  return known ? *known : measure_ceilings(device, threads);
}

Ceilings EngineImpl::measure_ceilings(Device& device, int threads) {
  Ceilings c = faltung::measure_ceilings(jit::Session(device, store_), threads);
  if (const std::optional<Ceilings> known = load_ceilings(store_, device.info(), threads)) {
    for (const auto& [name, rate] : kCeilingRates) {
      if (((*known).*rate).gflops > (c.*rate).gflops) c.*rate = (*known).*rate;
    }
    c.copy_gbps = std::max(c.copy_gbps, known->copy_gbps);
  }
  save_ceilings(store_, device.info(), threads, c);
  const std::lock_guard lock(mutex_);
  known_.erase(device.info().key);  // choices from now on reckon with these
  return c;
}

}  // namespace faltung
