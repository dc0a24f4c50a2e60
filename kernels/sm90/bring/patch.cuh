// Halo patches: a tile's pixels with the rows and columns that the taps reach beyond it, loaded once for all
// taps. A tap is a view of the patch, a shifted start address, since the swizzle acts on absolute
// shared-memory addresses.
#pragma once
#include "kernels/sm90/bring/ahead.cuh"
#include "kernels/sm90/bring/ready.cuh"
#include "kernels/sm90/bring/weights.cuh"

__device__ __forceinline__ void produce_patches(const TensorMap& x_map, const Params& p, unsigned slots,
                                                Barriers& barriers) {
  Ring<kSlots> slot;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const int left = kPhased ? p.phases[t.phase].left : -p.pad_left,
              top = kPhased ? p.phases[t.phase].top : -p.pad_top;
    if (kPhased && taps_of(p, t.phase) == 0) continue;
    const Span span = span_of(p, work, t);
#pragma unroll 1
    for (int block = span.first; block < span.end; ++block) {
      const unsigned full = smem_address(barriers.slot_full + slot.place),
                     to = slots + slot.place * kSlotStride;
      barrier_wait(smem_address(barriers.slot_empty + slot.place), slot.parity ^ 1);
      barrier_expect(full, kSlotBytes);
      if constexpr (kVolume) {
        const Block of = block_at(p, block);
        load_5d(to, &x_map, full, t.c + of.channels * kKBlock, t.w + left, t.h * kStrideH + top,
                input_plane(depth_of(p, t.phase), t.z, of.depth, kDilationD), t.volume);
      } else {
        load_4d(to, &x_map, full, t.c + block * kKBlock, t.w + left, t.h * kStrideH + top, t.n);
      }
      slot.advance();
    }
  }
}

__device__ __forceinline__ void prefetch_pixels(const TensorMap& x_map, const Params& p) {
  ask_for_pixels(p, [&](const Tile& t, int block, int) {
    prefetch_4d(&x_map, t.c + block * kKBlock, t.w - p.pad_left, t.h * kStrideH - p.pad_top, t.n);
  });
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x == 0) produce_patches(x_map, p, m.slots, barriers);
  if (threadIdx.x == 32) produce_weights(w_map, p, m.stages, barriers);
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  make_ready<PatchPixels>(p, m, barriers, thread);
}
