// NVIDIA's run-time compiler, opened at run time: no toolkit is needed to build, and none to run on a machine
// without it. It needs no GPU.
#ifndef FALTUNG_SRC_BACKEND_NVRTC_HPP_
#define FALTUNG_SRC_BACKEND_NVRTC_HPP_

#include <string>
#include <vector>

#include "src/backend/runtime_compiler.hpp"

namespace faltung {

class Nvrtc {
 public:
  // Null where there is no libnvrtc; missing() then says where it was looked for. FALTUNG_NVRTC names the
  // library itself.
  static const Nvrtc* get();
  static const std::string& missing();

  const std::string& version() const { return version_; }  // e.g. 13.0
  // Throws Error(unsupported) for an architecture that it does not compile for, where it says for which it
  // does (CUDA 11.2 and up).
  void check(const std::string& architecture) const;
  // What machine code of one architecture depends on beside the source: the same with every GPU and driver.
  std::string code_key(const std::string& architecture) const {
    return "cuda-" + architecture + "-nvrtc" + version_;
  }
  // Machine code of one architecture, e.g. sm_90a. Throws Error(device_error) with the kernel's name and the
  // compiler's log.
  Binary compile(const KernelSource& source, const std::string& architecture) const;

 private:
  Nvrtc() = default;

  RuntimeCompiler compiler_;
  std::string version_;
  std::vector<int> capabilities_;  // that it says; perhaps none
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_NVRTC_HPP_
