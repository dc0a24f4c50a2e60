#include "tools/doctor_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/finder/report.hpp"
#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// The columns of the matrix. Skipped: a kernel that hung before.
constexpr Outcome kOutcomes[] = {Outcome::pass,          Outcome::slow,          Outcome::wrong,
                                 Outcome::out_of_bounds, Outcome::hang,          Outcome::crash,
                                 Outcome::compile_error, Outcome::out_of_memory, Outcome::too_large,
                                 Outcome::skipped,       Outcome::declined};

// Rows by what key gives, in the order of their first result.
template <class Key>
std::string matrix(const DeviceReport& report, const char* title, const Key& key) {
  std::vector<std::string> rows;
  std::map<std::string, std::map<Outcome, int>> counts;
  std::set<Outcome> seen{Outcome::pass, Outcome::slow, Outcome::wrong, Outcome::hang};
  for (const Examined& e : report.results) {
    const std::string row = key(e);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    ++counts[row][e.report.outcome];
    seen.insert(e.report.outcome);
  }
  const auto column = [](Outcome outcome) {
    return std::max<std::size_t>(5, std::string_view(name(outcome)).size());
  };
  std::size_t width = std::string_view(title).size();
  for (const std::string& row : rows) width = std::max(width, row.size());
  std::string text = fmt::format("  {:<{}}", title, width);
  for (const Outcome outcome : kOutcomes) {
    if (seen.count(outcome) != 0) text += fmt::format("  {:>{}}", name(outcome), column(outcome));
  }
  text += "\n";
  for (const std::string& row : rows) {
    text += fmt::format("  {:<{}}", row, width);
    for (const Outcome outcome : kOutcomes) {
      if (seen.count(outcome) == 0) continue;
      const int count = counts[row][outcome];
      text += fmt::format("  {:>{}}", count > 0 ? std::to_string(count) : ".", column(outcome));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

bool is_bad(Outcome outcome) {
  return outcome != Outcome::pass && outcome != Outcome::slow && outcome != Outcome::declined &&
         outcome != Outcome::skipped;
}

void conclude(DeviceReport& report) {
  std::map<std::string, double> best;
  std::map<std::string, bool> served;
  for (const Examined& e : report.results) {
    const Report& r = e.report;
    served[e.problem] |= passed(r) || r.outcome == Outcome::slow;
    if (!passed(r) || r.ms <= 0) continue;
    double& ms = best[e.problem];
    ms = ms == 0 ? r.ms : std::min(ms, r.ms);
  }
  for (Examined& e : report.results) {
    const double fastest = best.count(e.problem) != 0 ? best[e.problem] : 0;
    Report& r = e.report;
    if (!passed(r) || fastest == 0 || r.ms <= kSlow * fastest) continue;
    r.outcome = Outcome::slow;
    r.why = fmt::format("{} ms, {:.0f} times the fastest kernel's {} ms", show_ms(r.ms), r.ms / fastest,
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
    const std::string& kernel = e.report.kernel;
    if (kernel != e.algorithm) kernels[e.algorithm].insert(kernel);
    if (is_bad(e.report.outcome)) bad.insert(kernel);
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
                                        [](const Examined& e) { return is_bad(e.report.outcome); }));
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
    if (e.report.kernel != e.algorithm) kernels.insert(e.report.kernel);
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
    if (!is_bad(e.report.outcome) || (!whole && shown == kShown)) continue;
    ++shown;
    text += fmt::format("  {}: {} on {}: {}\n    reproduce: {}\n", e.report.kernel, name(e.report.outcome),
                        e.problem, e.report.why, e.reproduce);
  }
  if (shown < hidden) text += fmt::format("  and {} more, in the report\n", hidden - shown);
  if (whole) {
    for (const Examined& e : report.results) {
      if (e.report.outcome != Outcome::slow) continue;
      text += fmt::format("  {}: slow on {}: {}\n", e.report.kernel, e.problem, e.report.why);
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
  for (const Examined& e : report.results) ++counts[e.algorithm][name(e.report.outcome)];
  json["matrix"] = counts;
  json["results"] = Json::array();
  for (const Examined& e : report.results) {
    Json result = to_json(e.report);
    result["group"] = e.group;
    result["problem"] = e.problem;
    result["reproduce"] = e.reproduce;
    json["results"].push_back(std::move(result));
  }
  return json;
}

}  // namespace faltung::tools
