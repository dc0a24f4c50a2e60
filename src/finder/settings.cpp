#include "src/finder/settings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/finder/installed.hpp"
#include "src/problem/environment.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

// Those of the request and of the variable, which are lists with commas.
std::vector<std::string> all_patterns(std::vector<std::string> lists, const char* variable) {
  lists.push_back(environment(variable));
  std::vector<std::string> all;
  for (const std::string& list : lists) {
    for (const std::string& part : split(list, ',')) {
      if (!trim(part).empty()) all.emplace_back(trim(part));
    }
  }
  return all;
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view algorithm,
                 const std::string& kernel) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return matches(pattern, algorithm) || matches(pattern, kernel);
  });
}

// Whether it may match a name that begins so: from its first star on, it takes what comes.
bool may_match(std::string_view pattern, std::string_view beginning) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return false;  // a kernel's has a slash
  const std::size_t common = std::min(star, beginning.size());
  return matches(pattern.substr(0, common), beginning.substr(0, common));
}

// A pattern whose algorithm part fits no algorithm is a misspelling, unless it is of whole kernel names.
void check_pattern(const std::string& pattern) {
  const std::string_view algorithm_part = std::string_view(pattern).substr(0, pattern.find('/'));
  const bool has_slash = algorithm_part.size() < pattern.size();
  std::vector<std::string> names;
  for (const auto& algorithm : registry()) {
    const std::string beginning = std::string(algorithm->name()) + "/";
    if (matches(algorithm_part, algorithm->name()) || (!has_slash && may_match(pattern, beginning))) return;
    names.emplace_back(algorithm->name());
  }
  throw Error(Status::bad_problem, "kernel pattern '" + pattern + "' matches no algorithm; the nearest is " +
                                       nearest(algorithm_part, names));
}

TrustPolicy trust_policy(const Request& request) {
  if (request.trust) return *request.trust;
  const std::string setting = environment("FALTUNG_TRUST");
  if (setting.empty() || setting == "tested") return TrustPolicy::tested;
  if (setting == "all") return TrustPolicy::all;
  if (setting == "none") return TrustPolicy::none;
  throw Error(Status::bad_problem,
              "FALTUNG_TRUST is '" + setting + "'; it may be tested, all or none, or unset");
}

// A comma-separated list of what is to be said; find is all there is.
bool log_says_find() {
  const std::string log = environment("FALTUNG_LOG");
  if (log.empty()) return false;
  bool found = false;
  for (const std::string& part : split(log, ',')) {
    if (trim(part) != "find") {
      throw Error(Status::bad_problem, "FALTUNG_LOG is '" + log + "'; it may be find, or unset");
    }
    found = true;
  }
  return found;
}

// NaN is none, either.
double milliseconds(const char* what, double given) {
  if (given >= 0) return given;
  throw Error(Status::bad_problem, fmt::format("{} is {}; it must be 0 or more", what, given));
}

Problem valid(const Problem& problem) {
  validate(problem);
  return with_math(problem);
}

}  // namespace

Filter::Filter(const Request& request)
    : only_(all_patterns(request.only, "FALTUNG_ONLY")), skip_(all_patterns(request.skip, "FALTUNG_SKIP")) {
  for (const std::string& pattern : only_) {
    check_pattern(pattern);
    if (pattern.find('/') != std::string::npos && pattern.find_first_of("*?") == std::string::npos) {
      forced_.push_back(pattern);
    }
  }
  for (const std::string& pattern : skip_) check_pattern(pattern);
}

bool Filter::allows(const Algorithm& algorithm, const std::string& kernel) const {
  return (only_.empty() || matches_any(only_, algorithm.name(), kernel)) &&
         !matches_any(skip_, algorithm.name(), kernel);
}

Deadlines Deadlines::of_run(double run_ms) {
  Deadlines d;
  const std::string text = environment("FALTUNG_DEADLINE");
  if (run_ms <= 0 && !text.empty()) {
    char* end = nullptr;
    const double seconds = std::strtod(text.c_str(), &end);
    if (!(seconds > 0) || seconds > 1e6 || (std::string_view(end) != "" && std::string_view(end) != "s")) {
      throw Error(Status::bad_problem,
                  fmt::format("FALTUNG_DEADLINE is '{}'; it must be a number of seconds, e.g. 10", text));
    }
    run_ms = seconds * 1e3;
  }
  if (run_ms > 0) d.run = run_ms, d.compile = 12 * run_ms;
  return d;
}

WorkerPolicy worker_policy(const Request& request) {
  return {request.worker.empty() ? environment("FALTUNG_WORKER") : request.worker,
          Deadlines::of_run(milliseconds("deadline_ms", request.deadline_ms))};
}

Settled::Settled(const Problem& asked, const Request& request)
    : problem(valid(asked)),
      device(find_device(request.device)),
      threads(threads_of(request, device->info())),
      filter(request),
      workspace_limit(request.workspace_limit),
      deterministic(request.deterministic),
      denormals(request.flush_denormals ? Denormals::flush : Denormals::keep),
      budget_ms(milliseconds("budget_ms", request.budget_ms)),
      trust(trust_policy(request)),
      worker(worker_policy(request)),
      logs_find(log_says_find()) {
  for (const std::vector<std::string>* patterns : {&request.only, &request.skip}) {
    for (const std::string& pattern : *patterns) patterns_ += pattern + ",";
    patterns_ += ";";
  }
  patterns_ += environment("FALTUNG_ONLY") + ";" + environment("FALTUNG_SKIP");
}

std::string Settled::key() const {
  return fmt::format("{} on {} threads={} workspace={} deterministic={} denormals={} trust={} patterns={}",
                     to_string(problem), device->info().id, threads, workspace_limit, deterministic,
                     static_cast<int>(denormals), static_cast<int>(trust), patterns_);
}

int threads_of(const Request& request, const DeviceInfo& device) {
  if (request.threads < 0 || request.threads > kMostThreads) {
    throw Error(Status::bad_problem,
                fmt::format("threads is {}; it must be 0 (all) to {}", request.threads, kMostThreads));
  }
  if (device.kind != "cpu") return 1;
  return request.threads > 0 ? request.threads : available_processors();
}

KnownDevices known_devices() {
  const std::string setting = environment("FALTUNG_KNOWN_DEVICES");
  if (setting == "none") return {"", true};
  if (setting.empty()) {
    return {installed_file({"share/faltung/known_devices.pack", "../share/faltung/known_devices.pack",
                            "../../share/faltung/known_devices.pack"}),
            false};
  }
  if (!std::filesystem::is_regular_file(setting)) {
    throw Error(Status::bad_file, "FALTUNG_KNOWN_DEVICES is '" + setting +
                                      "', which is no file; it must be one that `faltung store export` "
                                      "wrote, or none");
  }
  return {setting, true};
}

}  // namespace faltung
