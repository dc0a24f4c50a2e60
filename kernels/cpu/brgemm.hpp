// The matrix product that the convolutions share: a batch-reduce GEMM micro-kernel.
//
// It computes a tile of C with its m rows and width columns in registers, and sums over a list of segments:
//
//   C[row][column] = sum over segments g, over i in [0, length) of
//                    A[g.a + row * a_row_stride + i * a_step] * B[g.b + i * b_step + column]
//
// Rows come in two groups with a start of their own each: rows 0..6 from a0 and c0, rows 7..13 from a1 and
// c1. Offsets, strides and steps count elements: floats, and in A and B of the AMX tiles (brgemm_amx.hpp)
// pairs of bf16. Nothing need be aligned.
//
// A segment is a filter tap, a block of channels, a transform's component: what lies contiguous (B) or at one
// step (A). Padding is the caller's: a segment that is left out, or rows of zeros that A is pointed to.
#ifndef FALTUNG_KERNELS_CPU_BRGEMM_HPP_
#define FALTUNG_KERNELS_CPU_BRGEMM_HPP_

#include <cstdint>

#include "src/problem/problem.hpp"

namespace faltung {

struct BrgemmSegment {
  std::int64_t a, b;
};

// Lines of memory to bring to the cache, one a step, for what comes next: many at once would wait for each
// other, and the products for them. So many, in runs of run_lines with run_stride bytes from one's begin to
// the next's; at is the next line, of whose run run_left are left.
struct BrgemmFetch {
  const char* at = nullptr;
  std::int64_t lines = 0, run_left = 0, run_lines = 0, run_stride = 0;
};

struct BrgemmCall {
  const void* a0 = nullptr;       // row 0
  const void* a1 = nullptr;       // row 7; not read with fewer than 8 rows
  std::int64_t a_row_stride = 0;  // ignored by kernels for BrgemmRows::contiguous, where it is 1
  std::int64_t a_step = 1;
  const void* b = nullptr;
  std::int64_t b_step = 0;
  const BrgemmSegment* segments = nullptr;
  std::int64_t segment_count = 0;  // may be 0: the sum is 0
  std::int64_t length = 0;         // at least 1
  // Of brgemm_kernel: so many tiles one after the other in one call. A, which moves for BrgemmRows::strided
  // alone, B, C with addend and residual, and column_bias lie so many elements further in the next one.
  std::int64_t tiles = 1, a_tile = 0, b_tile = 0, c_tile = 0, bias_tile = 0;

  // Memory to bring to the cache meanwhile, ahead_step bytes further each step, for what comes next; null:
  // none. For BrgemmRows::strided.
  const void* ahead = nullptr;
  std::int64_t ahead_step = 0;
  // The same for BrgemmRows::contiguous: to the first-level cache in the last tile, where each before it
  // fetches what the next one is stored to; and from the first tile on to the second-level cache.
  BrgemmFetch near, far;

  float* c0 = nullptr;
  float* c1 = nullptr;
  std::int64_t c_row_stride = 0;
  // Each tile asks for the lines that it will be stored to as it begins. For BrgemmRows::strided.
  bool fetches_c = false;
  // Columns that are stored, more than (vectors - 1) * lanes and at most vectors * lanes: of the last tile,
  // those before it are whole. The others of B are read, and must be there.
  int columns = 0;

  // What is done to the sum before it is stored, in this order.
  const float* column_bias = nullptr;  // added to each row; [columns]
  const float* row_bias = nullptr;     // added to each column; [m]
  const float* addend0 = nullptr;      // a matrix to add, rows as in c0 and c1; may be C itself
  const float* addend1 = nullptr;
  const float* residual0 = nullptr;  // another one
  const float* residual1 = nullptr;
  ActivationCall activation;  // not prelu, of which each channel has its own slope
};

using BrgemmKernel = void (*)(const BrgemmCall&);

enum class BrgemmRows { strided, contiguous };

// Columns of a tile are a number of vectors of this many floats: 16 with AVX-512, 8 with AVX2, else 4.
int brgemm_lanes();
// The most vectors a tile may be wide.
inline constexpr int kBrgemmMaxVectors = 4;
// The most rows of a tile that many vectors wide, such that it stays in registers: with AVX-512 14, 14, 9 and
// 6; the best shapes are 14 x 2, 9 x 3 and 6 x 4 there, 6 x 2 elsewhere.
int brgemm_max_rows(int vectors);
// 1 <= rows <= brgemm_max_rows(vectors), 1 <= vectors <= kBrgemmMaxVectors.
BrgemmKernel brgemm_kernel(BrgemmRows a_rows, int rows, int vectors);

// The same for groups of few channels, which lie side by side in a vector: lane j sums over its own group,
//
//   C[row][j] = sum over segments g, over i in [0, length), over tap in [0, taps) of
//               A[g.a + (row + tap) * a_row_stride + j / length * length + i] * B[g.b + (i * taps + tap) *
//               lanes + j]
//
// for rows from a0 and c0 on, with c1 where the seventh is. length is a group's channels, a power of two and
// at most lanes. Vectors of A are read whole. 1 <= rows <= brgemm_max_group_rows(), taps 1 or 3: a vector of
// A is loaded once for all taps, and each channel of it spread over its group's lanes once.
BrgemmKernel brgemm_group_kernel(int rows, int taps);
int brgemm_max_group_rows();

// How many elements pack_brgemm_b writes.
inline std::int64_t packed_brgemm_b_elements(std::int64_t length, std::int64_t columns, int width) {
  return (columns + width - 1) / width * width * length;
}

// Packs a matrix to B's order: [column / width][i][column % width], zeros after the last column, so that a
// kernel of width columns has b_step = width and its panel at (column / width) * length * width. value(i,
// column) is the matrix as floats, i in [0, length).
template <class Value>
void pack_brgemm_b(float* to, std::int64_t length, std::int64_t columns, int width, const Value& value) {
  for (std::int64_t first = 0; first < columns; first += width) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (int j = 0; j < width; ++j) *to++ = first + j < columns ? value(i, first + j) : 0.0f;
    }
  }
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_BRGEMM_HPP_
