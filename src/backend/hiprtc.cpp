#include "src/backend/hiprtc.hpp"

#include "src/backend/hip_driver.hpp"
#include "src/backend/library_search.hpp"

#include <dlfcn.h>

namespace faltung {
namespace {

std::string& hiprtc_missing_text() {
  static std::string text;
  return text;
}

// The release that belongs to the driver's; null, and what is missing said.
void* open_hiprtc(const std::string& release) {
  if (const auto named = open_named("FALTUNG_HIPRTC", hiprtc_missing_text())) return *named;
  if (void* const handle = open_library({"libhiprtc.so." + release, "libhiprtc.so"}, hip::folders()))
    return handle;
  if (dlsym(hip::library(), "hiprtcCompileProgram") != nullptr) return hip::library();
  hiprtc_missing_text() = "no libhiprtc.so." + release +
                          " on the loader's path, in ROCm's folder or among Python's packages, and none in "
                          "the HIP driver; install ROCm's hipRTC of the driver's release or name it in "
                          "FALTUNG_HIPRTC";
  return nullptr;
}

}  // namespace

const HipRtc* HipRtc::get() {
  static const HipRtc* const instance = []() -> const HipRtc* {
    if (hip::driver() == nullptr) {
      hiprtc_missing_text() = "hipRTC is opened with the HIP driver, which there is none of";
      return nullptr;
    }
    void* const library = open_hiprtc(std::to_string(hip::release().major));
    if (library == nullptr) return nullptr;
    static HipRtc hiprtc;
    if (!hiprtc.compiler_.bind(library, "hiprtc", "hiprtcGetCode")) {
      hiprtc_missing_text() = "the libhiprtc found has not all functions of a run-time compiler";
      return nullptr;
    }
    hiprtc.compiler_.name = "hipRTC", hiprtc.compiler_.ending = ".hip";
    hiprtc.version_ = hiprtc.compiler_.version();
    return &hiprtc;
  }();
  return instance;
}

const std::string& HipRtc::missing() { return hiprtc_missing_text(); }

Binary HipRtc::compile(const KernelSource& source, const std::string& architecture) const {
  return compiler_.compile(source, architecture, {"--offload-arch=" + architecture, "-std=c++17", "-O3"});
}

}  // namespace faltung
