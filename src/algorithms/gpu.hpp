// What the algorithms for GPUs share: a problem as constants and arguments of the portable kernels.
#ifndef FALTUNG_SRC_ALGORITHMS_GPU_HPP_
#define FALTUNG_SRC_ALGORITHMS_GPU_HPP_

#include <string>
#include <utility>
#include <vector>

#include "src/algorithms/algorithm.hpp"

namespace faltung::gpu {

// The sizes as kernels take them; kernels/gpu/convolution.h makes the same struct.
struct Sizes {
#define FALTUNG_SIZE(name, value) std::int32_t name;
#include "kernels/common/sizes.inc"
#undef FALTUNG_SIZE
};
Sizes sizes(const Problem& problem);

// What every portable kernel declines: a size that no argument holds.
Support fits(const Problem& problem);
// And every kernel that is a matrix product: a depthwise convolution, too.
Support fits_a_product(const Problem& problem);
// Where a device serves none of an algorithm's tiles.
Support no_tile_fits(const DeviceInfo& device);

// What forward and backward_data gather from.
Place gathered_place(const Problem& problem);
// What the epilogue does not touch is compiled once for all of them.
Problem without_epilogue(Problem problem);

// The #defines that a kernel is specialised by.
using Constants = std::vector<std::pair<std::string, std::string>>;
// Those that kernels/gpu/convolution.h asks for, and an algorithm's own.
Constants constants(const Problem& problem, const Constants& own);
// DIRECTION_fwd, DIRECTION_bwd_d or DIRECTION_bwd_w.
std::pair<std::string, std::string> direction_constant(const Problem& problem);

// The kernel `entry` of kernels/gpu/<file>, for this device. kernel: its name, for messages. shared_bytes:
// that its launches ask for beside what it declares.
jit::Source source(const DeviceInfo& device, const std::string& kernel, const std::string& file,
                   const std::string& entry, const Constants& constants, int shared_bytes = 0);

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

LaunchShape grid(std::int64_t x, std::int64_t y, std::int64_t z, int threads);
// x, w and y, of which the direction's result is written; forward's bias and residual after them.
std::vector<StepArgument> tensors(const Problem& problem);
// A kernel's argument of type int.
StepArgument number(std::int64_t value);

// A kernel that reaches this share of the arithmetic that the device may have, for the cost model:
// milliseconds.
double arithmetic_ms(const Problem& problem, const DeviceInfo& device, double share);

// Where blocks share a result's sum, their parts of it lie one after the other as floats where the workspace
// begins.
std::size_t parts_bytes(const Problem& problem, std::int64_t splits);
// Of forward and backward_data, whose sums are not always shared: 0 bytes, and the result itself, where
// splits is 1.
std::size_t shared_sum_bytes(const Problem& problem, std::int64_t splits);
Slot shared_sum(const Problem& problem, std::int64_t splits);
// Sums the parts and applies the epilogue; forward and backward_data.
Step finish_step(const Problem& problem, const std::string& kernel, std::int64_t splits,
                 const DeviceInfo& device);
// Sums the parts of the filter's gradient. own: what sum_parts.cl may be told beside the problem.
Step sum_parts_step(const Problem& problem, const std::string& kernel, Slot parts, std::int64_t count,
                    const DeviceInfo& device, const Constants& own = {});

// The same of many parts, by rows of threads; begins while the kernel before it ends.
Step sum_many_parts_step(const Problem& problem, const std::string& kernel, std::int64_t count,
                         const DeviceInfo& device);

// The maker of a kernel whose choices are all that it is made of.
template <class Choice>
Maker maker(Candidate (*make)(const Problem&, const Choice&, const DeviceInfo&), const Choice& choice) {
  return [make, choice](const Problem& problem, const Target& target) {
    return make(problem, choice, target.device);
  };
}

}  // namespace faltung::gpu

#endif  // FALTUNG_SRC_ALGORITHMS_GPU_HPP_
