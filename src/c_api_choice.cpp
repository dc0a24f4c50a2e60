// The C interface: find and explain.
#include <cstdio>
#include <vector>

#include "src/c_api.hpp"

namespace faltung::c_api {
namespace {

faltung::Progress progress_of(const faltung_request* given) {
  if (given == nullptr) return {};
  const faltung_request request = known(*given, "request");
  if (request.progress == nullptr) return {};
  return [call = request.progress, context = request.progress_context](int done, int total,
                                                                       const std::string& kernel) {
    if (call(context, done, total, kernel.c_str()) != 0) throw Cancelled{};
  };
}

// One line for each report.
std::string text_of(const faltung::Choice& choice) {
  std::string text;
  for (const faltung::Report& report : choice.reports) {
    char times[96] = "";
    if (report.ms > 0) {
      std::snprintf(times, sizeof times, "  %.4g ms", report.ms);
    } else if (report.predicted_ms > 0) {
      std::snprintf(times, sizeof times, "  predicted %.4g ms", report.predicted_ms);
    }
    text += report.kernel + "  " + name(report.outcome) + times;
    if (!report.why.empty()) text += "  " + report.why;
    text += '\n';
  }
  return text;
}

}  // namespace
}  // namespace faltung::c_api

using namespace faltung::c_api;

faltung_request faltung_request_default(void) {
  const faltung::Request defaults;
  faltung_request request{};
  request.size = sizeof request;
  request.device = "cpu";
  request.workspace_limit = defaults.workspace_limit;
  request.deterministic = defaults.deterministic ? 1 : 0;
  request.budget_ms = defaults.budget_ms;
  return request;
}

const char* faltung_outcome_name(faltung_outcome outcome) {
  return faltung::name(static_cast<faltung::Outcome>(outcome));
}

faltung_status faltung_find(faltung_engine* engine, const faltung_problem* problem,
                            const faltung_request* request, faltung_choice** choice) {
  return guarded([&] {
    if (choice != nullptr) *choice = nullptr;
    need(engine, "faltung_find: engine");
    need(problem, "faltung_find: problem");
    faltung::Choice found = engine->engine.find(problem->problem, request_of(request), progress_of(request));
    std::string text = text_of(found);
    if (choice != nullptr) *choice = new faltung_choice{std::move(found), std::move(text)};
  });
}

faltung_status faltung_explain(faltung_engine* engine, const faltung_problem* problem,
                               const faltung_request* request, faltung_choice** choice) {
  return guarded([&] {
    need(choice, "faltung_explain: choice");
    *choice = nullptr;
    need(engine, "faltung_explain: engine");
    need(problem, "faltung_explain: problem");
    faltung::Choice explained = engine->engine.explain(problem->problem, request_of(request));
    std::string text = text_of(explained);
    *choice = new faltung_choice{std::move(explained), std::move(text)};
  });
}

void faltung_choice_destroy(faltung_choice* choice) { delete choice; }

const char* faltung_choice_kernel(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->choice.kernel.c_str();
}

const char* faltung_choice_source(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->choice.source.c_str();
}

size_t faltung_choice_count(const faltung_choice* choice) {
  return choice == nullptr ? 0 : choice->choice.reports.size();
}

faltung_status faltung_choice_report(const faltung_choice* choice, size_t index, faltung_report* report) {
  return guarded([&] {
    need(choice, "faltung_choice_report: choice");
    need(report, "faltung_choice_report: report");
    const std::vector<faltung::Report>& all = choice->choice.reports;
    if (index >= all.size()) {
      throw faltung::Error(faltung::Status::bad_problem, "faltung_choice_report: index is " +
                                                             std::to_string(index) + "; there are " +
                                                             std::to_string(all.size()) + " reports");
    }
    const faltung::Report& r = all[index];
    give({sizeof *report, r.kernel.c_str(), static_cast<faltung_outcome>(r.outcome), r.why.c_str(),
          r.predicted_ms, r.ms, r.ms_min, r.ms_max, r.error_over_bound, r.compile_ms, r.workspace_bytes,
          r.error_growth, r.bound_by.c_str(), r.ceiling_pct, r.deterministic ? 1 : 0, r.rms_of_chain},
         report, "faltung_choice_report: report");
  });
}

const char* faltung_choice_text(const faltung_choice* choice) {
  return choice == nullptr ? "" : choice->text.c_str();
}
