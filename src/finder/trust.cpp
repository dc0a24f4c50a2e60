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
                      const Target& target, Keep keep) {
  // Kernels are known that hang on every image above 42 x 42.
  constexpr std::int64_t kLargeImage = 48, kLeastImage = 8, kLeastChannels = 8;
  Problem small = problem;
  if (keep == Keep::image) {
    Problem larger = problem;
    larger.h = std::max(larger.h, kLargeImage), larger.w = std::max(larger.w, kLargeImage);
    if (takes(algorithm, config, larger, target)) small = larger;
  }
  while (flops(small) > kSmall) {
    std::vector<Problem> halves;  // what is to shrink first before the rest
    const auto halve = [&](bool may, auto... sizes) {
      if (!may) return;
      halves.push_back(small);
      ((halves.back().*sizes /= 2), ...);
    };
    const auto halve_image = [&](std::int64_t least) {
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
                                   [&](const Problem& p) { return takes(algorithm, config, p, target); });
    if (next == halves.end()) break;
    small = *next;
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

Trust::Trust(Store& store, const Store* shipped, std::function<void(const std::string&)> warn)
    : quarantine_(store, shipped), warn_(std::move(warn)) {}

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
  Task task = small_task(candidate, problem, target, kSeed);
  const Problem asked = task.problem;
  const Verdict passed = examine(task);
  if (passed.verdict == "declined") return false;  // with this problem; it may serve another
  Verdict verdict = passed;
  if (verdict.passed()) {
    task.problem = small_problem(problem, *candidate.algorithm, candidate.config.name, target, Keep::image);
    task.launches = 0;
    if (task.problem != asked) verdict = examine(task);
  }
  if (verdict.passed() || verdict.verdict == "declined") {
    keep(candidate, asked, target, passed, kSeed);
    return true;
  }
  condemn(candidate, task.problem, target, verdict, kSeed);
  return false;
}

Worker& Trust::worker(const std::string& device) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Worker>& slot = workers_[device];
  if (!slot) slot = std::make_unique<Worker>(device);
  return *slot;
}

Verdict Trust::examine(const Task& task) {
  Task here = task;
  here.device_key = find_device(task.device)->info().key;
  return worker(task.device).examine(here);
}

void Trust::compile_ahead(std::span<const Candidate* const> candidates, const Problem& problem,
                          const Target& target) {
  const DeviceInfo& device = target.device.info();
  if (device.kind == "cpu") return;
  std::vector<Task> tasks;
  for (const Candidate* candidate : candidates) {
    const Standing known = standing(*candidate, problem, device);
    if (known == Standing::quarantined || known == Standing::trusted) continue;
    tasks.push_back(small_task(*candidate, problem, target, kSeed));
    if (known == Standing::verified) tasks.back().problem = problem;
  }
  if (tasks.size() > 1) worker(device.id).compile_ahead(tasks);
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
