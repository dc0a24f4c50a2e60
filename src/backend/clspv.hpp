// The compiler clspv, which makes Vulkan's SPIR-V of OpenCL C: its C interface, in a library that is opened
// at run time.
#ifndef FALTUNG_SRC_BACKEND_CLSPV_HPP_
#define FALTUNG_SRC_BACKEND_CLSPV_HPP_

#include <mutex>
#include <string>

#include "src/backend/backend.hpp"

namespace faltung {

class Clspv {
 public:
  // Null where there is none; missing() then says where it was looked for. FALTUNG_CLSPV names the library
  // itself.
  static const Clspv* get();
  static const std::string& missing();

  // Which one it is: the interface tells no version.
  const std::string& identity() const { return identity_; }
  // SPIR-V whose pointers are storage buffers, and whose values are at most this many bytes of push
  // constants. Throws Error(device_error) with the kernel's name and the compiler's log.
  Binary compile(const KernelSource& source, unsigned push_constant_bytes) const;

 private:
  Clspv() = default;

  int (*compile_)(std::size_t programs, const std::size_t* sizes, const char* const* texts,
                  const char* options, char** code, std::size_t* code_bytes, char** log);
  std::string identity_;
  mutable std::mutex mutex_;  // its options are the process's
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_CLSPV_HPP_
