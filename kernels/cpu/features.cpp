#include "kernels/cpu/features.hpp"

#include "kernels/cpu/targets.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>

#include "faltung/faltung.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace faltung {
#if defined(__x86_64__)
namespace {

// In the order in which each includes those before it.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx_bf16 };
constexpr std::string_view kIsaNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16"};

Isa isa_limit() {
  const char* value = std::getenv("FALTUNG_MAX_ISA");
  if (value == nullptr || *value == '\0') return Isa::amx_bf16;
  const auto* found = std::find(std::begin(kIsaNames), std::end(kIsaNames), std::string_view(value));
  if (found != std::end(kIsaNames)) return static_cast<Isa>(found - std::begin(kIsaNames));
  std::string names;
  for (const std::string_view name : kIsaNames) names += (names.empty() ? "" : ", ") + std::string(name);
  throw Error(Status::bad_problem,
              "FALTUNG_MAX_ISA is '" + std::string(value) + "'; it must be one of " + names);
}

bool allowed(Isa isa) {
  static const Isa limit = isa_limit();
  return isa <= limit;
}

}  // namespace
#endif

void apply_isa_limit() {
#if defined(__x86_64__)
  const std::int64_t disabled =
      (allowed(Isa::avx512) ? 0 : HWY_AVX3 | HWY_AVX3_DL) | (allowed(Isa::avx2) ? 0 : HWY_AVX2);
  if (disabled != 0) hwy::DisableTargets(disabled);  // a second call would take the first one back
#endif
}

bool has_avx512_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!allowed(Isa::avx512_bf16) || (hwy::SupportedTargets() & HWY_AVX3) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
#else
  return false;
#endif
}

bool has_amx_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!allowed(Isa::amx_bf16) || (hwy::SupportedTargets() & HWY_AVX3) == 0) return false;
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
#elif defined(__aarch64__)
  features.push_back("neon");
#endif
  return features;
}

void flush_from_caches(const void* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < bytes; i += kLine) hwy::FlushCacheline(static_cast<const char*>(from) + i);
  // A flush waits with the stores, which a fence of loads does not wait for.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace faltung
