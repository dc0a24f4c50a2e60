#include "src/plan/recipe.hpp"

#include <algorithm>

namespace faltung {

std::vector<std::string> program_digests(const Recipe& recipe) {
  std::vector<std::string> digests;
  for (const std::vector<Step>* steps : {&recipe.pack, &recipe.steps}) {
    for (const Step& step : *steps) {
      const auto* work = std::get_if<Launch>(&step.work);
      if (work == nullptr) continue;
      const std::string digest = work->source.digest();
      if (std::find(digests.begin(), digests.end(), digest) == digests.end()) digests.push_back(digest);
    }
  }
  return digests;
}

bool reads_weights_early(const Recipe& recipe) {
  const auto is_weights = [](const StepArgument::Rest& rest) {
    return rest.of.place == Place::w || rest.of.place == Place::packed;
  };
  return std::ranges::any_of(recipe.steps, [&](const Step& step) {
    const auto* work = std::get_if<Launch>(&step.work);
    return work != nullptr && std::ranges::any_of(work->arguments, [&](const StepArgument& argument) {
             return std::ranges::any_of(argument.rests, is_weights);
           });
  });
}

}  // namespace faltung
