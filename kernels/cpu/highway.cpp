// What Highway's own library defines and its headers ask for: the processor's instruction sets, on which
// HWY_DYNAMIC_DISPATCH chooses. Debian has that library as a shared one alone; with this file Highway is
// headers, and whoever installs faltung needs none of it.
#include "kernels/cpu/targets.hpp"

#include <hwy/highway.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hwy {
namespace {

std::atomic<std::int64_t> disabled_targets{0};

#if defined(__x86_64__)

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf) {
  Registers r;
  __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);  // zeros where there is no such leaf
  return r;
}

// The register states that the system saves, bit by bit.
std::uint64_t saved_states() {
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

constexpr unsigned bit(int number) { return 1u << number; }

template <class T>
bool has_all(T flags, T wanted) {
  return (flags & wanted) == wanted;
}

// Each needs all that the compiler may use for it: HWY_TARGET_STR_* in Highway's set_macros-inl.h.
std::int64_t detect() {
  constexpr unsigned kPclmul = bit(1), kSsse3 = bit(9), kFma = bit(12), kSse41 = bit(19), kSse42 = bit(20),
                     kAes = bit(25), kOsXsave = bit(27), kAvx = bit(28), kF16c = bit(29);  // leaf 1, ecx
  constexpr unsigned kBmi1 = bit(3), kAvx2 = bit(5), kBmi2 = bit(8), kAvx512f = bit(16), kAvx512dq = bit(17),
                     kAvx512bw = bit(30), kAvx512vl = bit(31);  // leaf 7, ebx
  constexpr std::uint64_t kVectors = 0x6, kMasksAndWideVectors = 0xe6;
  std::int64_t targets = 0;
  const unsigned basic = cpuid(1).c, extended = cpuid(7).b;
  if (!has_all(basic, kOsXsave)) return targets;
  const std::uint64_t saved = saved_states();
  if (has_all(basic, kPclmul | kSsse3 | kFma | kSse41 | kSse42 | kAes | kAvx | kF16c) &&
      has_all(extended, kBmi1 | kAvx2 | kBmi2) && has_all(saved, kVectors)) {
    targets |= HWY_AVX2;
    if (has_all(extended, kAvx512f | kAvx512dq | kAvx512bw | kAvx512vl) &&
        has_all(saved, kMasksAndWideVectors)) {
      targets |= HWY_AVX3;
    }
  }
  return targets;
}

#elif defined(__aarch64__)

std::int64_t detect() { return HWY_NEON; }  // part of the architecture

#else

std::int64_t detect() { return 0; }

#endif

}  // namespace

std::int64_t SupportedTargets() {
  static const std::int64_t detected = detect() | HWY_EMU128 | HWY_SCALAR;
  const std::int64_t allowed = detected & ~disabled_targets.load();
  return allowed != 0 ? allowed : HWY_STATIC_TARGET;
}

void DisableTargets(std::int64_t targets) {
  disabled_targets = targets;
  GetChosenTarget().DeInit();  // the next dispatch asks again
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// Of assertions in Highway's headers, which debug builds check.
void Abort(const char* file, int line, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "faltung: %s:%d: ", file, line);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::abort();
}

}  // namespace hwy
