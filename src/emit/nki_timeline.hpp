// What a schedule costs on a NeuronCore, engine by engine: counts, which the kernel's own are compared with
// in the tests, and a prediction of how the engines' work overlaps. Nothing here was measured.
#ifndef FALTUNG_SRC_EMIT_NKI_TIMELINE_HPP_
#define FALTUNG_SRC_EMIT_NKI_TIMELINE_HPP_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/emit/nki_schedule.hpp"

namespace faltung::nki {

// DMA in and out have a queue each, which share what the DMA engines move.
enum class Engine { tensor, vector, scalar, gpsimd, dma_in, dma_out };
inline constexpr std::size_t kEngines = 6;
const char* name(Engine engine);

struct Work {
  std::int64_t instructions = 0;
  // What the time goes with: columns of moving operands, elements of a partition, bytes.
  std::int64_t amount = 0;
  double busy_us = 0;
};

struct Prediction {
  std::array<Work, kEngines> work;
  Work turning;  // of the tensor engine's, what only transposes
  double ms = 0;
  double mfu = 0;                 // of what is stated of the core, in percent
  Engine bound = Engine::tensor;  // the busiest
  // Which share of each twentieth of what was simulated (a few images, or all) an engine was busy.
  static constexpr int kSlots = 20;
  std::array<std::array<double, kSlots>, kEngines> picture{};

  const Work& operator[](Engine e) const { return work[static_cast<std::size_t>(e)]; }
  std::int64_t instructions() const;
};

Prediction predict(const Problem& problem, const Schedule& schedule, const NkiCore& core);
// A line for each engine: instructions, amount, how long it is busy, and when. Every time is predicted.
std::vector<std::string> table(const Prediction& prediction);

}  // namespace faltung::nki

#endif  // FALTUNG_SRC_EMIT_NKI_TIMELINE_HPP_
