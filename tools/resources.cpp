#include "tools/resources.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/units.hpp"

namespace faltung::tools {
namespace {

// What it took, now or when it was compiled; -1 if nobody knows.
double compile_ms(const jit::Program& kernel) {
  return kernel.compile_ms > 0 ? kernel.compile_ms : kernel.compiled_before_ms;
}

}  // namespace

std::string show_resources(const jit::Program& kernel) {
  const KernelResources& r = kernel.resources;
  std::string text = kernel.entry;
  if (kernel.compile_ms > 0) {
    text += fmt::format(": compiled in {:.0f} ms", kernel.compile_ms);
  } else if (kernel.compiled_before_ms >= 0) {
    text += fmt::format(": compiled before, in {:.0f} ms", kernel.compiled_before_ms);
  } else {
    text += ": compiled before";
  }
  if (r.registers >= 0) text += fmt::format("; {} registers", r.registers);
  if (r.scalar_registers >= 0) text += fmt::format(", {} scalar", r.scalar_registers);
  if (r.spilled_bytes >= 0) text += fmt::format("; {} B private memory", r.spilled_bytes);
  if (r.local_bytes >= 0)
    text += fmt::format("; {} local memory", show_bytes(static_cast<std::size_t>(r.local_bytes)));
  if (r.block_threads > 0) text += fmt::format("; up to {} threads a block", r.block_threads);
  if (r.waves >= 0) text += fmt::format("; {} waves", r.waves);
  if (r.waves < 0 && r.wave_threads > 0) text += fmt::format("; in multiples of {} threads", r.wave_threads);
  if (r.blocks >= 0) text += fmt::format(" of {} blocks", r.blocks);
  if (r.occupancy >= 0) text += fmt::format(", {:.0f} % occupancy", 100 * r.occupancy);
  if (!r.limited_by.empty()) text += fmt::format(", limited by {}", r.limited_by);
  return text;
}

std::vector<std::string> resource_columns() {
  return {"device_kernels", "device_compile_ms", "registers",    "scalar_registers", "private_bytes",
          "local_bytes",    "block_threads",     "wave_threads", "blocks",           "waves",
          "occupancy_pct",  "limited_by"};
}

std::vector<Cell> resource_cells(const std::vector<jit::Program>& kernels) {
  if (kernels.empty()) return std::vector<Cell>(resource_columns().size());
  std::string names, limit;
  double ms = 0;
  std::int64_t registers = -1, scalars = -1, spilled = -1, local = -1, threads = -1, wave = -1, blocks = -1,
               waves = -1;
  double occupancy = -1;
  bool all_known = true;
  for (const jit::Program& kernel : kernels) {
    const KernelResources& r = kernel.resources;
    names += (names.empty() ? "" : " ") + kernel.entry;
    all_known = all_known && compile_ms(kernel) >= 0;
    ms += std::max(0.0, compile_ms(kernel));
    registers = std::max<std::int64_t>(registers, r.registers);
    scalars = std::max<std::int64_t>(scalars, r.scalar_registers);
    spilled = std::max(spilled, r.spilled_bytes);
    local = std::max(local, r.local_bytes);
    if (r.block_threads >= 0 && (threads < 0 || r.block_threads < threads)) threads = r.block_threads;
    wave = std::max<std::int64_t>(wave, r.wave_threads);
    if (r.blocks >= 0 && (blocks < 0 || r.blocks < blocks)) blocks = r.blocks;
    if (r.waves >= 0 && (waves < 0 || r.waves < waves)) waves = r.waves, limit = r.limited_by;
    if (r.occupancy >= 0 && (occupancy < 0 || r.occupancy < occupancy)) occupancy = r.occupancy;
  }
  const auto known = [](std::int64_t value) { return value >= 0 ? Cell(value) : Cell(); };
  return {names,
          all_known ? Cell(ms) : Cell(),
          known(registers),
          known(scalars),
          known(spilled),
          known(local),
          known(threads),
          known(wave),
          known(blocks),
          known(waves),
          occupancy >= 0 ? Cell(100 * occupancy) : Cell(),
          limit};
}

}  // namespace faltung::tools
