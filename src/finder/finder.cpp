#include "src/finder/finder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/core.h>

#include "src/finder/cost.hpp"
#include "src/finder/trial.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bool logging() {
  const char* log = std::getenv("FALTUNG_LOG");
  return log != nullptr && std::string_view(log).find("find") != std::string_view::npos;
}

constexpr double kClose = 1.2;  // times the best: may still be the faster one, measured again

// The fastest candidate that was measured and found right; null if none was.
const Candidate* best_measured(const Selection& selection, const Trials& trials) {
  for (const Measured& m : trials.all()) {
    if (m.verdict != "pass") continue;
    for (const Candidate& candidate : selection.candidates) {
      if (candidate.kernel() == m.kernel) return &candidate;
    }
  }
  return nullptr;
}

// The order in which find measures: what was best before, then each algorithm's first choice, then the rest;
// each part by the model.
std::vector<const Candidate*> trial_order(const Selection& selection, const Trials& trials) {
  std::vector<const Candidate*> order;
  const auto add = [&](const Candidate* candidate) {
    if (std::find(order.begin(), order.end(), candidate) == order.end()) order.push_back(candidate);
  };
  if (const Candidate* known = best_measured(selection, trials)) add(known);
  std::vector<const Algorithm*> seen;
  for (const Candidate& candidate : selection.candidates) {
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

}  // namespace

struct EngineImpl::Setting {
  Problem problem;
  Request request;
  std::shared_ptr<Device> device;
  int threads;
  Target target() const { return {*device, threads}; }
};

EngineImpl::EngineImpl(const std::string& store_directory) : store_(store_directory) {}

EngineImpl::Setting EngineImpl::settle(const Problem& problem, const Request& request) {
  validate(problem);
  if (request.threads < 0) {
    throw Error(Status::bad_problem,
                fmt::format("threads is {}; it must be 0 (all) or more", request.threads));
  }
  std::shared_ptr<Device> device = find_device(request.device);
  const bool is_cpu = device->info().kind == "cpu";
  const int threads = !is_cpu ? 1 : request.threads > 0 ? request.threads : available_processors();
  return {problem, request, std::move(device), threads};
}

std::shared_ptr<const Parallel> EngineImpl::workers(const Request& request) {
  const int threads = request.threads > 0 ? request.threads : available_processors();
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Parallel>& workers = workers_[threads];
  if (!workers) workers = std::make_shared<const Parallel>(threads);
  return workers;
}

std::shared_ptr<const PlanImpl> EngineImpl::make_plan(const Problem& problem, const Candidate& candidate,
                                                      const Request& request) {
  const Setting s = settle(problem, request);
  return std::make_shared<const PlanImpl>(
      problem, candidate.kernel(),
      make_recipe(*candidate.algorithm, problem, candidate.config.name, s.target()), s.device,
      s.device->info().kind == "cpu" ? workers(request) : nullptr);
}

std::shared_ptr<const PlanImpl> EngineImpl::plan(const Problem& problem, const Request& request) {
  const Setting s = settle(problem, request);
  const Selection selection = select(problem, request, s.target());
  const Trials trials(store_, problem, s.device->info(), s.threads);
  const Candidate* known = best_measured(selection, trials);
  return make_plan(problem, known != nullptr ? *known : selection.candidates.front(), request);
}

Choice EngineImpl::find(const Problem& problem, const Request& request, const Progress& progress) {
  const auto begin = Clock::now();
  const Setting s = settle(problem, request);
  const Selection selection = select(problem, request, s.target());
  Trials trials(store_, problem, s.device->info(), s.threads);
  const std::vector<const Candidate*> order = trial_order(selection, trials);

  const std::shared_ptr<const Parallel> parallel = workers(request);
  constexpr double kProducts = 2e7;  // some 20 ms of reference
  const Oracle oracle(problem, Data::random, 1, 1, kProducts);
  // Filling the sets must not eat the budget.
  constexpr double kFilling = 0.2;
  Arena arena(*s.device, oracle, 2 * s.device->info().cache_bytes, 64, kFilling * request.budget_ms);
  std::vector<std::byte> result(static_cast<std::size_t>(oracle.result_bytes()));

  constexpr double kFinal = 0.25;  // of the budget
  const double heats_ms = request.budget_ms * (1 - kFinal);
  double best_ms = 0;
  int done = 0;
  for (const Candidate* candidate : order) {
    const double left = heats_ms - ms_since(begin);
    if (done > 0 && left <= 0) break;
    const std::string kernel = candidate->kernel();
    if (progress) progress(done, static_cast<int>(order.size()), kernel);
    ++done;
    Measured measured{kernel, "pass"};
    try {
      Runner runner(make_plan(problem, *candidate, request), arena);
      const double share_ms = std::clamp(left / static_cast<double>(order.size()), 5.0, 200.0);
      const Timing timing = time_runner(runner, share_ms, best_ms);
      measured.ms = timing.median;
      measured.ms_min = timing.min;
      measured.ms_max = timing.max;
      measured.workspace_bytes = runner.plan().workspace_bytes(true);
      if (best_ms == 0 || timing.median < kClose * best_ms) {
        // It may win: is it right? The last run's result is in one of the sets; run on the first to know
        // which.
        RunOptions options;
        const Buffer workspace = s.device->allocate(runner.plan().workspace_bytes(false) + 1);
        options.workspace = workspace.pointer;
        runner.plan().run(arena.first(), options);
        s.device->synchronize({});
        const Buffer view{nullptr, result_pointer(problem, arena.first()), result.size()};
        s.device->copy_out(result.data(), view, result.size());
        const Accuracy accuracy = candidate->algorithm->accuracy(problem, candidate->config.name);
        const Finding finding = oracle.check(result.data(), accuracy, *parallel);
        measured.error_over_bound = finding.error_over_bound;
        if (finding.right()) {
          best_ms = best_ms == 0 ? timing.median : std::min(best_ms, timing.median);
        } else {
          measured.verdict = "wrong";
          fmt::print(stderr, "faltung: warning: {} is wrong and will not be used: {}\n", kernel,
                     finding.worst);
        }
      }
    } catch (const Error& error) {
      // A kernel that cannot run costs the caller nothing: the next one answers.
      fmt::print(stderr, "faltung: warning: {} failed and is passed over: {}\n", kernel, error.what());
      continue;
    }
    if (logging()) {
      fmt::print(stderr, "faltung: find: {} predicted {:.4g} ms, measured {:.4g}, {}\n", kernel,
                 candidate->config.predicted_ms, measured.ms, measured.verdict);
    }
    trials.add(measured);
  }
  run_final(s, selection, arena, trials, request.budget_ms - ms_since(begin));
  return describe(s, selection, trials);
}

// The few that came in close together are timed again, in turn: each was measured at another moment, and what
// else the machine did then may have decided.
void EngineImpl::run_final(const Setting& s, const Selection& selection, Arena& arena, Trials& trials,
                           double budget_ms) {
  constexpr std::size_t kMost = 4;
  std::vector<Measured> finalists;
  for (const Measured& m : trials.all()) {
    if (m.verdict != "pass" || m.error_over_bound < 0 || finalists.size() == kMost) continue;
    if (!finalists.empty() && m.ms > kClose * finalists.front().ms) continue;
    const bool listed = std::any_of(selection.candidates.begin(), selection.candidates.end(),
                                    [&](const Candidate& c) { return c.kernel() == m.kernel; });
    if (listed) finalists.push_back(m);
  }
  if (finalists.size() < 2 || budget_ms <= 0) return;
  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<Runner*> racing;
  for (const Measured& m : finalists) {
    const auto candidate = std::find_if(selection.candidates.begin(), selection.candidates.end(),
                                        [&](const Candidate& c) { return c.kernel() == m.kernel; });
    runners.push_back(std::make_unique<Runner>(make_plan(s.problem, *candidate, s.request), arena));
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

Choice EngineImpl::explain(const Problem& problem, const Request& request) {
  const Setting s = settle(problem, request);
  const Selection selection = select(problem, request, s.target());
  return describe(s, selection, Trials(store_, problem, s.device->info(), s.threads));
}

// One line a candidate, best first, then one a refusal. An algorithm's candidates beyond the first are left
// out unless they were measured.
Choice EngineImpl::describe(const Setting& s, const Selection& selection, const Trials& trials) {
  const Candidate* known = best_measured(selection, trials);
  const Candidate* chosen = known != nullptr ? known : &selection.candidates.front();
  const Filter filter(s.request);
  Choice choice;
  choice.kernel = chosen->kernel();
  choice.source = !filter.forced().empty() ? "forced" : known != nullptr ? "store" : "model";
  const Roofline roof = roofline(s.problem, ceilings(*s.device, s.threads));

  const auto line = [&](const Candidate& candidate) {
    Trial t;
    t.kernel = candidate.kernel();
    t.predicted_ms = candidate.config.predicted_ms;
    t.workspace_bytes = candidate.config.workspace_bytes;
    t.error_growth = candidate.algorithm->accuracy(s.problem, candidate.config.name).growth;
    const Measured* m = trials.find(t.kernel);
    if (m != nullptr) {
      t.ms = m->ms, t.ms_min = m->ms_min, t.ms_max = m->ms_max;
      t.error_over_bound = m->error_over_bound;
      t.workspace_bytes = m->workspace_bytes;
    }
    const double ms = m != nullptr ? m->ms : t.predicted_ms;
    t.ceiling_pct = roof.share(ms);
    t.bound_by = candidate.config.bound_by.empty() ? roof.bound_by(ms) : candidate.config.bound_by;
    t.verdict = &candidate == chosen                   ? "chosen"
                : m != nullptr && m->verdict != "pass" ? m->verdict
                : m != nullptr                         ? "slower"
                                                       : "not measured";
    return t;
  };

  choice.trials.push_back(line(*chosen));
  std::vector<Trial> others;
  std::vector<const Algorithm*> seen{chosen->algorithm};
  for (const Candidate& candidate : selection.candidates) {
    const bool first = std::find(seen.begin(), seen.end(), candidate.algorithm) == seen.end();
    seen.push_back(candidate.algorithm);
    if (&candidate != chosen && (first || trials.find(candidate.kernel()) != nullptr))
      others.push_back(line(candidate));
  }
  const double chosen_ms = choice.trials[0].ms > 0 ? choice.trials[0].ms : choice.trials[0].predicted_ms;
  for (Trial& t : others) {
    const double ms = t.ms > 0 ? t.ms : t.predicted_ms;
    if (chosen_ms > 0 && ms > 0)
      t.why = fmt::format("{:.2f}x the chosen one's time{}", ms / chosen_ms, t.ms > 0 ? "" : ", predicted");
  }
  std::stable_sort(others.begin(), others.end(), [](const Trial& a, const Trial& b) {
    return (a.ms > 0 ? a.ms : a.predicted_ms) < (b.ms > 0 ? b.ms : b.predicted_ms);
  });
  std::move(others.begin(), others.end(), std::back_inserter(choice.trials));
  for (const Refusal& refusal : selection.refusals) {
    Trial t;
    t.kernel = refusal.kernel;
    t.verdict = refusal.verdict;
    t.why = refusal.why;
    choice.trials.push_back(std::move(t));
  }
  return choice;
}

Ceilings EngineImpl::ceilings(Device& device, int threads) {
  if (const std::optional<Ceilings> known = load_ceilings(store_, device.info(), threads)) return *known;
  const Ceilings measured = device.measure_ceilings(threads);
  save_ceilings(store_, device.info(), threads, measured);
  return measured;
}

}  // namespace faltung
