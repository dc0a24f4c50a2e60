#include "src/backend/amd_assembly.hpp"

#include <algorithm>
#include <map>
#include <sstream>

namespace faltung {
namespace {

bool starts_with_any(const std::string& word, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return word.starts_with(p); });
}

}  // namespace

AssemblyCounts read_amd_assembly(const std::string& assembly) {
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
    loops[loop].matrix_instructions += matrix;
    loops[loop].loop_products +=
        matrix || starts_with_any(word, {"v_fma", "v_pk_fma", "v_dot2", "v_dual_fma", "v_mad_f"});
    loops[loop].loop_branches += starts_with_any(word, {"s_cbranch", "s_branch"});
  }
  for (const auto& [label, own] : loops) {
    if (own.loop_products <= counts.loop_products) continue;
    counts.loop_products = own.loop_products;
    counts.loop_branches = own.loop_branches > 0 ? own.loop_branches - 1 : 0;
  }
  return counts;
}

}  // namespace faltung
