// What a prediction says, for people.
#include <fmt/core.h>

#include "src/emit/nki_timeline.hpp"

namespace faltung::nki {

using i64 = std::int64_t;

const char* name(Engine engine) {
  constexpr const char* kNames[] = {"tensor", "vector", "scalar", "gpsimd", "dma in", "dma out"};
  return kNames[static_cast<int>(engine)];
}

i64 Prediction::instructions() const {
  i64 sum = turning.instructions;
  for (const Work& w : work) sum += w.instructions;
  return sum;
}

std::vector<std::string> table(const Prediction& prediction) {
  std::vector<std::string> lines = {
      fmt::format("{:<8}{:>10} {:>12}{:<9}{:>10}  when", "engine", "instr.", "amount", "", "busy us")};
  constexpr const char* kUnits[] = {" columns", " elements", " elements", " elements", " bytes", " bytes"};
  for (std::size_t e = 0; e < kEngines; ++e) {
    const Work& w = prediction.work[e];
    std::string when;
    for (const double share : prediction.picture[e])
      when += share < 0.02 ? '.' : share < 0.5 ? '-' : share < 0.9 ? '=' : '#';
    lines.push_back(fmt::format("{:<8}{:>10} {:>12}{:<9}{:>10.1f}  {}", name(static_cast<Engine>(e)),
                                w.instructions, w.amount, kUnits[e], w.busy_us, when));
  }
  if (prediction.turning.instructions > 0) {
    lines.push_back(fmt::format("{:<8}{:>10} {:>12}{:<9}{:>10.1f}  of the tensor engine's time", "turning",
                                prediction.turning.instructions, prediction.turning.amount, " columns",
                                prediction.turning.busy_us));
  }
  return lines;
}

}  // namespace faltung::nki
