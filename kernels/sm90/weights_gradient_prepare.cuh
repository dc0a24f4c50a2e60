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

// Where they lie, from 32 pixels of 32 channels to 32 channels of 32 pixels, both swizzled. A lane is a channel; its
// words have every second pixel of eight, as the instructions do.
__device__ __forceinline__ void turn(unsigned block, int lane) {
  // The swizzle is of bits that the block's beginning has not.
  const unsigned from = block + lane * 4, to = block + lane * kRow + lane % 8 * 16;
  unsigned v[32];
#pragma unroll
  for (int pixel = 0; pixel < 32; ++pixel) load_shared<4>((from ^ pixel % 8 * 16) + pixel * 128, v[pixel]);
  __syncwarp();  // all of it has been read
#pragma unroll
  for (int chunk = 0; chunk < 8; ++chunk) {
    const int first = chunk / 2 * 8 + chunk % 2;
    const unsigned pixels[4] = {v[first], v[first + 2], v[first + 4], v[first + 6]};
    store_parts(to ^ chunk * 16, pixels);
  }
}

__device__ __forceinline__ void prepare(const Work& work, unsigned stages, Barriers& barriers, int warp, int lane) {
  Ring<kStages> stage;
  for (int tile = work.first; tile < work.end; ++tile) {
    const unsigned to = stages + stage.place * kStageStride;
    if constexpr (kTurns) {
      constexpr int kBlocks = kChannels / 32;  // of a row
#pragma unroll 1
      for (int i = warp; i < kPatchHeight * kBlocks; i += kPrepareWarps) {
        barrier_wait(smem_address(&barriers.landed[stage.place][i / kBlocks]), stage.parity);
        turn(to + i * 32 * kRow, lane);
      }
    } else {
      barrier_wait(smem_address(&barriers.landed[stage.place][0]), stage.parity);
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
