// A choice in words and figures: what explain and find report.
#include <fmt/core.h>

#include <algorithm>

#include "src/finder/cost.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"

namespace faltung {
namespace {

// Measured, else predicted.
double time_of(const Report& report) { return report.ms > 0 ? report.ms : report.predicted_ms; }

Report report_on(const Problem& problem, const Candidate& candidate, const Report* measured,
                 const Roofline& roof) {
  Report r;
  if (measured != nullptr) r = *measured;
  r.kernel = candidate.kernel();
  r.why.clear();
  r.predicted_ms = candidate.cost.ms;
  r.deterministic = candidate.repeatable == Repeatable::same_bits;
  if (measured == nullptr) r.workspace_bytes = candidate.workspace(true);
  r.error_growth = candidate.accuracy.growth;
  if (problem.math == Math::f32) r.rms_of_chain = candidate.accuracy.rms_of_chain;
  const double ms = time_of(r);
  r.ceiling_pct = roof.share(ms);
  r.bound_by = candidate.cost.bound == Bound::unknown ? roof.bound_by(ms) : name(candidate.cost.bound);
  if (measured != nullptr && passed(*measured)) r.outcome = Outcome::slower;
  return r;
}

// Where there is something around the convolution: whether the kernel's own step has it or one beside that.
std::string steps_of(const Problem& problem, const Candidate& candidate) {
  if (!has_affine(problem) && problem.training == Training::none) return "";
  std::string text;
  try {
    for (const Step& step : candidate.recipe().steps) text += (text.empty() ? "steps: " : ", ") + step.name;
  } catch (const Error&) {  // a refusal, which is said when it is run
  }
  return text;
}

}  // namespace

std::string failures_of(const Trials& trials) {
  std::string text;
  for (const Report& m : trials.all()) {
    if (!passed(m)) text += "\n  " + m.kernel + " " + name(m.outcome) + ": " + m.why;
  }
  return text;
}

// One report a candidate, best first, then one a refusal. An algorithm's candidates beyond the first are left
// out unless they were measured.
Choice EngineImpl::describe(const Settled& s, const Selection& selection, const Trials& trials) {
  const std::vector<const Candidate*> order = plan_order(selection, trials);
  if (order.empty()) {
    throw Error(Status::unsupported, "no kernel can be used for " + to_string(s.problem) + " on " +
                                         s.device->info().id + failures_of(trials));
  }
  const Candidate& chosen = *order.front();
  Choice choice;
  choice.kernel = chosen.kernel();
  choice.source = is_lock_                                      ? "lock"
                  : !s.filter.forced().empty()                  ? "forced"
                  : best_measured(selection, trials) != nullptr ? "store"
                                                                : "model";
  const Roofline roof = roofline(s.problem, ceilings(*s.device, s.threads));

  choice.reports.push_back(report_on(s.problem, chosen, trials.find(choice.kernel), roof));
  choice.reports.front().outcome = Outcome::chosen;
  choice.reports.front().why = steps_of(s.problem, chosen);
  std::vector<Report> others;
  std::vector<const Algorithm*> seen{chosen.algorithm};
  for (const Candidate& candidate : selection.candidates) {
    const bool first = std::find(seen.begin(), seen.end(), candidate.algorithm) == seen.end();
    seen.push_back(candidate.algorithm);
    const Report* measured = trials.find(candidate.kernel());
    if (&candidate == &chosen || (!first && measured == nullptr)) continue;
    others.push_back(report_on(s.problem, candidate, measured, roof));
    others.back().why = steps_of(s.problem, candidate);
  }
  const double chosen_ms = time_of(choice.reports.front());
  for (Report& r : others) {
    const double ms = time_of(r);
    if (chosen_ms <= 0 || ms <= 0) continue;
    r.why = fmt::format("{:.2f}x the chosen one's time{}{}{}", ms / chosen_ms, r.ms > 0 ? "" : ", predicted",
                        r.why.empty() ? "" : "; ", r.why);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Report& a, const Report& b) { return time_of(a) < time_of(b); });
  std::move(others.begin(), others.end(), std::back_inserter(choice.reports));
  choice.reports.insert(choice.reports.end(), selection.refusals.begin(), selection.refusals.end());
  return choice;
}

}  // namespace faltung
