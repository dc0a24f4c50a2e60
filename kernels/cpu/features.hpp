// What the CPU at hand can execute, in the words that kernels decline with.
#ifndef FALTUNG_KERNELS_CPU_FEATURES_HPP_
#define FALTUNG_KERNELS_CPU_FEATURES_HPP_

#include <string>
#include <vector>

namespace faltung {

// Of avx2, avx512, avx512_bf16, amx_bf16: those that the processor and the system support.
std::vector<std::string> cpu_features();
bool has_avx512_bf16();
bool has_amx_bf16();

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_FEATURES_HPP_
