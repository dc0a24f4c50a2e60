// Where a kernel that clspv compiled wants its arguments, from the notes that it leaves in its SPIR-V
// (NonSemantic.ClspvReflection).
#ifndef FALTUNG_SRC_BACKEND_SPIRV_ARGUMENTS_HPP_
#define FALTUNG_SRC_BACKEND_SPIRV_ARGUMENTS_HPP_

#include <cstdint>
#include <string>
#include <vector>

namespace faltung {

struct SpirvArgument {
  enum class Kind { storage_buffer, push_constant };
  Kind kind;
  unsigned ordinal;  // among the kernel's parameters; those that it does not use are not told of
  unsigned place;    // the binding in descriptor set 0, or the offset in bytes
  unsigned bytes;    // of a push constant
};

// Of the kernel of this name. Throws Error(bad_file) if the code is no whole SPIR-V, or has no such kernel,
// and Error(unsupported) if the kernel, or the module, wants something else beside.
std::vector<SpirvArgument> spirv_arguments(const std::string& code, const std::string& entry);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_SPIRV_ARGUMENTS_HPP_
