#include "kernels/cpu/features.hpp"

#include "kernels/cpu/targets.hpp"

#include <hwy/highway.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace faltung {

bool has_avx512_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
#else
  return false;
#endif
}

bool has_amx_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 22)) != 0;
#else
  return false;
#endif
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> features;
#if defined(__x86_64__)
  if ((hwy::SupportedTargets() & HWY_AVX2) != 0) features.push_back("avx2");
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) features.push_back("avx512");
  if (has_avx512_bf16()) features.push_back("avx512_bf16");
  if (has_amx_bf16()) features.push_back("amx_bf16");
#endif
  return features;
}

}  // namespace faltung
