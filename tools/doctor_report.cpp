#include "tools/doctor_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/units.hpp"

namespace faltung::tools {
namespace {

const std::vector<std::string> kVerdicts{"pass",      "slow",    "wrong",         "out_of_bounds",
                                         "hang",      "crash",   "compile_error", "out_of_memory",
                                         "not tried", "declined"};

// Rows by what key gives, in the order of their first result.
template <class Key>
std::string matrix(const DeviceReport& report, const char* title, const Key& key) {
  std::vector<std::string> rows;
  std::map<std::string, std::map<std::string, int>> counts;
  std::set<std::string> seen{"pass", "slow", "wrong", "hang"};
  for (const Examined& e : report.results) {
    const std::string row = key(e);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    ++counts[row][e.verdict];
    seen.insert(e.verdict);
  }
  std::size_t width = std::string_view(title).size();
  for (const std::string& row : rows) width = std::max(width, row.size());
  std::string text = fmt::format("  {:<{}}", title, width);
  for (const std::string& verdict : kVerdicts) {
    if (seen.count(verdict) != 0)
      text += fmt::format("  {:>{}}", verdict, std::max<std::size_t>(5, verdict.size()));
  }
  text += "\n";
  for (const std::string& row : rows) {
    text += fmt::format("  {:<{}}", row, width);
    for (const std::string& verdict : kVerdicts) {
      if (seen.count(verdict) == 0) continue;
      const int count = counts[row][verdict];
      text += fmt::format("  {:>{}}", count > 0 ? std::to_string(count) : ".",
                          std::max<std::size_t>(5, verdict.size()));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

bool is_bad(const std::string& verdict) {
  return verdict != "pass" && verdict != "slow" && verdict != "declined" && verdict != "not tried";
}

void conclude(DeviceReport& report) {
  std::map<std::string, double> best;
  std::map<std::string, bool> served;
  for (const Examined& e : report.results) {
    served[e.problem] |= e.verdict == "pass" || e.verdict == "slow";
    if (e.verdict != "pass" || e.ms <= 0) continue;
    double& ms = best[e.problem];
    ms = ms == 0 ? e.ms : std::min(ms, e.ms);
  }
  for (Examined& e : report.results) {
    const double fastest = best.count(e.problem) != 0 ? best[e.problem] : 0;
    if (e.verdict != "pass" || fastest == 0 || e.ms <= kSlow * fastest) continue;
    e.verdict = "slow";
    e.what = fmt::format("{} ms, {:.0f} times the fastest kernel's {} ms", show_ms(e.ms), e.ms / fastest,
                         show_ms(fastest));
  }
  for (const auto& [problem, is_served] : served) {
    if (!is_served) report.without.push_back(problem);
  }
}

std::string skip_setting(const DeviceReport& report) {
  std::set<std::string> bad;
  std::map<std::string, std::set<std::string>> kernels;  // of an algorithm
  for (const Examined& e : report.results) {
    if (e.kernel != e.algorithm) kernels[e.algorithm].insert(e.kernel);
    if (is_bad(e.verdict)) bad.insert(e.kernel);
  }
  std::string setting;
  const auto add = [&](const std::string& pattern) { setting += (setting.empty() ? "" : ",") + pattern; };
  for (const auto& [algorithm, all] : kernels) {
    const bool all_bad =
        std::all_of(all.begin(), all.end(), [&](const auto& k) { return bad.count(k) != 0; });
    if (all_bad) add(algorithm);
    for (const std::string& kernel : all) {
      if (!all_bad && bad.count(kernel) != 0) add(kernel);
    }
  }
  return setting;
}

int bad_results(const DeviceReport& report) {
  return static_cast<int>(std::count_if(report.results.begin(), report.results.end(),
                                        [](const Examined& e) { return is_bad(e.verdict); }));
}

std::string text_of(const DeviceReport& report, bool whole) {
  const DeviceInfo& d = report.device;
  std::string text = fmt::format("{}  {}\n  {}\n", d.id, d.description, d.driver);
  if (whole) {
    text += fmt::format("  key {}\n  features", d.key);
    for (const std::string& feature : d.features) text += " " + feature;
    text += fmt::format("\n  {} units, {} of memory, {} threads\n", d.units, show_bytes(d.memory_bytes),
                        report.threads);
  }
  std::set<std::string> kernels;
  for (const Examined& e : report.results) {
    if (e.kernel != e.algorithm) kernels.insert(e.kernel);
  }
  text += fmt::format("  {} of {} problems ({} with every kernel), {} kernels, {} trials, {:.0f} s{}\n\n",
                      report.reached, report.problems, report.reached_whole, kernels.size(),
                      report.results.size(), report.seconds,
                      report.reached_whole < report.problems ? "; a larger --budget tries more" : "");
  text += matrix(report, "family", [](const Examined& e) { return e.algorithm; });
  if (whole) text += "\n" + matrix(report, "problems", [](const Examined& e) { return e.group; });
  text += "\n";
  if (!report.lost.empty()) text += "  The device could not be used to the end: " + report.lost + "\n";
  constexpr std::size_t kShown = 5;
  std::size_t shown = 0;
  const auto hidden = static_cast<std::size_t>(bad_results(report));
  for (const Examined& e : report.results) {
    if (!is_bad(e.verdict) || (!whole && shown == kShown)) continue;
    ++shown;
    text += fmt::format("  {}: {} on {}: {}\n    reproduce: {}\n", e.kernel, e.verdict, e.problem, e.what,
                        e.reproduce);
  }
  if (shown < hidden) text += fmt::format("  and {} more, in the report\n", hidden - shown);
  if (whole) {
    for (const Examined& e : report.results) {
      if (e.verdict == "slow") text += fmt::format("  {}: slow on {}: {}\n", e.kernel, e.problem, e.what);
    }
  }
  const std::string skip = skip_setting(report);
  if (skip.empty()) {
    text += "  Settings: none are needed.\n";
  } else {
    text += fmt::format(
        "  Settings: none are needed with this store, where the kernels above are in quarantine now. Without "
        "it:\n"
        "    FALTUNG_SKIP='{}'\n",
        skip);
  }
  for (const std::string& problem : report.without) text += "  No kernel is right on " + problem + "\n";
  return text;
}

nlohmann::ordered_json json_of(const DeviceReport& report) {
  using Json = nlohmann::ordered_json;
  const DeviceInfo& d = report.device;
  Json json = {{"device", d.id},
               {"description", d.description},
               {"driver", d.driver},
               {"key", d.key},
               {"features", d.features},
               {"units", d.units},
               {"memory_bytes", d.memory_bytes},
               {"threads", report.threads},
               {"problems", report.problems},
               {"reached", report.reached},
               {"reached_with_every_kernel", report.reached_whole},
               {"seconds", report.seconds},
               {"lost", report.lost},
               {"skip", skip_setting(report)},
               {"without_a_kernel", report.without}};
  std::map<std::string, std::map<std::string, int>> counts;
  for (const Examined& e : report.results) ++counts[e.algorithm][e.verdict];
  json["matrix"] = counts;
  json["results"] = Json::array();
  for (const Examined& e : report.results) {
    json["results"].push_back({{"kernel", e.kernel},
                               {"group", e.group},
                               {"problem", e.problem},
                               {"verdict", e.verdict},
                               {"what", e.what},
                               {"ms", e.ms},
                               {"compile_ms", e.compile_ms},
                               {"error_over_bound", e.error_over_bound},
                               {"reproduce", e.reproduce}});
  }
  return json;
}

}  // namespace faltung::tools
