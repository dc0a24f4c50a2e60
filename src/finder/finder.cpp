#include "src/finder/finder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/finder/cost.hpp"
#include "src/finder/installed.hpp"
#include "src/finder/lock.hpp"
#include "src/problem/tolerance.hpp"

namespace faltung {
namespace {

// The order in which plan takes them: the fastest that was measured, then by the model; without those that
// were measured and failed.
std::vector<const Candidate*> plan_order(const Selection& selection, const Trials& trials) {
  const Candidate* known = best_measured(selection, trials);
  std::vector<const Candidate*> order;
  if (known != nullptr) order.push_back(known);
  for (const Candidate& candidate : selection.candidates) {
    const Measured* m = trials.find(candidate.kernel());
    if (&candidate != known && (m == nullptr || m->verdict == "pass")) order.push_back(&candidate);
  }
  return order;
}

// Whether a kernel is worth a trial while another answers at once.
bool promises_more(const Candidate& candidate, const Candidate& sure) {
  constexpr double kWorthATrial = 1.25;
  return candidate.algorithm->last_resort() == sure.algorithm->last_resort() &&
         candidate.config.predicted_ms * kWorthATrial < sure.config.predicted_ms;
}

// What plan would begin with.
const Candidate* first_choice(const Candidate* sure, const std::vector<const Candidate*>& order) {
  if (order.empty()) return sure;
  return sure == nullptr || sure == order.front() || promises_more(*order.front(), *sure) ? order.front()
                                                                                          : sure;
}

// The verdicts on known devices that came with the package. FALTUNG_KNOWN_DEVICES names another file, which
// must be there, or says `none`.
std::unique_ptr<const Store> open_shipped() {
  const char* given = std::getenv("FALTUNG_KNOWN_DEVICES");
  const std::string setting = given == nullptr ? "" : given;
  if (setting == "none") return nullptr;
  if (!setting.empty()) {
    if (!std::filesystem::is_regular_file(setting)) {
      throw Error(Status::bad_file, "FALTUNG_KNOWN_DEVICES is '" + setting +
                                        "', which is no file; it must be one that `faltung store export` "
                                        "wrote, or none");
    }
    return std::make_unique<const Store>(setting + ":readonly");
  }
  const std::string file =
      installed_file({"share/faltung/known_devices.json", "../share/faltung/known_devices.json",
                      "../../share/faltung/known_devices.json"});
  return file.empty() ? nullptr : std::make_unique<const Store>(file);
}

}  // namespace

EngineImpl::EngineImpl(const std::string& store_directory)
    : store_(store_directory, [this](const std::string& line) { warn(line); }),
      shipped_(open_shipped()),
      is_lock_(is_lock(store_)),
      trust_(store_, shipped_.get(), [this](const std::string& line) { warn(line); }) {}

void EngineImpl::on_warning(std::function<void(const std::string&)> warn) {
  const std::lock_guard lock(mutex_);
  warn_ = std::move(warn);
}

void EngineImpl::warn(const std::string& line) {
  std::function<void(const std::string&)> warn;
  {
    const std::lock_guard lock(mutex_);
    warn = warn_;
  }
  if (warn) warn(line);
}

Selection EngineImpl::candidates(const Problem& problem, const Request& request) {
  const Setting s = settle(problem, request);
  if (!is_lock_) {
    Selection selection = select(problem, request, s.target());
    trust_.sift(selection, problem, s.device->info());
    return selection;
  }
  const std::string kernel = locked_kernel(store_, problem, s.device->info());
  const KernelName name = parse_kernel(kernel);
  if (!Filter(request).allows(*name.algorithm, name.config)) {
    throw Error(Status::unsupported, "the lock " + store_.directory() + " names " + kernel + " for " +
                                         to_string(problem) + ", which the kernel patterns do not allow");
  }
  Selection selection;
  for (Config& config : name.algorithm->configs(problem, s.target())) {
    if (config.name == name.config) selection.candidates.push_back({name.algorithm, std::move(config)});
  }
  if (selection.candidates.empty()) selection.candidates.push_back({name.algorithm, {name.config, 0, "", 0}});
  trust_.sift(selection, problem, s.device->info());
  return selection;
}

// The kernel that may be used at once, without a trial: the fastest that was measured, else the best by the
// model. Null if every candidate needs a trial first.
const Candidate* EngineImpl::sure_choice(const Setting& s, const Selection& selection,
                                         const Trials& trials) const {
  for (const Candidate* candidate : plan_order(selection, trials)) {
    if (trust_.standing(*candidate, s.problem, s.device->info()) != Standing::untried) return candidate;
  }
  return nullptr;
}

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
  const jit::Warnings warnings([this](const std::string& line) { warn(line); });
  return std::make_shared<const PlanImpl>(
      problem, candidate.kernel(),
      make_recipe(*candidate.algorithm, problem, candidate.config.name, s.target()), s.device,
      s.device->info().kind == "cpu" ? workers(request) : nullptr);
}

std::shared_ptr<const PlanImpl> EngineImpl::plan(const Problem& problem, const Request& request) {
  const Setting s = settle(problem, request);
  const DeviceInfo& device = s.device->info();
  const Selection selection = candidates(problem, request);
  const Trials trials(store_, problem, device, s.threads);
  const Candidate* sure = sure_choice(s, selection, trials);
  std::string failures;
  for (const Candidate* candidate : plan_order(selection, trials)) {
    // A kernel that was never tried here has to promise more than the one that was.
    if (sure != nullptr && trust_.standing(*candidate, problem, device) == Standing::untried &&
        !promises_more(*candidate, *sure)) {
      continue;
    }
    const std::string kernel = candidate->kernel();
    try {
      if (!trust_.admit(*candidate, problem, s.target())) continue;
      return make_plan(problem, *candidate, request);
    } catch (const Error& error) {
      if (error.status() == Status::bad_problem) throw;
      // The next one answers, in this call.
      failures += "\n  " + kernel + " failed: " + error.what();
      if (candidate->algorithm->starts_trusted() || sure != nullptr)
        warn(kernel + " is passed over: " + error.what());
    }
  }
  throw Error(Status::unsupported,
              "no kernel can be used for " + to_string(problem) + " on " + device.id + failures);
}

Choice EngineImpl::explain(const Problem& problem, const Request& request) {
  const Setting s = settle(problem, request);
  const Selection selection = candidates(problem, request);
  return describe(s, selection, Trials(store_, problem, s.device->info(), s.threads));
}

// One line a candidate, best first, then one a refusal. An algorithm's candidates beyond the first are left
// out unless they were measured.
Choice EngineImpl::describe(const Setting& s, const Selection& selection, const Trials& trials) {
  const Candidate* known = best_measured(selection, trials);
  const Candidate* chosen = first_choice(sure_choice(s, selection, trials), plan_order(selection, trials));
  const Filter filter(s.request);
  Choice choice;
  choice.kernel = chosen->kernel();
  choice.source = is_lock_                   ? "lock"
                  : !filter.forced().empty() ? "forced"
                  : known != nullptr         ? "store"
                                             : "model";
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
  const std::optional<Ceilings> known = load_ceilings(store_, device.info(), threads);
  return known ? *known : measure_ceilings(device, threads);
}

Ceilings EngineImpl::measure_ceilings(Device& device, int threads) {
  Ceilings c = device.measure_ceilings(threads);
  if (const std::optional<Ceilings> known = load_ceilings(store_, device.info(), threads)) {
    c.f32_gflops = std::max(c.f32_gflops, known->f32_gflops);
    c.tf32_gflops = std::max(c.tf32_gflops, known->tf32_gflops);
    c.f16_gflops = std::max(c.f16_gflops, known->f16_gflops);
    c.bf16_gflops = std::max(c.bf16_gflops, known->bf16_gflops);
    c.copy_gbps = std::max(c.copy_gbps, known->copy_gbps);
  }
  save_ceilings(store_, device.info(), threads, c);
  return c;
}

}  // namespace faltung
