#include "src/finder/cost.hpp"

#include <algorithm>

namespace faltung {

double arithmetic_ceiling(const Problem& p, const Ceilings& c) {
  if (p.dtype == DType::f16) return c.f16.gflops;
  if (p.dtype == DType::bf16) return c.bf16.gflops;
  // An fp32 product is also three of two parts each on the matrix units.
  return p.math == Math::f32 ? std::max(c.f32.gflops, c.tf32.gflops / 3) : c.tf32.gflops;
}

Roofline roofline(const Problem& p, const Ceilings& c) {
  Roofline roof;
  const double gflops = arithmetic_ceiling(p, c);
  if (gflops > 0) roof.arithmetic_ms = flops(p) / gflops * 1e-6;
  if (c.copy_gbps > 0) roof.bytes_ms = touched_bytes(p) / c.copy_gbps * 1e-6;
  return roof;
}

std::string Roofline::bound_by(double measured_ms) const {
  constexpr double kFar = 8;  // times slower than both: neither is what it waits for
  if (measured_ms > kFar * ms()) return "latency";
  return arithmetic_ms >= bytes_ms ? "arithmetic" : "bytes";
}

}  // namespace faltung
