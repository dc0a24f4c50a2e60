// AMD's run-time compiler hipRTC, opened at run time: a library of its own, or up to ROCm 6 the driver's.
#ifndef FALTUNG_SRC_BACKEND_HIPRTC_HPP_
#define FALTUNG_SRC_BACKEND_HIPRTC_HPP_

#include <string>

#include "src/backend/runtime_compiler.hpp"

namespace faltung {

class HipRtc {
 public:
  // Null where there is none; missing() then says where it was looked for. FALTUNG_HIPRTC names the library
  // itself.
  static const HipRtc* get();
  static const std::string& missing();

  const std::string& version() const { return version_; }
  // A code object for one chip as the driver calls it, e.g. gfx942:sramecc+:xnack-. Throws
  // Error(device_error) with the kernel's name and the compiler's log. Releases that do not know the chip may
  // end the process.
  Binary compile(const KernelSource& source, const std::string& architecture) const;

 private:
  HipRtc() = default;

  RuntimeCompiler compiler_;
  std::string version_;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_HIPRTC_HPP_
