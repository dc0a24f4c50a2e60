// How long a tiling should take.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_COST_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_COST_HPP_

#include "src/algorithms/candidate.hpp"
#include "src/algorithms/sm90/chip.hpp"
#include "src/algorithms/sm90/tiling.hpp"

namespace faltung::sm90 {

struct Estimate {
  double ms = 0;
  Bound bound = Bound::unknown;
};
Estimate estimate(const Tiling& tiling, const Problem& problem, const Chip& chip);

// What a tile moves and multiplies: counts, bytes, and cycles of one multiprocessor.
struct Traffic {
  double blocks;       // of channels, of this block's share of the sum
  double taps, fills;  // of a filter; of buffers of pixels
  int parts;           // of an element
  double row;          // bytes of an operand's row
  double pixel_rows, weight_rows;
  double loaded;    // bytes
  double operands;  // cycles until the matrix units have read them
  double products;  // cycles of the matrix units
};

// The end of a kernel's time: cycles and bytes overlap but for a share of the shorter, and a launch comes
// before.
double overlapped_ms(double arithmetic_ms, double bytes_ms, double lost);

// Of warps that read pixels themselves: what a block's shared memory leaves of the cache that their loads go
// through, in bytes; words that a thread has room for beside the consumers' sums; and the cache's lines of so
// many rows of so many bytes, begun anywhere.
double cache_bytes(int shared_bytes);
double room(const Tiling& tiling);
double cache_lines(double rows, double row, double to_next);

// Of the steps around the kernel (implicit_gemm_sm90.cpp, around.cpp).
double turning_ms(const Problem& problem, const Chip& chip);  // its input is turned or padded
double gather_step_ms(double bytes, const Chip& chip);
// What folding takes longer where there are few lines: a block of threads has one.
double few_lines_ms(double bytes, double lines, const Chip& chip);
double skipped_ms(double bytes, const Chip& chip);
double zeros_ms(double bytes, const Chip& chip);    // of so many written between pixels
double spread_ms(double bytes, const Chip& chip);   // of so many written
double packing_ms(double bytes, const Chip& chip);  // likewise; 0 where there are none

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_COST_HPP_
