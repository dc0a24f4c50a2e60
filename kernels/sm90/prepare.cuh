// How 32-bit pixels are made ready for the matrix units. Part of implicit_gemm.cu.
#pragma once

#if F_TURNED
// Turns each patch of NCHW into pixels of channels, as the matrix units take them, and rounds it on the way (see below).
// A thread takes 4 pixels by 4 channels: eight of them in turn write to different banks, and read from every other one.
__device__ __forceinline__ void prepare(const Params& p, unsigned slots, unsigned raws, Barriers& barriers, int thread) {
  static_assert(F_KB == 32, "eight times four channels");
  constexpr int kPairs = ((kPatchWidth + kRawLead + 3) / 4 + 1) / 2;  // of 4 pixels, in a row
  Ring<F_SLOTS> slot;
  Ring<F_RAWS> raw;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    for (int block = work.first; block < work.end; ++block) {
      barrier_wait(smem_address(&barriers.raw_full[raw.place]), raw.parity);
      barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
      const unsigned from = raws + raw.place * kRawStride, to = slots + slot.place * kSlotStride;
#pragma unroll 1
      for (int i = thread; i < kPatchHeight * kPairs * 16; i += kPrepareWarps * 32) {
        const int chunk = (i & 3) + (i >> 1 & 4), row = (i >> 4) / kPairs;
        const int x = ((i >> 4) - row * kPairs) * 8 + (i & 4);
        unsigned v[4][4];
#pragma unroll
        for (int c = 0; c < 4; ++c) load_shared_128(from + ((row * F_KB + chunk * 4 + c) * kRawWidth + x) * 4, v[c]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = x + j - kRawLead;
          const bool inside = column >= 0 && column < kPatchWidth;
          const int pixel = row * kPatchWidth + column;
          const unsigned at = to + pixel * kRow + ((chunk ^ (pixel & 7)) << 4);
          unsigned high_part[4], low_part[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) high_part[c] = round_tf32(v[c][j], low_part[c]);
          store_shared_128_if(at, high_part, inside);
          if (kParts == 2) store_shared_128_if(at + kPartStride, low_part, inside);
        }
      }
      fence_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
        barrier_arrive(smem_address(&barriers.raw_empty[raw.place]));
      }
      slot.advance();
      raw.advance();
    }
  }
}
#elif F_PREPARED
// Rounds the pixels of each slot to the matrix units' 10 bits of mantissa and writes the rest to the second part. Elements stay in their places, so the swizzle does not matter.
__device__ __forceinline__ void prepare(const Params& p, unsigned slots, Barriers& barriers, int thread) {
  Ring<F_SLOTS> slot;
  const Work work = work_of(p);
  const int fills = (work.end - work.first) * (F_IM2COL ? kTaps : 1);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
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
#endif
