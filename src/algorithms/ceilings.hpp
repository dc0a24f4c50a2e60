// What a device reaches at best: the rates that results are compared with.
#ifndef FALTUNG_SRC_ALGORITHMS_CEILINGS_HPP_
#define FALTUNG_SRC_ALGORITHMS_CEILINGS_HPP_

#include "src/jit/session.hpp"

namespace faltung {

// Products on random operands by a chip's matrix units: wgmma on Hopper, mma.sync on others that have it; f32
// stands for tf32. Launched with (float* sink, int rounds).
jit::Source matrix_products(const DeviceInfo& device, DType dtype);

// A second of work, and compiling. threads matters on the CPU alone. A rate is the best of what the device's
// units allow.
Ceilings measure_ceilings(const jit::Session& session, int threads);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CEILINGS_HPP_
