// What the CPU at hand can execute, in the words that kernels decline with.
#ifndef FALTUNG_KERNELS_CPU_FEATURES_HPP_
#define FALTUNG_KERNELS_CPU_FEATURES_HPP_

#include <cstddef>
#include <string>
#include <vector>

namespace faltung {

// FALTUNG_MAX_ISA=baseline|avx2|avx512|avx512_bf16|amx_bf16 keeps the kernels to that much of the instruction
// set, to test or compare what a lesser processor would run. To be called before anything asks what there is.
// Throws Error(bad_problem) at any other value.
void apply_isa_limit();

// Of avx2, avx512, avx512_bf16, amx_bf16: those that the processor and the system support, and
// FALTUNG_MAX_ISA allows.
std::vector<std::string> cpu_features();
bool has_avx512_bf16();
bool has_amx_bf16();

// Leaves no cache with what lies there, where the processor has an instruction for that.
void flush_from_caches(const void* from, std::size_t bytes);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_FEATURES_HPP_
