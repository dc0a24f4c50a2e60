#include "src/network/survey.hpp"

#include <set>

#include "src/network/device_steps.hpp"
#include "src/problem/problem.hpp"

namespace faltung::network {

Survey survey(const Graph& graph, const Lowering::Settings& settings) {
  Lowering lowering(graph, settings);
  Survey found;
  std::set<std::string> told;
  for (const Problem& problem : lowering.survey()) {
    if (told.insert(to_string(problem)).second) found.problems.push_back(problem);
  }
  // Programs know of an address what it is a multiple of: buffers begin at more than any asks for.
  const auto slot = [&](const Ref& ref) {
    const Place::In in = lowering.buffers[static_cast<std::size_t>(ref.buffer)].in;
    const bool is_own = in == Place::In::arena;
    return Slot{is_own ? faltung::Place::workspace : faltung::Place::packed, ref.offset};
  };
  DeviceConstants constants;
  for (const Draft& draft : lowering.drafts) {
    if (std::holds_alternative<ConvolutionWork>(draft.work)) continue;
    DeviceSlots slots{{}, slot(draft.write), {faltung::Place::workspace, 0}};
    for (const Ref& ref : draft.reads) slots.reads.push_back(slot(ref));
    for (faltung::Step& step : device_steps(draft.work, slots, constants, lowering.device())) {
      jit::Source& source = std::get<Launch>(step.work).source;
      if (told.insert(source.entry + source.digest()).second) found.programs.push_back(std::move(source));
    }
  }
  return found;
}

}  // namespace faltung::network
