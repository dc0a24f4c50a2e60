#include "src/backend/nvrtc.hpp"

#include <algorithm>
#include <cstdlib>

#include "src/backend/library_search.hpp"
#include "src/backend/nvidia_features.hpp"

#include <dlfcn.h>

namespace faltung {
namespace {

std::string& missing_text() {
  static std::string text;
  return text;
}

// Null, and what is missing said.
void* open_nvrtc() {
  if (const auto named = open_named("FALTUNG_NVRTC", missing_text())) return *named;
  std::vector<std::string> folders =
      toolkit_folders({"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}, "/usr/local/cuda");
  for (const std::string& folder : python_folders({"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}))
    folders.push_back(folder);
  void* const handle = open_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, folders);
  if (handle == nullptr)
    missing_text() =
        "no libnvrtc.so.13 or .12 on the loader's path, in a CUDA toolkit or among Python's packages; "
        "install one (e.g. pip install nvidia-cuda-nvrtc) or name it in FALTUNG_NVRTC";
  return handle;
}

// Compute capabilities, as 90; none of a library that does not say.
std::vector<int> supported(void* library) {
  using Function = int (*)(int*);
  const auto count = reinterpret_cast<Function>(dlsym(library, "nvrtcGetNumSupportedArchs"));
  const auto list = reinterpret_cast<Function>(dlsym(library, "nvrtcGetSupportedArchs"));
  int number = 0;
  if (count == nullptr || list == nullptr || count(&number) != 0) return {};
  std::vector<int> all(static_cast<std::size_t>(number));
  return list(all.data()) == 0 ? all : std::vector<int>();
}

}  // namespace

const Nvrtc* Nvrtc::get() {
  static const Nvrtc* const instance = []() -> const Nvrtc* {
    void* const library = open_nvrtc();
    if (library == nullptr) return nullptr;
    static Nvrtc nvrtc;
    if (!nvrtc.compiler_.bind(library, "nvrtc", "nvrtcGetCUBIN")) {
      missing_text() = "the libnvrtc found is too old: it has no nvrtcGetCUBIN (CUDA 11.1 and up has)";
      return nullptr;
    }
    nvrtc.compiler_.name = "NVRTC", nvrtc.compiler_.ending = ".cu";
    nvrtc.version_ = nvrtc.compiler_.version();
    nvrtc.capabilities_ = supported(library);
    return &nvrtc;
  }();
  return instance;
}

const std::string& Nvrtc::missing() { return missing_text(); }

void Nvrtc::check(const std::string& architecture) const {
  if (capabilities_.empty()) return;
  const int capability = nvidia_capability(architecture);
  const std::string name = "sm_" + std::to_string(capability);
  const bool is_name = architecture == name || (architecture == name + "a" && capability >= 90) ||
                       (architecture == name + "f" && capability >= 100);
  if (is_name && std::ranges::count(capabilities_, capability) > 0) return;
  std::string known;
  for (const int one : capabilities_) known += (known.empty() ? "sm_" : ", sm_") + std::to_string(one);
  throw Error(Status::unsupported, "NVRTC " + version_ + " does not compile for " + architecture +
                                       "; it does for " + known + ", and FALTUNG_NVRTC may name another");
}

Binary Nvrtc::compile(const KernelSource& source, const std::string& architecture) const {
  // NVRTC 13 dropped Volta, and says of it only that the option is not valid.
  if (architecture == "sm_70" && std::atoi(version_.c_str()) >= 13) {
    throw Error(Status::unsupported,
                "NVRTC " + version_ + " compiles for sm_75 and later: a GPU of compute " +
                    "capability 7.0 needs NVRTC 12; FALTUNG_NVRTC names a libnvrtc.so.12");
  }
  std::vector<std::string> options{"--gpu-architecture=" + architecture, "--std=c++17", "--ptxas-options=-v"};
  // Without declarations of what no kernel here uses, textures and the run-time library's: 5 ms less.
  if (std::atoi(version_.c_str()) >= 13) options.push_back("--minimal");
  return compiler_.compile(source, architecture, std::move(options));
}

}  // namespace faltung
