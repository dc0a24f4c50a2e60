// What is known of a kernel, as it is made, sent between processes and stored: always a faltung::Report.
#ifndef FALTUNG_SRC_FINDER_REPORT_HPP_
#define FALTUNG_SRC_FINDER_REPORT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "faltung/faltung.hpp"

namespace faltung {

inline bool passed(const Report& report) { return report.outcome == Outcome::pass; }
// A measured one that was far behind when it was timed was not checked.
inline bool is_right(const Report& report) { return passed(report) && report.error_over_bound >= 0; }

inline Report report_of(Outcome outcome, std::string why, std::string kernel = "") {
  Report report;
  report.kernel = std::move(kernel);
  report.outcome = outcome;
  report.why = std::move(why);
  return report;
}

// Under stable names. report_from throws nlohmann::json::exception for what is no report.
nlohmann::ordered_json to_json(const Report& report);
Report report_from(const nlohmann::ordered_json& json);

}  // namespace faltung

#endif  // FALTUNG_SRC_FINDER_REPORT_HPP_
