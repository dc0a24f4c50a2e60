// Which instruction sets the CPU kernels are compiled for. To be included before any Highway header, in every
// file that includes one: they must all agree.
#ifndef FALTUNG_KERNELS_CPU_TARGETS_HPP_
#define FALTUNG_KERNELS_CPU_TARGETS_HPP_

// What is left on x86: the baseline, AVX2 with FMA, and AVX-512. The others differ from these in nothing that
// a convolution uses, and each would add its time to every compilation. On Arm NEON: SVE's vectors have no
// size that the compiler knows, and kernels keep accumulators in arrays, which can have no such elements.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Highway is compiled in (kernels/cpu/highway.cpp), under a name of its own: a program may link us and any
// Highway.
#define hwy faltung_hwy

#endif  // FALTUNG_KERNELS_CPU_TARGETS_HPP_
