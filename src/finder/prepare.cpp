// Engine::prepare: what later plans need, compiled and tried before they are asked for.
#include <variant>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"

namespace faltung {
namespace {

void keep_code(const Recipe& recipe, const jit::Session& session) {
  for (const std::vector<Step>* steps : {&recipe.pack, &recipe.steps}) {
    for (const Step& step : *steps) {
      if (const auto* launch = std::get_if<Launch>(&step.work)) session.keep(launch->source);
    }
  }
}

}  // namespace

std::vector<Report> EngineImpl::prepare(const Problem& problem, const Request& request, int kernels,
                                        bool keeps) {
  const Settled s(problem, request);
  const Selection selection = candidates(s);
  const Trials trials(store_, s.problem, s.device->info(), s.threads);
  const bool for_plan = kernels == 1;
  std::vector<Report> reports;
  int ready = 0;
  for (const Candidate* candidate :
       for_plan ? plan_order(selection, trials) : find_order(selection, trials)) {
    if (ready == kernels) break;
    Report report = report_of(Outcome::pass, "", candidate->kernel());
    try {
      if (s.device->runs() && !trust_.admit(*candidate, s)) {
        report = report_of(Outcome::quarantined, "its trial failed", candidate->kernel());
      } else {
        const std::shared_ptr<const PlanImpl> plan = make_plan(s, *candidate);
        report.compile_ms = plan->compile_ms();
        if (keeps) keep_code(plan->recipe(), jit::Session(*s.device, store_));
        ++ready;
      }
    } catch (const NoWorker&) {
      throw;
    } catch (const std::exception& error) {
      report.outcome = Outcome::declined, report.why = error.what();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace faltung
