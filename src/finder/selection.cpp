#include "src/finder/selection.hpp"

#include <algorithm>
#include <cstdlib>

#include "src/problem/text.hpp"

namespace faltung {
namespace {

void add_environment(const char* variable, std::vector<std::string>& patterns) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return;
  for (const std::string& part : split(value, ',')) {
    if (!trim(part).empty()) patterns.emplace_back(trim(part));
  }
}

bool matches_any(const std::vector<std::string>& patterns, const Algorithm& algorithm,
                 const std::string& config) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return matches(pattern, algorithm.name()) || matches(pattern, kernel_name(algorithm, config));
  });
}

// A pattern whose algorithm part fits no algorithm is a misspelling.
void check_pattern(const std::string& pattern) {
  const std::string_view algorithm_part = std::string_view(pattern).substr(0, pattern.find('/'));
  std::vector<std::string> names;
  for (const auto& algorithm : registry()) {
    const bool whole_kernel =
        pattern.find('/') == std::string::npos && pattern.find('*') != std::string::npos;
    if (matches(algorithm_part, algorithm->name()) || whole_kernel) return;
    names.emplace_back(algorithm->name());
  }
  throw Error(Status::bad_problem, "kernel pattern '" + pattern + "' matches no algorithm; the nearest is " +
                                       nearest(algorithm_part, names));
}

std::string listed(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals)
    text += "\n  " + refusal.kernel + " " + refusal.verdict + ": " + refusal.why;
  return text;
}

// The reference is there to be compared with: it comes last, whatever it predicts.
bool is_last_resort(const Candidate& candidate) { return candidate.algorithm->last_resort(); }

}  // namespace

Filter::Filter(const Request& request) : only_(request.only), skip_(request.skip) {
  add_environment("FALTUNG_ONLY", only_);
  add_environment("FALTUNG_SKIP", skip_);
  for (const std::string& pattern : only_) {
    check_pattern(pattern);
    if (pattern.find('/') != std::string::npos && pattern.find_first_of("*?") == std::string::npos) {
      forced_.push_back(pattern);
    }
  }
  for (const std::string& pattern : skip_) check_pattern(pattern);
}

bool Filter::allows(const Algorithm& algorithm, const std::string& config) const {
  return (only_.empty() || matches_any(only_, algorithm, config)) && !matches_any(skip_, algorithm, config);
}

Selection select(const Problem& problem, const Request& request, const Target& target) {
  const Filter filter(request);
  Selection out;
  for (const auto& algorithm : registry()) {
    const std::string name(algorithm->name());
    if (algorithm->device_kind() != target.device.info().kind) continue;
    const Support support = algorithm->supports(problem, target);
    if (!support.yes) {
      out.refusals.push_back({name, "declined", support.why});
      continue;
    }
    std::vector<Config> configs = algorithm->configs(problem, target);
    for (const std::string& kernel : filter.forced()) {
      const KernelName parsed = parse_kernel(kernel);
      const bool listed = std::any_of(configs.begin(), configs.end(),
                                      [&](const Config& config) { return config.name == parsed.config; });
      if (parsed.algorithm == algorithm.get() && !listed) configs.push_back({parsed.config, 0, "", 0});
    }
    bool any_allowed = false;
    for (Config& config : configs) {
      if (!filter.allows(*algorithm, config.name)) continue;
      any_allowed = true;
      if (request.deterministic && !algorithm->deterministic(config.name)) {
        out.refusals.push_back(
            {kernel_name(*algorithm, config.name), "skipped",
             "it does not give the same bits every time, and deterministic was asked for"});
        continue;
      }
      if (config.workspace_bytes > request.workspace_limit) {
        out.refusals.push_back({kernel_name(*algorithm, config.name), "skipped",
                                "needs a workspace of " + std::to_string(config.workspace_bytes) +
                                    " bytes, the limit is " + std::to_string(request.workspace_limit)});
        continue;
      }
      out.candidates.push_back({algorithm.get(), std::move(config)});
    }
    if (!any_allowed) out.refusals.push_back({name, "skipped", "by the kernel patterns given"});
  }
  std::stable_sort(out.candidates.begin(), out.candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (is_last_resort(a) != is_last_resort(b)) return is_last_resort(b);
    return a.config.predicted_ms < b.config.predicted_ms;
  });
  require_candidates(out, problem, target.device.info());
  return out;
}

void require_candidates(const Selection& selection, const Problem& problem, const DeviceInfo& device) {
  if (!selection.candidates.empty()) return;
  throw Error(Status::unsupported, "no kernel may compute " + to_string(problem) + " on " + device.id +
                                       listed(selection.refusals));
}

}  // namespace faltung
