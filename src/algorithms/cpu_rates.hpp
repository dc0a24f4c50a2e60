// What the processor at hand does in a given time: what the cost models of the CPU's algorithms reckon with.
// Measured where nobody has yet, in some milliseconds, and kept in the store: two measurements differ by
// their noise, and every process on a machine is to choose alike.
#ifndef FALTUNG_SRC_ALGORITHMS_CPU_RATES_HPP_
#define FALTUNG_SRC_ALGORITHMS_CPU_RATES_HPP_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/brgemm.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// Of one core's caches, in bytes.
struct CpuCaches {
  std::int64_t level1, level2;
};
const CpuCaches& cpu_caches();

// How a register tile reads its operands: rows of A apart or side by side, and B's vectors, from the
// first-level cache but for what is named.
enum class TileReads {
  strided,
  strided_pages,   // rows a multiple of a page apart: they go to the same few of a cache's lines
  strided_stream,  // vectors in a stream from the second-level cache
  contiguous,
  contiguous_split,  // vectors that cross cache lines
  contiguous_stream,
  contiguous_planes  // the same, each step's in a plane of its own
};

// A register tile's time in nanoseconds: for each step of the reduction, and once.
struct TileTime {
  double step, once;
  double of(double steps) const { return steps * step + once; }
};
// rows and vectors as of brgemm_kernel.
TileTime tile_time(TileReads reads, int rows, int vectors);
// The same of a tile of AVX-512's dot products, 14 rows by 32 columns, whose steps are pairs; where
// dot_usable().
TileTime dot_tile_time();
// How often this process asked for one, for the test that a cost model counts tiles and does not visit them.
std::size_t tile_times_asked();

// Nanoseconds of a multiply-add of vectors at the rate of the best tile.
double vector_multiply_add_ns();
// Nanoseconds of a byte that a core reads in a stream from beyond its second-level cache, and from within it.
double far_byte_ns();
double near_byte_ns();
// The same where no cache holds it. Where a processor has no instruction to empty its caches: far_byte_ns.
double memory_byte_ns();
// So much longer a core waits for memory where others do, too.
inline constexpr double kMemoryBesideOthers = 1.4;

// How a depthwise kernel walks over its filter's taps: by code for that very size and stride, or by a loop,
// in nchw over the rows of a filter so tall that each row it loads serves several outputs.
enum class DepthwiseTaps { known, any, tall };
// Of a vector of its outputs, whose steps are taps: data in the second-level cache.
TileTime depthwise_time(Layout layout, DepthwiseTaps taps);
// Of a plane that is turned to pixels among its neighbours, or back, whose steps are its floats: likewise.
TileTime depthwise_turn_time();

// How planes are copied to where tiles read them: each as one run of memory, or row by row with padding.
enum class Staging { runs, rows };
// Of a run or a row, whose steps are floats: data in the second-level cache.
TileTime staging_time(Staging way);
// What a plane takes longer that no cache holds, and that lies far from the one before: steps are its lines.
TileTime fetch_time(Staging way);

// Of a vector that Winograd's transforms write to V and read of M, in nanoseconds: F(m x m, 3 x 3), m 2 or 4.
struct TransformTime {
  double input, output;
};
TransformTime winograd_transform_time(Layout layout, int m);

// The cost models of other algorithms count in cycles of a core that starts two multiply-adds of vectors in
// each: so many nanoseconds.
inline double cycle_ns() { return 2 * vector_multiply_add_ns(); }

// All that was measured, as numbers to keep.
std::vector<double> cpu_rates();
// Whether numbers are rates of this kind of processor.
enum class KeptRates { whole, damaged };
// Takes such numbers in place of measuring, where they are whole and none are known in this process already.
KeptRates adopt_cpu_rates(const std::vector<double>& numbers);

// Weights of forward are packed once; those of backward_data change at every step, so that a run packs them.
inline bool weights_are_constant(const Problem& problem) { return problem.direction == Direction::forward; }

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_CPU_RATES_HPP_
