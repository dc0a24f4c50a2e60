// What LLVM's assembly for an AMD chip says of a kernel's inner loop.
#ifndef FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_
#define FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_

#include <optional>
#include <string>

namespace faltung {

struct AssemblyCounts {
  int matrix_instructions = 0;  // of the whole kernel
  // The innermost loop with the most multiply-adds; all 0 where no loop has one.
  int loop_products = 0;  // its instructions that multiply and add
  int loop_branches = 0;  // its branches beside what closes it
  // Cycles that an iteration keeps a SIMD's units busy at least, by AMD's manuals; of local memory, which
  // SIMDs share, those of all of them. Counted, never measured.
  int matrix_cycles = 0, vector_cycles = 0, local_cycles = 0;

  // The matrix unit's part of what bounds an iteration, where it and the vector unit take turns: 0 to 1.
  double matrix_share() const;
};

// assembly: as clang -S writes it, with its comments. chip: gfx942, ...
AssemblyCounts read_amd_assembly(const std::string& assembly, const std::string& chip);

// Cycles that a SIMD's matrix unit is busy with one v_mfma or v_wmma instruction, by AMD's matrix instruction
// calculator; 0 for what is none. It may have an encoding's suffix.
int matrix_cycles(const std::string& mnemonic, const std::string& chip);

// As words of a compiler's log, and back; nothing from a log without them.
std::string to_log(const AssemblyCounts& counts);
std::optional<AssemblyCounts> from_log(const std::string& log);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_
