// Compilers for GPUs that are not here, as devices that compile and run nothing: NVRTC for an NVIDIA
// architecture, clang or Mesa's RADV for an AMD one.
#ifndef FALTUNG_SRC_BACKEND_OFFLINE_COMPILER_HPP_
#define FALTUNG_SRC_BACKEND_OFFLINE_COMPILER_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/backend/amd_assembly.hpp"
#include "src/backend/backend.hpp"

namespace faltung {

// code: nothing but what runs, where that is made faster; resources() and code_counts() then know nothing.
enum class CompilerOutput { everything, code };

// id: nvrtc:<architecture>, e.g. nvrtc:sm_80, or clang:<chip>, e.g. clang:gfx1030, of OpenCL C,
// clang-hip:<chip> of HIP, or as in radv_compiler.hpp. resources() of its kernels are what the compiler said.
// Throws Error(unsupported) where the compiler is not installed, Error(bad_problem) where the id is no such
// thing.
std::shared_ptr<Device> make_offline_compiler(const std::string& id,
                                              CompilerOutput output = CompilerOutput::everything);

// The id of the one that makes what a GPU's code_key (DeviceInfo) stands for, as long as the GPU is not
// opened; empty where there is none.
std::string offline_compiler_of(const std::string& code_key);

// Bytes of the code of a kernel that such a compiler made; -1 where that is not known.
std::int64_t code_bytes(const Kernel& kernel);

// What the code of a kernel that such a compiler made has; nothing where that is not counted.
std::optional<AssemblyCounts> code_counts(const Kernel& kernel);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_OFFLINE_COMPILER_HPP_
