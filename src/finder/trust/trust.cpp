#include "src/finder/trust/trust.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "src/backend/offline_compiler.hpp"
#include "src/finder/report.hpp"

namespace faltung {
namespace {

constexpr double kSmall = 2e7;  // operations of a trial
constexpr std::uint64_t kSeed = 1;

// Whether the same kernel computes this problem by the same programs.
bool takes(const Candidate& candidate, const std::vector<std::string>& programs, const Problem& problem,
           const Target& target) {
  try {
    validate(problem);
    const Candidate same = candidate.algorithm->candidate(problem, candidate.maker, target);
    return same.recipe.program_digests() == programs;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

SmallProblem small_problem(const Candidate& candidate, const Settled& s, Keep keep) {
  // Kernels are known that hang on every image above 42 x 42.
  constexpr std::int64_t kLargeImage = 48, kLeastImage = 8, kLeastChannels = 8;
  const std::vector<std::string> programs = candidate.recipe.program_digests();
  DeviceInfo device = s.device->info();
  const Target target{device, s.threads};
  Problem small = s.problem;
  int units = device.units;  // by which it became so small
  if (keep == Keep::image) {
    Problem larger = s.problem;
    if (larger.dimensions > 1) larger.h = std::max(larger.h, kLargeImage);
    larger.w = std::max(larger.w, kLargeImage);
    if (takes(candidate, programs, larger, target)) small = larger;
  }
  while (flops(small) > kSmall) {
    std::vector<Problem> halves;  // what is to shrink first before the rest
    const auto halve = [&](bool may, auto... sizes) {
      if (!may) return;
      halves.push_back(small);
      ((halves.back().*sizes /= 2), ...);
    };
    const auto halve_image = [&](std::int64_t least) {
      halve(small.d > kLeastImage, &Problem::d);
      halve(small.h > least && small.h >= small.w, &Problem::h);
      halve(small.w > least, &Problem::w);
    };
    // Groups keep their size before their number shrinks.
    const std::int64_t groups = small.groups, c = small.c / groups, k = small.k / groups;
    halve(small.n > 2, &Problem::n);
    halve_image(keep == Keep::image ? 2 * kLargeImage - 1 : kLeastImage);
    halve(c > kLeastChannels && c % 2 == 0, &Problem::c);
    halve(k > kLeastChannels && k % 2 == 0, &Problem::k);
    halve(groups > 4 && groups % 2 == 0, &Problem::groups, &Problem::c, &Problem::k);
    halve(small.n > 1, &Problem::n);
    halve_image(kLeastImage);
    const auto next = std::find_if(halves.begin(), halves.end(),
                                   [&](const Problem& p) { return takes(candidate, programs, p, target); });
    if (next != halves.end()) {
      small = *next, units = device.units;
    } else if (device.units /= 2; device.units == 0 || !takes(candidate, programs, small, target)) {
      break;
    }
  }
  return {small, units};
}

Task small_task(const Candidate& candidate, const Settled& s, std::uint64_t seed) {
  Task task;
  task.kernel = candidate.kernel();
  const SmallProblem small = small_problem(candidate, s);
  task.problem = small.problem, task.units = small.units;
  task.device = s.device->info().id;
  task.threads = s.threads;
  task.seed = seed;
  task.launches = kTrialLaunches;
  task.predicted_ms = candidate.cost.ms;
  return task;
}

Trust::Trust(Store& store, const Store* shipped, std::function<void(const std::string&)> warn)
    : store_(store), verdicts_(store, shipped), warn_(std::move(warn)) {}

Standing Trust::standing(const Candidate& candidate, const Settled& s) const {
  if (s.trust == TrustPolicy::all) return Standing::trusted;
  const std::string key = verdict_key(candidate, s.problem, s.device->info());
  if (verdicts_.quarantined(key)) return Standing::quarantined;
  if (s.trust != TrustPolicy::none && candidate.algorithm->starts_trusted()) return Standing::trusted;
  return verdicts_.verified(key) ? Standing::verified : Standing::untried;
}

void Trust::sift(Selection& selection, const Settled& s) const {
  if (s.trust == TrustPolicy::all) return;
  const std::vector<std::string> bad = verdicts_.kernels_in_quarantine();
  if (bad.empty()) return;
  std::erase_if(selection.candidates, [&](const Candidate& candidate) {
    const std::string kernel = candidate.kernel();
    if (std::find(bad.begin(), bad.end(), kernel) == bad.end()) return false;
    const std::optional<Verdict> verdict =
        verdicts_.quarantined(verdict_key(candidate, s.problem, s.device->info()));
    if (!verdict) return false;
    selection.refusals.push_back(report_of(
        Outcome::quarantined,
        fmt::format("{} on {}: {}", name(verdict->report.outcome), verdict->problem, verdict->report.why),
        kernel));
    return true;
  });
  require_candidates(selection, s);
}

// The trial of one verdict, which no two threads make at a time.
class Trust::Turn {
 public:
  Turn(Trust& trust, std::string key) : trust_(trust), key_(std::move(key)) {
    std::unique_lock lock(trust_.mutex_);
    trust_.trial_ended_.wait(lock, [&] { return trust_.tried_now_.insert(key_).second; });
  }
  ~Turn() {
    {
      const std::lock_guard lock(trust_.mutex_);
      trust_.tried_now_.erase(key_);
    }
    trust_.trial_ended_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Trust& trust_;
  const std::string key_;
};

bool Trust::admit(const Candidate& candidate, const Settled& s) {
  Standing known = standing(candidate, s);
  if (known == Standing::untried) {
    const Turn turn(*this, verdict_key(candidate, s.problem, s.device->info()));
    known = standing(candidate, s);  // as another thread's trial has left it
    if (known == Standing::untried) return try_now(candidate, s);
  }
  return known != Standing::quarantined;
}

bool Trust::try_now(const Candidate& candidate, const Settled& s) {
  Task task = small_task(candidate, s, kSeed);
  const Problem asked = task.problem;
  const SmallProblem large = small_problem(candidate, s, Keep::image);
  const Problem& larger = large.problem;
  if (larger != asked) task.next = larger;
  // Of which the same programs are run where nobody says how many units there are.
  const auto shown = [&] { return task.units == s.device->info().units ? task.problem : s.problem; };
  const Problem first_shown = shown();
  const Report first = examine(task, s);
  if (first.outcome == Outcome::declined) return false;  // with this problem; it may serve another
  Report last = first;
  if (passed(last)) {
    task.problem = larger, task.units = large.units;
    task.next.reset();
    task.launches = 0;
    if (larger != asked) last = examine(task, s);
  }
  if (passed(last) || last.outcome == Outcome::declined) {
    keep(candidate, first_shown, s, first, kSeed);
    return true;
  }
  condemn(candidate, shown(), s, last, kSeed);
  return false;
}

Workers& Trust::workers(const Settled& s) {
  const DeviceInfo& device = s.device->info();
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Workers>& workers = workers_[device.id + " " + s.worker.command];
  if (!workers) workers = std::make_unique<Workers>(device.id, s.worker.command, most_workers(device));
  return *workers;
}

Report Trust::examine(const Task& task, const Settled& s) {
  Task here = task;
  here.device_key = s.device->info().key;
  here.store = store_.location();
  if (here.units == 0) here.units = s.device->info().units;
  if (!store_.readonly()) here.compiler = offline_compiler_of(s.device->info().code_key);
  return workers(s).examine(here, s.worker.deadlines);
}

void Trust::compile_ahead(std::span<const Candidate* const> candidates, const Settled& s) {
  if (s.on_cpu()) return;
  std::vector<Task> tasks;
  for (const Candidate* candidate : candidates) {
    const Standing known = standing(*candidate, s);
    if (known == Standing::quarantined || known == Standing::trusted) continue;
    tasks.push_back(small_task(*candidate, s, kSeed));
    tasks.back().store = store_.location();
    if (known == Standing::verified) tasks.back().problem = s.problem;
  }
  if (tasks.size() > 1) workers(s).compile_ahead(tasks, s.worker.deadlines);
}

void Trust::condemn(const Candidate& candidate, const Problem& problem, const Settled& s,
                    const Report& report, std::uint64_t seed) {
  const std::string kernel = candidate.kernel(), id = s.device->info().id;
  keep(candidate, problem, s, report, seed);
  warn_(fmt::format("{} is not used on {}: {} on {}: {}; reproduce: {}", kernel, id, name(report.outcome),
                    to_string(problem), report.why, reproduce(problem, kernel, id, s.threads, seed)));
}

void Trust::keep(const Candidate& candidate, const Problem& problem, const Settled& s, const Report& report,
                 std::uint64_t seed) {
  if (report.outcome == Outcome::declined) return;
  const DeviceInfo& device = s.device->info();
  Verdict verdict;
  verdict.report = report;
  verdict.report.kernel = candidate.kernel();
  verdict.problem = to_string(problem);
  verdict.device = device.id;
  verdict.description = device.description;
  verdict.driver = device.driver;
  verdict.reproduce = reproduce(problem, verdict.report.kernel, device.id, s.threads, seed);
  const std::string key = verdict_key(candidate, s.problem, device);
  // Memory that is short now is there another time.
  if (report.outcome == Outcome::out_of_memory) {
    verdicts_.note(key, verdict);
  } else {
    verdicts_.file(key, verdict);
  }
}

}  // namespace faltung
