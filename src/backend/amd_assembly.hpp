// What LLVM's assembly for an AMD chip says of a kernel's inner loop.
#ifndef FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_
#define FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_

#include <string>

namespace faltung {

struct AssemblyCounts {
  int matrix_instructions = 0;  // of the whole kernel
  // The innermost loop with the most multiply-adds; all 0 where no loop has one.
  int loop_products = 0;  // its instructions that multiply and add
  int loop_branches = 0;  // its branches beside the one that closes it
};

// assembly: as clang -S writes it, with its comments.
AssemblyCounts read_amd_assembly(const std::string& assembly);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_AMD_ASSEMBLY_HPP_
