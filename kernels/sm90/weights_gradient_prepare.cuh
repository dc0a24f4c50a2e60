// The warps that make x ready for the matrix units: NHWC is turned, and of 32-bit elements in two parts the low ones are
// written beside the high ones, which are the elements themselves (the matrix units cut them). Part of
// weights_gradient_lines.cu.
#pragma once
#include "kernels/sm90/words.cuh"

__device__ __forceinline__ unsigned low_part(unsigned v);

__device__ __forceinline__ void store_parts(unsigned to, const unsigned (&v)[4]) {
  store_shared_128(to, v);
  if constexpr (kTwoParts) {
    const unsigned low[4] = {low_part(v[0]), low_part(v[1]), low_part(v[2]), low_part(v[3])};
    store_shared_128(to + kPatchStride, low);
  }
}

// A row, from pixels of 32 channels to channels of 32 pixels, both swizzled. A lane is a channel; it takes every second
// pixel of eight, as the instructions do.
__device__ __forceinline__ void turn_row(unsigned from, unsigned to, int warp, int lane) {
  constexpr int kChunks = kChannels / 32 * 8;  // of 32 channels by 4 pixels
#pragma unroll 4
  for (int i = warp; i < kChunks; i += kPrepareWarps) {
    const int chunk = i % 8, block = i / 8, first = chunk / 2 * 8 + chunk % 2;
    unsigned v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int pixel = first + j * 2;
      load_shared<4>(from + block * 32 * kRow + pixel * 128 + (lane / 4 ^ pixel % 8) * 16 + lane % 4 * 4, v[j]);
    }
    store_parts(to + (block * 32 + lane) * kRow + (chunk ^ lane % 8) * 16, v);
  }
}

__device__ __forceinline__ void prepare(const Work& work, unsigned stages, unsigned raws, Barriers& barriers, int warp,
                                        int lane) {
  Ring<kStages> stage;
  Ring<kRaws> raw;
  for (int tile = work.first; tile < work.end; ++tile) {
    const unsigned to = stages + stage.place * kStageStride;
    if constexpr (kTurns) {
      barrier_wait(smem_address(&barriers.x_empty[stage.place]), stage.parity ^ 1);
      for (int row = 0; row < kPatchHeight; ++row) {
        barrier_wait(smem_address(&barriers.raw_full[raw.place]), raw.parity);
        turn_row(raws + raw.place * kPlanesBytes, to + row * kPlanesBytes, warp, lane);
        __syncwarp();
        if (lane == 0) barrier_arrive(smem_address(&barriers.raw_empty[raw.place]));
        raw.advance();
      }
    } else {
      barrier_wait(smem_address(&barriers.landed[stage.place]), stage.parity);
#pragma unroll 4
      for (int i = warp * 32 + lane; i < kPatchBytes / 16; i += kPrepareWarps * 32) {
        unsigned v[4];
        load_shared_128(to + i * 16, v);
        const unsigned low[4] = {low_part(v[0]), low_part(v[1]), low_part(v[2]), low_part(v[3])};
        store_shared_128(to + kPatchStride + i * 16, low);
      }
    }
    fence_async();
    __syncwarp();
    if (lane == 0) barrier_arrive(smem_address(&barriers.x_full[stage.place]));
    stage.advance();
  }
}
