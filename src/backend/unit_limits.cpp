#include "src/backend/unit_limits.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace faltung {
namespace {

UnitLimits nvidia(int architecture) {
  const bool turing = architecture == 75;
  const int local_kib = architecture < 75                            ? 96
                        : turing                                     ? 64
                        : architecture == 86 || architecture == 89   ? 100
                        : architecture >= 80 && architecture < 90    ? 164
                        : architecture == 120 || architecture == 121 ? 100
                                                                     : 228;
  const int waves = turing ? 8 : architecture == 86 || architecture == 89 || architecture >= 120 ? 12 : 16;
  const int blocks = turing || architecture == 86 || architecture == 87 ? 16
                     : architecture == 89 || architecture >= 120        ? 24
                                                                        : 32;
  return {32, 4, waves, 512, 8, 255, local_kib << 10, false, blocks, architecture >= 80 ? 1024 : 0};
}

// The letters and digits after gfx: 1030, 90a.
UnitLimits amd(const std::string& version) {
  if (version.size() == 3 && version[0] == '9') {
    // GCN, then CDNA, whose vector registers and accumulation registers are one file.
    const bool unified = version == "90a" || version[1] == '4' || version[1] == '5';
    if (!unified) return {64, 4, 10, 256, 4, 256, 64 << 10, true};
    return {64, 4, 8, 512, 8, 512, (version[1] == '5' ? 160 : 64) << 10, true};
  }
  if (version.size() != 4 || version[0] != '1') return {};
  const std::string family = version.substr(0, 3);
  if (family == "101") return {32, 4, 20, 1024, 8, 256, 128 << 10, true};
  if (family == "103") return {32, 4, 16, 1024, 16, 256, 128 << 10, true};
  const bool large = version == "1100" || version == "1101" || version == "1151" || family == "120";
  return {32, 4, 16, large ? 1536 : 1024, large ? 24 : 16, 256, 128 << 10, true};
}

}  // namespace

int UnitLimits::blocks(int threads, int registers, int block_local_bytes) const {
  if (!known() || registers > thread_registers) return 0;
  const int block_waves = (threads + wave_threads - 1) / wave_threads;
  const int step = register_step, own = std::max(1, (registers + step - 1) / step) * step;
  const int resident_waves = std::min(scheduler_waves, scheduler_registers / own) * schedulers;
  const int by_local = block_local_bytes > 0 ? local_bytes / block_local_bytes : resident_waves;
  return std::min(resident_waves / block_waves, by_local);
}

double UnitLimits::waves(int threads, int registers, int block_local_bytes) const {
  if (!known()) return 0;
  const int block_waves = (threads + wave_threads - 1) / wave_threads;
  return static_cast<double>(blocks(threads, registers, block_local_bytes) * block_waves) / schedulers;
}

Residence UnitLimits::residence(int threads, int registers, int block_local_bytes, int blocks_told) const {
  const int block_waves = std::max(1, (threads + wave_threads - 1) / wave_threads);
  const int step = register_step, own = std::max(1, (registers + step - 1) / step) * step;
  const int by_waves = scheduler_waves * schedulers / block_waves;
  const int by_registers = scheduler_registers / own * schedulers / block_waves;
  const int with_reserve = block_local_bytes + block_reserved;
  const int by_local = with_reserve > 0 ? local_bytes / with_reserve : by_waves;
  Residence r;
  r.blocks = blocks_told >= 0 ? blocks_told : std::min({by_waves, by_registers, by_local, unit_blocks});
  r.waves = (r.blocks * block_waves + schedulers - 1) / schedulers;
  r.occupancy = static_cast<double>(r.blocks * block_waves) / (scheduler_waves * schedulers);
  r.limited_by = r.blocks >= by_waves                           ? "nothing"
                 : by_registers <= std::min(by_local, r.blocks) ? "registers"
                 : by_local <= r.blocks                         ? "local memory"
                 : unit_blocks <= r.blocks                      ? "blocks"
                                                                : "driver";
  return r;
}

UnitLimits unit_limits(const std::string& chip) {
  std::string text = chip;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto word_after = [&](const std::string& prefix) -> std::string {
    const std::size_t at = text.find(prefix);
    if (at == std::string::npos) return "";
    std::size_t end = at + prefix.size();
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    return text.substr(at + prefix.size(), end - at - prefix.size());
  };
  if (const std::string version = word_after("gfx"); !version.empty()) return amd(version);
  if (const std::string navi = word_after("navi"); !navi.empty()) {
    return amd(navi[0] == '1' ? "1010" : navi[0] == '2' ? "1030" : navi[0] == '3' ? "1100" : "");
  }
  if (const std::string version = word_after("sm_"); !version.empty())
    return nvidia(std::atoi(version.c_str()));
  return {};
}

}  // namespace faltung
