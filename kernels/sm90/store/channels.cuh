// A consumer's sums from registers, where their rows are channels: a thread has two of every 16.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"

// Calls row(block of 64, which of the thread's two rows of it, channel, bias) for each that there is.
template <class Row>
__device__ __forceinline__ void for_channels(const Params& p, const Tile& t, int consumer, int thread,
                                             const Row& row) {
  const int warp = thread / 32, lane = thread % 32;
  const int k0 = my_first_channel(t, consumer) + warp * 16 + lane / 4;
#pragma unroll
  for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + mt * 64 + half * 8;
      if (k >= p.k) continue;
      row(mt, half, k, of_channel(p.bias, p.slopes, k));
    }
  }
}
