// Matrix units, AMD's or through OpenCL NVIDIA's, and implicit_gemm_matrix_gpu's gradient of the weights:
// what its two files share.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MATRIX_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MATRIX_HPP_

#include <algorithm>
#include <string>
#include <vector>

#include "src/algorithms/gpu.hpp"

namespace faltung::matrix {

inline constexpr int kChunkBytes = 16;  // of neighbouring steps of the sum

// The matrix units that a chip has, or what multiplies pairs of f16 in their place, as
// kernels/gpu/amd_matrix.h and kernels/gpu/nvidia_matrix.h call them; AMD's by its matrix instruction
// calculator.
struct Unit {
  const char* feature;
  int wave;
  double gain_16, gain_32;   // their rate beside that of the vector units' fp32; 0 where there is none
  int cycles_16, cycles_32;  // of a chunk of the sum for 16 x 16 results
  int copies;                // how often a wave reads an operand
  int vector_cycles;         // beside the products, of a tile of the sum: as counted in clang's code
  bool pairs = false;        // of f16, on the vector units
  int stages = 2;            // tiles of the sum in local memory, at most; 2 where registers bring them
  bool is_nvidia() const { return stages > 2; }
};
// Null where there are none.
const Unit* unit_of(const DeviceInfo& device);

template <class Tile>
bool fits(const Tile& tile, const Unit& unit, const DeviceInfo& device) {
  return tile.threads(unit) <= device.block_threads &&
         static_cast<std::size_t>(tile.local_bytes()) <= device.local_bytes;
}

// Of a product of which tiles have so large a share in what the matrix units could do. No chip has run it:
// rates are the chips' own, times the share that implicit_gemm_gpu's model takes.
template <class Tile>
double product_ms(const Problem& problem, const Tile& tile, double share, const DeviceInfo& device) {
  constexpr double kShare = 0.75;
  const Unit& unit = *unit_of(device);
  const UnitLimits& chip = device.unit;
  const double gain = problem.dtype == DType::f32 ? unit.gain_32 : unit.gain_16;
  const double hidden =
      chip.known() ? gpu::pace(chip.waves(tile.threads(unit), tile.amd.on(chip), tile.local_bytes())) : 1;
  return gpu::arithmetic_ms(problem, device, kShare * gain * share * std::max(hidden, 0.1));
}

namespace weights {

// Of a problem of this direction whose dtype the matrix units serve.
Support supports(const Problem& problem, const DeviceInfo& device);
std::vector<Candidate> list(const Problem& problem, const DeviceInfo& device);
// Throws Error(bad_problem) where config is no name of these.
Maker parse(const std::string& config);

}  // namespace weights
}  // namespace faltung::matrix

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_MATRIX_HPP_
