// A consumer's sums as matrices of 8 by 8 values of 16 bits, of which a warp loads or stores four at once.
//
// A thread holds, of a block of 64 rows by kN columns: rows 16 warp + lane/4 and 8 further; of every 8 columns the two
// from 2 (lane % 4) on. Of the four matrices from column 8 i on two are the 8 columns', of the warp's first 8 rows and of
// its last, and two the next 8 columns'; of an odd count the last ones are written twice, alike.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"

// How many 8 columns further matrix m's are.
__device__ __forceinline__ int further(int i, int m) { return i + 1 < kN / 8 ? m >> 1 : 0; }

// The thread's two of matrix m.
__device__ __forceinline__ float* sums_of(float (&block)[kN / 2], int i, int m) {
  return &block[(i + further(i, m)) * 4 + (m & 1) * 2];
}

// In planes: where the row lies whose address a lane gives. Of a matrix's two sides one is 8 pixels; of the other,
// channels, each lane has one.
struct PlanesRow {
  int channel, pixels;
  __device__ __forceinline__ PlanesRow(int mt, int i, int warp, int lane) {
    const int matrix = lane / 8, row = lane % 8;
    const int columns = i + further(i, matrix), rows = mt * 8 + warp * 2 + (matrix & 1);
    channel = (kPixelsOnM ? columns : rows) * 8 + row, pixels = kPixelsOnM ? rows : columns;
  }
};
__device__ __forceinline__ void store_planes_rows(unsigned address, const unsigned (&v)[4]) {
  if constexpr (kPixelsOnM) {
    store_matrices_transposed(address, v[0], v[1], v[2], v[3]);
  } else {
    store_matrices(address, v[0], v[1], v[2], v[3]);
  }
}
