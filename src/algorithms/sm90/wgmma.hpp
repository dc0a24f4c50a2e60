// Hopper's matrix product as text for its kernels: an instruction has as many operands as a tile has sums.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_WGMMA_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_WGMMA_HPP_

#include <string>

#include "faltung/faltung.hpp"

namespace faltung::sm90 {

// Where the first operand is; the second is in shared memory.
enum class First { shared, registers };

// One wgmma of 64 x n x 32 bytes as mma(d, a, b, accumulate), d being the n / 2 sums of a thread. transposed:
// the instruction's flags that rows, not the depth, lie side by side, one of each operand in shared memory
// that may.
std::string wgmma_function(int n, DType dtype, First first, const std::string& transposed);

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_WGMMA_HPP_
