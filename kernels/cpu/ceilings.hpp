// What this CPU reaches at best: the rates that results are compared with.
#ifndef FALTUNG_KERNELS_CPU_CEILINGS_HPP_
#define FALTUNG_KERNELS_CPU_CEILINGS_HPP_

#include <vector>

#include "src/backend/backend.hpp"

namespace faltung {

// Multiply-adds in registers alone (f32, and bf16 where vdpbf16ps exists), and copies larger than any cache.
Ceilings measure_cpu_ceilings(const Parallel& parallel);

// Of one burst of f32 multiply-adds by all workers; 60'000 rounds take a tenth of a millisecond.
double multiply_add_gflops(const Parallel& parallel, long rounds);

// Copies of memory that no cache holds, a piece after the other.
class Copies {
 public:
  static constexpr std::size_t kBytes = std::size_t{128} << 20;

  Copies() : from_(kBytes, 1), to_(kBytes, 2) {}
  // Of the next so many bytes by all workers, read and written.
  double gbps(const Parallel& parallel, std::size_t bytes);

 private:
  std::vector<char> from_, to_;
  std::size_t next_ = 0;
};

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_CEILINGS_HPP_
