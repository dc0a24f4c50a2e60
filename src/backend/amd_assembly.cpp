#include "src/backend/amd_assembly.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "src/backend/unit_limits.hpp"

namespace faltung {
namespace {

constexpr const char* kLogFormat = "\nCounted in the code: %d %d %d %d %d %d\n";

bool starts_with_any(const std::string& word, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return word.starts_with(p); });
}

// A vector instruction: 16 lanes a cycle on CDNA, 32 on RDNA; a quarter of that for the wide and the
// transcendental ones.
int vector_cycles(const std::string& word, bool wave64) {
  const bool slow = starts_with_any(word, {"v_mul_lo_u32", "v_mul_hi_", "v_mad_u64", "v_mad_i64", "v_rcp_",
                                           "v_rsq_", "v_sqrt_", "v_exp_", "v_log_", "v_sin_", "v_cos_"});
  return (wave64 ? 4 : 1) * (slow ? 4 : 1);
}

// Local memory gives or takes 128 bytes a cycle.
int local_cycles(const std::string& word, int lanes) {
  const int bytes = word.find("b128") != std::string::npos  ? 16
                    : word.find("b96") != std::string::npos ? 12
                    : word.find("b64") != std::string::npos ? 8
                                                            : 4;
  const bool two = word.find("read2") != std::string::npos || word.find("write2") != std::string::npos ||
                   word.find("2addr") != std::string::npos;
  return lanes * bytes * (two ? 2 : 1) / 128;
}

}  // namespace

int matrix_cycles(const std::string& mnemonic, const std::string& chip) {
  if (!starts_with_any(mnemonic, {"v_mfma_", "v_wmma_"})) return 0;
  int rows = 0, columns = 0, depth = 0;
  const std::size_t size = mnemonic.find_first_of("0123456789", mnemonic.find("f32_") + 4);
  if (size == std::string::npos ||
      std::sscanf(mnemonic.c_str() + size, "%dx%dx%d", &rows, &columns, &depth) != 3) {
    return 0;
  }
  const bool f32 = mnemonic.find("f32", size) != std::string::npos;
  const int each = chip.starts_with("gfx12")   ? 256
                   : chip.starts_with("gfx11") ? 128
                   : f32                       ? 32
                   : chip == "gfx90a"          ? 128
                   : chip.starts_with("gfx95") ? 512
                                               : 256;
  return rows * columns * depth / each;
}

double AssemblyCounts::matrix_share() const {
  const int bound = std::max(matrix_cycles + vector_cycles, local_cycles);
  return bound == 0 ? 0 : static_cast<double>(matrix_cycles) / bound;
}

AssemblyCounts read_amd_assembly(const std::string& assembly, const std::string& chip) {
  const UnitLimits unit = unit_limits(chip);
  AssemblyCounts counts;
  std::map<std::string, AssemblyCounts> loops;  // by the label of their first block
  std::string block, loop;                      // where a line is; the innermost loop around it, or none
  std::istringstream in(assembly);
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t comment = line.find(';');
    const std::string note = comment == std::string::npos ? "" : line.substr(comment);
    const bool is_label = line.starts_with(".LBB") || line.starts_with("; %bb.");
    if (is_label) {
      block = line.substr(line[0] == '.' ? 2 : 3, line.find(':') - (line[0] == '.' ? 2 : 3));
      loop.clear();
    }
    // Notes follow the label, on its line and on lines of their own.
    if (const std::size_t at = note.find("in Loop: Header="); at != std::string::npos) {
      loop = note.substr(at + 16, note.find(' ', at + 16) - at - 16);
    } else if (note.find("Loop Header: Depth") != std::string::npos) {
      loop = block;
    }
    const std::size_t begin = line.find_first_not_of(" \t");
    if (is_label || begin == 0 || begin == std::string::npos || line[begin] == ';') continue;
    const std::string word = line.substr(begin, line.find_first_of(" \t", begin) - begin);
    const bool matrix = starts_with_any(word, {"v_mfma_", "v_wmma_"});
    counts.matrix_instructions += matrix;
    if (loop.empty()) continue;
    AssemblyCounts& own = loops[loop];
    own.loop_products +=
        matrix || starts_with_any(word, {"v_fma", "v_pk_fma", "v_dot2", "v_dual_fma", "v_mad_f"});
    own.matrix_cycles += matrix_cycles(word, chip);
    if (word.starts_with("v_") && !matrix) own.vector_cycles += vector_cycles(word, unit.wave_threads == 64);
    if (word.starts_with("ds_")) own.local_cycles += unit.schedulers * local_cycles(word, unit.wave_threads);
    // What closes a loop is a branch back, or a branch out of it and a jump back.
    const bool goes_back = word.starts_with("s_") && line.ends_with(".L" + loop);
    own.loop_branches += word.starts_with("s_cbranch") || (word == "s_branch" && !goes_back);
    if (goes_back) loop.clear();
  }
  for (const auto& [label, own] : loops) {
    if (own.loop_products <= counts.loop_products) continue;
    const int matrix_instructions = counts.matrix_instructions;
    counts = own;
    counts.matrix_instructions = matrix_instructions;
    counts.loop_branches = std::max(0, own.loop_branches - 1);
  }
  return counts;
}

std::string to_log(const AssemblyCounts& c) {
  char text[160];
  std::snprintf(text, sizeof text, kLogFormat, c.matrix_instructions, c.loop_products, c.loop_branches,
                c.matrix_cycles, c.vector_cycles, c.local_cycles);
  return text;
}

std::optional<AssemblyCounts> from_log(const std::string& log) {
  const std::size_t at = log.rfind("\nCounted in the code:");
  if (at == std::string::npos) return std::nullopt;
  AssemblyCounts c;
  std::sscanf(log.c_str() + at, kLogFormat, &c.matrix_instructions, &c.loop_products, &c.loop_branches,
              &c.matrix_cycles, &c.vector_cycles, &c.local_cycles);
  return c;
}

}  // namespace faltung
