// Engine::prepare: what later plans need, compiled and tried before they are asked for.
#include <algorithm>
#include <variant>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"

namespace faltung {
namespace {

std::vector<jit::Source> sources_of(const Recipe& recipe) {
  std::vector<jit::Source> sources;
  for (const std::vector<Step>* steps : {&recipe.pack, &recipe.steps}) {
    for (const Step& step : *steps) {
      if (const auto* launch = std::get_if<Launch>(&step.work)) sources.push_back(launch->source);
    }
  }
  return sources;
}

}  // namespace

std::vector<Prepared> EngineImpl::prepare(const Problem& problem, const Request& request, int kernels,
                                          bool keeps) {
  const Settled s(problem, request);
  const Selection selection = candidates(s);
  const Trials trials(store_, s.problem, s.device->info(), s.threads);
  const jit::Session session(*s.device, store_);
  const bool for_plan = kernels == 1;
  std::vector<Prepared> all;
  int ready = 0;
  for (const Candidate* candidate :
       for_plan ? plan_order(selection, trials) : find_order(selection, trials)) {
    if (ready == kernels) break;
    Prepared one{report_of(Outcome::pass, "", candidate->kernel())};
    try {
      const std::vector<jit::Source> sources = sources_of(candidate->recipe());
      std::vector<bool> is_new;
      for (const jit::Source& source : sources) is_new.push_back(!session.knows(source));
      one.tried = s.device->runs() && trust_.standing(*candidate, s) == Standing::untried;
      if (s.device->runs() && !trust_.admit(*candidate, s)) {
        one.report = report_of(Outcome::quarantined, "its trial failed", candidate->kernel());
      } else {
        const std::vector<jit::Program> programs = make_plan(s, *candidate)->programs();
        for (std::size_t i = 0; i < programs.size(); ++i) {
          if (is_new[i])
            one.report.compile_ms += std::max(programs[i].compile_ms, programs[i].compiled_before_ms);
          if (keeps) session.keep(sources[i]);
        }
        ++ready;
      }
    } catch (const NoWorker&) {
      throw;
    } catch (const std::exception& error) {
      one.report.outcome = Outcome::declined, one.report.why = error.what();
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace faltung
