// How 32-bit pixels are made ready for products of high and low parts, by warps, where they lie.
#pragma once
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/tf32.cuh"
#include "kernels/sm90/words.cuh"

// Rounds the pixels of each slot to the matrix units' 10 bits of mantissa and writes the rest to the second
// part. Elements stay in their places, so the swizzle does not matter.
__device__ __forceinline__ void split_slots(const Params& p, unsigned slots, Barriers& barriers, int thread) {
  Ring<kSlots> slot;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Span span = kVolume ? span_of(p, work, locate(p, tile)) : Span{work.first, work.end};
    const int fills = kPhased ? blocks_of(p, tile) : (span.end - span.first) * (kFlat ? kTaps : 1);
    for (int fill = 0; fill < fills; ++fill) {
      barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
      const unsigned at = slots + slot.place * kSlotStride;
#pragma unroll 4
      for (int i = thread * 16; i < kSlotBytes; i += kPrepareWarps * 32 * 16) {
        unsigned v[4], low_part[4];
        load_shared_128(at + i, v);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = round_tf32(v[j], low_part[j]);
        store_shared_128(at + i, v);
        store_shared_128(at + kPartStride + i, low_part);
      }
      fence_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
      slot.advance();
    }
  }
}
