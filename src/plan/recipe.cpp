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

}  // namespace faltung
