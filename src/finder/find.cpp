// Engine::find: measures the candidates within a time budget.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <span>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "src/finder/trial.hpp"

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kProducts = 2e7;  // of the reference, for a check: some 20 ms
constexpr std::uint64_t kFindSeed = 1;

double ms_after(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

std::vector<const Candidate*> find_order(const Selection& selection, const Trials& trials) {
  std::vector<const Candidate*> order;
  const auto add = [&](const Candidate* candidate) {
    if (std::find(order.begin(), order.end(), candidate) == order.end()) order.push_back(candidate);
  };
  if (const Candidate* known = best_measured(selection, trials)) add(known);
  // An algorithm's best is worth a run before another's second best, unless the model has no hope for it.
  constexpr double kHopeless = 2;  // times the predicted time of the first of all
  std::vector<const Algorithm*> seen;
  for (const Candidate& candidate : selection.candidates) {
    if (candidate.cost.ms > kHopeless * selection.candidates.front().cost.ms) continue;
    if (std::find(seen.begin(), seen.end(), candidate.algorithm) != seen.end()) continue;
    seen.push_back(candidate.algorithm);
    add(&candidate);
  }
  for (const Candidate& candidate : selection.candidates) add(&candidate);
  // The reference is only measured where there is nothing else.
  if (std::any_of(order.begin(), order.end(), [](const auto* c) { return !c->algorithm->last_resort(); })) {
    std::erase_if(order, [](const auto* c) { return c->algorithm->last_resort(); });
  }
  return order;
}

// How many candidates to compile at once: as many as there are processors, and time to try afterwards.
std::size_t compiled_at_once(double left_ms) {
  constexpr double kOneTrial = 80;  // ms, of what is compiled
  return static_cast<std::size_t>(std::clamp(left_ms / kOneTrial, 1.0, double(available_processors())));
}

// One candidate after the other, on the same data: in this process those that are trusted, in the device's
// worker the others.
class EngineImpl::Measuring {
 public:
  Measuring(EngineImpl& engine, const Settled& settled)
      : engine_(engine),
        s_(settled),
        arena_bytes_(2 * s_.device->info().cache_bytes),
        arena_ms_(0.2 * s_.budget_ms) {}

  Report measure(const Candidate& candidate, double time_ms, double best_ms) {
    const bool here = engine_.trust_.standing(candidate, s_) == Standing::trusted;
    return here ? measure_here(candidate, time_ms, best_ms) : measure_there(candidate, time_ms, best_ms);
  }

  // The few that came in close together are timed again, in turn: each was measured at another moment, and
  // what else the machine did then may have decided. All of them are verified by now.
  void run_final(const Selection& selection, Trials& trials, double budget_ms) {
    constexpr std::size_t kMost = 4;
    std::vector<Report> finalists;
    std::vector<const Candidate*> candidates;
    double round_ms = 0;  // with the runs that warm up
    for (const Report& m : trials.all()) {
      if (!is_right(m) || finalists.size() == kMost) continue;
      if (!finalists.empty() && m.ms > kClose * finalists.front().ms) continue;
      const Candidate* candidate = selection.find(m.kernel);
      if (candidate == nullptr || round_ms + 2 * m.ms > budget_ms) continue;
      round_ms += 2 * m.ms;
      finalists.push_back(m);
      candidates.push_back(candidate);
    }
    if (finalists.size() < 2) return;
    prepare();
    std::vector<std::unique_ptr<Runner>> runners;
    std::vector<Runner*> racing;
    for (const Candidate* candidate : candidates) {
      runners.push_back(std::make_unique<Runner>(engine_.make_plan(s_, *candidate), *arena_));
      racing.push_back(runners.back().get());
    }
    const std::vector<Timing> timings = race(racing, budget_ms);
    for (std::size_t i = 0; i < finalists.size(); ++i) {
      finalists[i].ms = timings[i].median;
      finalists[i].ms_min = timings[i].min;
      finalists[i].ms_max = timings[i].max;
      trials.add(finalists[i]);
    }
  }

 private:
  Report measure_there(const Candidate& candidate, double time_ms, double best_ms) {
    Task task;
    task.kernel = candidate.kernel();
    task.problem = s_.problem;
    task.device = s_.device->info().id;
    task.threads = s_.threads;
    task.seed = kFindSeed;
    task.products = kProducts;
    task.time_ms = time_ms;
    task.best_ms = best_ms;
    task.arena_bytes = arena_bytes_;
    task.arena_ms = arena_ms_;
    task.predicted_ms = candidate.cost.ms;
    return engine_.trust_.examine(task, s_);
  }

  void prepare() {
    if (arena_) return;
    const std::shared_ptr<const Parallel> parallel = engine_.workers(available_processors());
    oracle_.emplace(s_.problem, Data::random, kFindSeed, kProducts, parallel.get());
    arena_.emplace(*s_.device, *oracle_, arena_bytes_, 64, arena_ms_);
  }

  Report measure_here(const Candidate& candidate, double time_ms, double best_ms) {
    Report report = report_of(Outcome::pass, "");
    try {
      prepare();
      poison();
      Runner runner(engine_.make_plan(s_, candidate), *arena_);
      const Timing timing = time_runner(runner, time_ms, best_ms);
      report.ms = timing.median, report.ms_min = timing.min, report.ms_max = timing.max;
      report.workspace_bytes = runner.plan().workspace_bytes(true);
      // It may win: is it right?
      if (best_ms <= 0 || timing.median < kClose * best_ms) check(candidate, report);
    } catch (const Error& error) {
      if (error.status() == Status::bad_problem) throw;
      report.outcome = error.status() == Status::out_of_memory ? Outcome::out_of_memory : Outcome::crash;
      report.why = error.what();
    }
    return report;
  }

  // Where the first of the runs that are timed writes.
  Buffer first_result() const {
    return {nullptr, result_pointer(s_.problem, arena_->first()),
            static_cast<std::size_t>(oracle_->result_bytes())};
  }

  void poison() {
    const std::vector<std::byte> nan(first_result().bytes, std::byte{0xff});
    s_.device->copy_in(first_result(), nan.data(), nan.size());
    arena_->begin_again();
  }

  // What was timed: a run more may be dear.
  void check(const Candidate& candidate, Report& report) {
    std::vector<std::byte> result(first_result().bytes);
    s_.device->copy_out(result.data(), first_result(), result.size());
    const Finding finding =
        oracle_->check(result.data(), candidate.accuracy, *engine_.workers(available_processors()));
    report.error_over_bound = finding.error_over_bound;
    if (finding.right()) return;
    report.outcome = Outcome::wrong;
    report.why = finding.worst;
  }

  EngineImpl& engine_;
  const Settled& s_;
  std::size_t arena_bytes_;
  double arena_ms_;
  std::optional<Oracle> oracle_;
  std::optional<Arena> arena_;
};

Choice EngineImpl::find(const Problem& problem, const Request& request, const Progress& progress) {
  const auto begin = Clock::now();
  const Settled s(problem, request);
  if (is_lock_) {
    throw Error(Status::unsupported,
                store_.directory() +
                    " is a lock: its kernels are settled, and find would change nothing; set "
                    "FALTUNG_STORE to a directory that can be written");
  }
  // Also where progress throws: what was measured by then counts.
  const struct Forget {
    EngineImpl& engine;
    ~Forget() { engine.forget_plans(); }
  } forget{*this};
  Selection selection = candidates(s);
  require_recipes(selection, s);
  Trials trials(store_, s.problem, s.device->info(), s.threads);
  const std::vector<const Candidate*> order = find_order(selection, trials);
  Measuring measuring(*this, s);
  constexpr double kFinal = 0.25;  // of the budget
  const double heats_ms = s.budget_ms * (1 - kFinal);
  double best_ms = 0, model_factor = 1;  // the best's, measured over predicted
  int done = 0;
  std::size_t compiled = 0;  // of order, ahead of their turn
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Candidate* const candidate = order[at];
    // A right answer is worth more than the budget; beyond it nothing is tried once there is one. What is
    // compiled already is tried in half of the finals' time, too.
    const double left = (at < compiled ? (heats_ms + s.budget_ms) / 2 : heats_ms) - ms_after(begin);
    if (best_ms > 0 && candidate->cost.ms * model_factor >= left) continue;
    const std::string kernel = candidate->kernel();
    if (progress) {
      const CallersFloatMode callers;
      progress(done, static_cast<int>(order.size()), kernel);
    }
    if (at >= compiled && !s.on_cpu()) {
      const std::size_t some = std::min(compiled_at_once(left), order.size() - at);
      trust_.compile_ahead(std::span(order).subspan(at, some), s);
      compiled = at + some;
    }
    ++done;
    if (!trust_.admit(*candidate, s)) continue;
    const double share_ms = std::clamp(left / static_cast<double>(order.size()), 5.0, 200.0);
    Report report = measuring.measure(*candidate, share_ms, best_ms);
    report.kernel = kernel;
    report.predicted_ms = candidate->cost.ms;
    report.deterministic = candidate->repeatable == Repeatable::same_bits;
    if (s.logs_find) {
      fmt::print(stderr, "faltung: find: {} predicted {:.4g} ms, measured {:.4g}, {}\n", kernel,
                 report.predicted_ms, report.ms, name(report.outcome));
    }
    switch (report.outcome) {
      case Outcome::declined:
        continue;
      case Outcome::pass:
        if (best_ms > 0 && report.ms >= best_ms) break;
        best_ms = report.ms;
        if (candidate->cost.ms > 0) model_factor = report.ms / candidate->cost.ms;
        break;
      case Outcome::out_of_memory:  // which says nothing of other sizes
      case Outcome::too_large:
        warn(fmt::format("{} is passed over for {}: {}", kernel, to_string(s.problem), report.why));
        break;
      default:
        trust_.condemn(*candidate, s.problem, s, report, kFindSeed);
    }
    trials.add(report);
  }
  trust_.sift(selection, s);
  measuring.run_final(selection, trials, s.budget_ms - ms_after(begin));
  return describe(s, selection, trials);
}

}  // namespace faltung
