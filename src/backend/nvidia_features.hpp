// What CUDA's compiler and a chip offer, as DeviceInfo::features: for the driver's devices and for those that
// only compile.
#ifndef FALTUNG_SRC_BACKEND_NVIDIA_FEATURES_HPP_
#define FALTUNG_SRC_BACKEND_NVIDIA_FEATURES_HPP_

#include <cstdlib>
#include <string>
#include <vector>

namespace faltung {

// architecture: sm_80, sm_90a, ...; the one without its letter is among the features too.
//   mma_sync         matrix units by the instructions that all chips since compute capability 8.0 have
//   mma_ptx          the same through OpenCL, whose compiler takes PTX
//   wide_local       a kernel may declare 96 KB of local memory through OpenCL, which says that there are 48
//   large_registers  a kernel may count on nearly all of a thread's 255 registers: the compiler does not
//   spill
inline int nvidia_capability(const std::string& architecture) {
  return std::atoi(architecture.c_str() + std::string("sm_").size());
}
inline bool has_mma_sync(const std::string& architecture) { return nvidia_capability(architecture) >= 80; }
// Seen on Hopper alone.
inline bool has_wide_local(const std::string& architecture) { return nvidia_capability(architecture) == 90; }

inline std::vector<std::string> nvidia_features(const std::string& architecture) {
  const int capability = nvidia_capability(architecture);
  std::vector<std::string> features = {"sm_" + std::to_string(capability)};
  if (features.front() != architecture) features.push_back(architecture);
  if (has_mma_sync(architecture)) features.push_back("mma_sync");
  features.push_back("large_registers");
  return features;
}

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_NVIDIA_FEATURES_HPP_
