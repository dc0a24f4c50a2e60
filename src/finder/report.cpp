#include "src/finder/report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace faltung {
namespace {

constexpr Outcome kOutcomes[] = {Outcome::not_measured,  Outcome::chosen,        Outcome::slower,
                                 Outcome::pass,          Outcome::declined,      Outcome::skipped,
                                 Outcome::quarantined,   Outcome::slow,          Outcome::wrong,
                                 Outcome::out_of_bounds, Outcome::hang,          Outcome::crash,
                                 Outcome::compile_error, Outcome::out_of_memory, Outcome::too_large};

// JSON has no infinity.
constexpr double kInfinite = 1e300;

}  // namespace

const char* name(Outcome outcome) {
  switch (outcome) {
    case Outcome::not_measured:
      return "not measured";
    case Outcome::chosen:
      return "chosen";
    case Outcome::slower:
      return "slower";
    case Outcome::pass:
      return "pass";
    case Outcome::declined:
      return "declined";
    case Outcome::skipped:
      return "skipped";
    case Outcome::quarantined:
      return "quarantined";
    case Outcome::slow:
      return "slow";
    case Outcome::wrong:
      return "wrong";
    case Outcome::out_of_bounds:
      return "out_of_bounds";
    case Outcome::hang:
      return "hang";
    case Outcome::crash:
      return "crash";
    case Outcome::compile_error:
      return "compile_error";
    case Outcome::out_of_memory:
      return "out_of_memory";
    case Outcome::too_large:
      return "too_large";
  }
  return "";
}

nlohmann::ordered_json to_json(const Report& r) {
  return {{"kernel", r.kernel},
          {"outcome", name(r.outcome)},
          {"why", r.why},
          {"predicted_ms", r.predicted_ms},
          {"ms", r.ms},
          {"ms_min", r.ms_min},
          {"ms_max", r.ms_max},
          {"error_over_bound", std::isfinite(r.error_over_bound) ? r.error_over_bound : kInfinite},
          {"compile_ms", r.compile_ms},
          {"workspace_bytes", r.workspace_bytes},
          {"deterministic", r.deterministic}};
}

Report report_from(const nlohmann::ordered_json& json) {
  Report r;
  json.at("kernel").get_to(r.kernel);
  const std::string outcome = json.at("outcome").get<std::string>();
  bool known = false;
  for (const Outcome o : kOutcomes) {
    if (outcome == name(o)) r.outcome = o, known = true;
  }
  // As of a version that has more of them.
  if (!known) throw nlohmann::json::other_error::create(501, "no outcome '" + outcome + "'", nullptr);
  r.why = json.value("why", "");
  r.predicted_ms = json.value("predicted_ms", 0.0);
  json.at("ms").get_to(r.ms);
  json.at("ms_min").get_to(r.ms_min);
  json.at("ms_max").get_to(r.ms_max);
  json.at("error_over_bound").get_to(r.error_over_bound);
  if (r.error_over_bound >= kInfinite) r.error_over_bound = INFINITY;
  r.compile_ms = json.value("compile_ms", 0.0);
  json.at("workspace_bytes").get_to(r.workspace_bytes);
  r.deterministic = json.value("deterministic", true);
  return r;
}

}  // namespace faltung
