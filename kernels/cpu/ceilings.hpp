// What this CPU reaches at best: the rates that results are compared with.
#ifndef FALTUNG_KERNELS_CPU_CEILINGS_HPP_
#define FALTUNG_KERNELS_CPU_CEILINGS_HPP_

#include "src/backend/backend.hpp"

namespace faltung {

// Multiply-adds in registers alone (f32, and bf16 where vdpbf16ps exists), and copies larger than any cache.
Ceilings measure_cpu_ceilings(const Parallel& parallel);

// Of one burst of f32 multiply-adds by all workers; 60'000 rounds take a tenth of a millisecond.
double multiply_add_gflops(const Parallel& parallel, long rounds);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_CEILINGS_HPP_
