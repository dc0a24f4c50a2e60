// Where the blocks of a cluster share the sum over channels: a consumer's sums as store/split.cuh adds them up. For
// lines_gemm.cu.
#pragma once
#include "kernels/sm90/lines_pixels.cuh"
#include "kernels/sm90/store/split.cuh"

__device__ __forceinline__ void finish_sums(const RowSums& sums, const Params& p, const Tile& t, unsigned memory,
                                            int consumer, int consumer_row, int thread) {
  named_sync(1, 256);  // both have read their operands
  const lines::Pixel at = lines::first_pixel(kConfig.tile, thread);
#pragma unroll
  for (int row = 0; row < kRowsAThread; ++row) {
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) {
      const int channel = i / 2 * 8 + thread % 4 * 2 + i % 2;
      unsigned v[kRun];
#pragma unroll
      for (int pixel = 0; pixel < kRun; ++pixel)
        v[pixel] = __float_as_uint(sums[pixel / 2][row][i / 2 * 4 + pixel % 2 * 2 + i % 2]);
      const int place = channel * kPitch + (consumer_row + at.row + row) * kTileWidth + at.column;
      store_shared_128(memory + place * 4, v);
    }
  }
  Results::add_up(p, t, memory, consumer, thread);
}
