#include "src/finder/trust.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace faltung {
namespace {

constexpr double kSmall = 2e7;  // operations of a trial
constexpr std::uint64_t kSeed = 1;

// all: no kernel is tried or refused. none: those of the CPU are tried, too.
std::string trust_setting() {
  const char* text = std::getenv("FALTUNG_TRUST");
  const std::string setting = text == nullptr ? "" : text;
  if (setting.empty() || setting == "all" || setting == "none") return setting;
  throw Error(Status::bad_problem, "FALTUNG_TRUST is '" + setting + "'; it may be all or none, or unset");
}

bool takes(const Algorithm& algorithm, const std::string& config, const Problem& problem,
           const Target& target) {
  try {
    validate(problem);
    if (!algorithm.supports(problem, target).yes) return false;
    const std::vector<Config> configs = algorithm.configs(problem, target);
    return std::any_of(configs.begin(), configs.end(), [&](const Config& c) { return c.name == config; });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Problem small_problem(const Problem& problem, const Algorithm& algorithm, const std::string& config,
                      const Target& target) {
  Problem small = problem;
  // Halves what makes it large, the batch first; groups keep their size before their number shrinks.
  const auto halved = [&](int which) -> std::optional<Problem> {
    Problem p = small;
    const std::int64_t groups = p.groups;
    constexpr std::int64_t kLeastImage = 8, kLeastChannels = 8;
    if (which == 0 && p.n > 2) p.n /= 2;
    if (which == 1 && p.h > kLeastImage && p.h >= p.w) p.h /= 2;
    if (which == 2 && p.w > kLeastImage) p.w /= 2;
    if (which == 3 && p.c / groups > kLeastChannels && p.c / groups % 2 == 0) p.c /= 2;
    if (which == 4 && p.k / groups > kLeastChannels && p.k / groups % 2 == 0) p.k /= 2;
    if (which == 5 && groups > 4 && groups % 2 == 0) p.groups /= 2, p.c /= 2, p.k /= 2;
    if (which == 6 && p.n > 1) p.n /= 2;
    return p == small ? std::nullopt : std::optional(p);
  };
  while (flops(small) > kSmall) {
    bool shrunk = false;
    for (int which = 0; which < 7 && !shrunk; ++which) {
      const std::optional<Problem> next = halved(which);
      shrunk = next && takes(algorithm, config, *next, target);
      if (shrunk) small = *next;
    }
    if (!shrunk) break;
  }
  return small;
}

Task small_task(const Candidate& candidate, const Problem& problem, const Target& target,
                std::uint64_t seed) {
  Task task;
  task.kernel = candidate.kernel();
  task.problem = small_problem(problem, *candidate.algorithm, candidate.config.name, target);
  task.device = target.device.info().id;
  task.threads = target.threads;
  task.seed = seed;
  task.launches = kTrialLaunches;
  task.predicted_ms = candidate.config.predicted_ms;
  return task;
}

Trust::Trust(Store& store, std::function<void(const std::string&)> warn)
    : quarantine_(store), warn_(std::move(warn)) {}

Standing Trust::standing(const Candidate& candidate, const Problem& problem, const DeviceInfo& device) const {
  const std::string setting = trust_setting(), kernel = candidate.kernel();
  if (setting == "all") return Standing::trusted;
  if (quarantine_.quarantined(kernel, problem, device)) return Standing::quarantined;
  if (setting != "none" && candidate.algorithm->starts_trusted()) return Standing::trusted;
  return quarantine_.verified(kernel, problem, device) ? Standing::verified : Standing::untried;
}

void Trust::sift(Selection& selection, const Problem& problem, const DeviceInfo& device) const {
  if (trust_setting() == "all") return;
  std::erase_if(selection.candidates, [&](const Candidate& candidate) {
    const std::string kernel = candidate.kernel();
    const std::optional<KernelRecord> record = quarantine_.quarantined(kernel, problem, device);
    if (!record) return false;
    selection.refusals.push_back(
        {kernel, "quarantined", fmt::format("{} on {}: {}", record->verdict, record->problem, record->what)});
    return true;
  });
  require_candidates(selection, problem, device);
}

bool Trust::admit(const Candidate& candidate, const Problem& problem, const Target& target) {
  switch (standing(candidate, problem, target.device.info())) {
    case Standing::trusted:
    case Standing::verified:
      return true;
    case Standing::quarantined:
      return false;
    case Standing::untried:
      break;
  }
  const Task task = small_task(candidate, problem, target, kSeed);
  const Verdict verdict = examine(task);
  if (verdict.verdict == "declined") return false;  // with this problem; it may serve another
  if (verdict.passed()) {
    keep(candidate, task.problem, target, verdict, kSeed);
  } else {
    condemn(candidate, task.problem, target, verdict, kSeed);
  }
  return verdict.passed();
}

Verdict Trust::examine(const Task& task) {
  Worker* worker;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Worker>& slot = workers_[task.device];
    if (!slot) slot = std::make_unique<Worker>(task.device);
    worker = slot.get();
  }
  return worker->examine(task);
}

void Trust::condemn(const Candidate& candidate, const Problem& problem, const Target& target,
                    const Verdict& verdict, std::uint64_t seed) {
  const std::string kernel = candidate.kernel(), id = target.device.info().id;
  keep(candidate, problem, target, verdict, seed);
  warn_(fmt::format("{} is not used on {}: {} on {}: {}; reproduce: {}", kernel, id, verdict.verdict,
                    to_string(problem), verdict.what, reproduce(problem, kernel, id, target.threads, seed)));
}

void Trust::keep(const Candidate& candidate, const Problem& problem, const Target& target,
                 const Verdict& verdict, std::uint64_t seed) {
  if (verdict.verdict == "declined") return;
  const DeviceInfo& device = target.device.info();
  KernelRecord record;
  record.kernel = candidate.kernel();
  record.form = form_of(problem);
  record.verdict = verdict.verdict;
  record.what = verdict.what;
  record.problem = to_string(problem);
  record.device = device.id;
  record.description = device.description;
  record.driver = device.driver;
  record.reproduce = reproduce(problem, record.kernel, device.id, target.threads, seed);
  // Memory that is short now is there another time.
  const bool passing = verdict.verdict == "out_of_memory" && !verdict.never_fits;
  if (passing) {
    quarantine_.note(record, device);
  } else {
    quarantine_.file(record, device);
  }
}

}  // namespace faltung
