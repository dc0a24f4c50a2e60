// Where the blocks of a cluster share the sum over channels: a consumer's sums as store/split.cuh adds them up. For
// lines_gemm.cu.
#pragma once
#include "kernels/sm90/lines_pixels.cuh"
#include "kernels/sm90/store/split.cuh"

__device__ __forceinline__ void finish_sums(const RowSums& sums, const Params& p, const Tile& t, unsigned memory,
                                            int consumer, int, int thread) {
  constexpr int kOfRow = kN / 4;  // vectors, of a channel's run of pixels each
  static_assert(kVectors == kRowsAThread * kOfRow && kRun == 4);
  add_up(
      memory, consumer, thread,
      [&](int vector, float (&v)[4]) {
        const int row = vector / kOfRow, i = vector % kOfRow;
#pragma unroll
        for (int pixel = 0; pixel < kRun; ++pixel)
          v[pixel] = sums[pixel / 2][row][i / 2 * 4 + pixel % 2 * 2 + i % 2];
      },
      [&](int consumer, int thread, int vector, const float (&v)[4]) {
        const lines::Pixel at = lines::first_pixel(kConfig.tile, thread);
        const int i = vector % kOfRow, channel = i / 2 * 8 + thread % 4 * 2 + i % 2;
        const int row = consumer * lines::consumer_rows(kConfig.tile) + at.row + vector / kOfRow;
        put_values(p, t, t.k + channel, row * kTileWidth + at.column, v);
      });
}
