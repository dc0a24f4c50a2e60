// A GPU maker's compiler as a library: the interface that NVIDIA's NVRTC and AMD's hipRTC have alike.
#ifndef FALTUNG_SRC_BACKEND_RUNTIME_COMPILER_HPP_
#define FALTUNG_SRC_BACKEND_RUNTIME_COMPILER_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"
#include "src/backend/backend.hpp"

namespace faltung {

// A device's driver is here, its compiler is not: no kernel can be made, whichever it is.
class NoCompiler : public Error {
 public:
  explicit NoCompiler(const std::string& missing) : Error(Status::unsupported, missing) {}
};

// Every function returns 0 for success.
struct RuntimeCompiler {
  int (*get_version)(int* major, int* minor);
  const char* (*error_string)(int result);
  int (*create)(void** program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(void** program);
  int (*build)(void* program, int options, const char* const* texts);
  int (*log_size)(void* program, std::size_t* size);
  int (*log)(void* program, char* log);
  int (*code_size)(void* program, std::size_t* size);
  int (*code)(void* program, char* code);
  std::string name;    // NVRTC
  std::string ending;  // of a source's name: .cu

  // Finds the functions, whose names begin with `prefix`, in a library that was opened; the code's as
  // `code_function` names them, "...Size" for its size. Whether all are there.
  bool bind(void* library, const std::string& prefix, const std::string& code_function);
  std::string version() const;  // 13.0
  // Machine code of a kernel; options: the library's own words, before those of the source. Throws
  // Error(device_error) with the kernel's name and the compiler's log.
  Binary compile(const KernelSource& source, const std::string& architecture,
                 std::vector<std::string> options) const;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_RUNTIME_COMPILER_HPP_
