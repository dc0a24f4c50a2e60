// What the algorithms for GPUs share: a problem as constants and arguments of the portable kernels.
#ifndef FALTUNG_SRC_ALGORITHMS_GPU_HPP_
#define FALTUNG_SRC_ALGORITHMS_GPU_HPP_

#include <string>
#include <utility>
#include <vector>

#include "src/algorithms/algorithm.hpp"
#include "src/jit/jit.hpp"

namespace faltung::gpu {

// The sizes as kernels take them; kernels/gpu/convolution.h has the same struct.
struct Sizes {
  std::int32_t n, c, h, w, k, p, q;
  std::int32_t groups, group_c, group_k;
  std::int32_t pad_top, pad_left;
  std::int32_t y_h, y_w, pool_pad_top, pool_pad_left;
};
Sizes sizes(const Problem& problem);

// What every portable kernel declines: a size that no argument holds.
Support fits(const Problem& problem);

// The #defines that a kernel is specialised by.
using Constants = std::vector<std::pair<std::string, std::string>>;
// Those that kernels/gpu/convolution.h asks for, and an algorithm's own.
Constants constants(const Problem& problem, const Constants& own);

// The kernel `entry` of kernels/gpu/<file>, for this device. kernel: its name, for messages. shared_bytes:
// that its launches ask for beside what it declares.
jit::Built build(Device& device, const std::string& kernel, const std::string& file, const std::string& entry,
                 const Constants& constants, int shared_bytes = 0);

// What LLVM makes of a tile: registers a thread on AMD's two families. tests/portable_amdgcn_test.cpp holds
// every figure to what the compiler says.
struct AmdRegisters {
  int rdna = 0, cdna = 0;
  int on(const UnitLimits& unit) const { return unit.wave_threads == 32 ? rdna : cdna; }
};
// The share of its pace that a block of independent multiply-adds keeps with so many waves a scheduler,
// beside what it has with the four that the constants of the cost models stand for: others work while one
// waits.
double pace(double waves);

// A grid of one dimension with a thread for each of count, or fewer where that would be too many: kernels
// step through what is left.
LaunchShape one_dimension(std::int64_t count, int threads);

// A kernel that reaches this share of the arithmetic that the device may have, for the cost model:
// milliseconds.
double arithmetic_ms(const Problem& problem, const Device& device, double share);

// Adds the step that sums the parts of a result, which lie one after the other as floats where the workspace
// begins, and applies the epilogue; forward and backward_data.
void add_finish_step(Recipe& recipe, const Problem& problem, const std::string& kernel, std::int64_t splits,
                     Device& device);

// problem's convolution without its pool, then the pool; see with_pool_step_cpu.
Recipe with_pool_step(const Problem& problem, Recipe convolution, Device& device);

}  // namespace faltung::gpu

#endif  // FALTUNG_SRC_ALGORITHMS_GPU_HPP_
