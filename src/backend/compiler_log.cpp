#include "src/backend/compiler_log.hpp"

#include <algorithm>
#include <cstdlib>

namespace faltung {

std::int64_t number_after(const std::string& log, const std::string& word) {
  const std::size_t at = log.find(word);
  return at == std::string::npos ? -1 : std::atoll(log.c_str() + at + word.size());
}

std::int64_t number_before(const std::string& log, const std::string& word) {
  const std::size_t at = log.find(word);
  if (at == std::string::npos) return -1;
  std::size_t begin = at;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  return begin == at ? -1 : std::atoll(log.c_str() + begin);
}

void read_ptxas_log(const std::string& log, const KernelSource& source, const UnitLimits& unit,
                    KernelResources& r) {
  const std::int64_t registers = number_before(log, " registers");
  if (registers <= 0) return;
  r.registers = static_cast<int>(registers);
  r.spilled_bytes = number_before(log, " bytes stack frame");
  r.local_bytes = std::max<std::int64_t>(0, number_before(log, " bytes smem"));
  if (!unit.known() || source.block_threads <= 0) return;
  const Residence residence = unit.residence(source.block_threads, r.registers,
                                             static_cast<int>(r.local_bytes) + source.shared_bytes);
  r.wave_threads = unit.wave_threads;
  r.blocks = residence.blocks, r.waves = residence.waves, r.occupancy = residence.occupancy;
  r.limited_by = residence.limited_by;
}

}  // namespace faltung
