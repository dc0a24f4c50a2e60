// What the bulk copy engine brings: pixels and weights. Part of implicit_gemm.cu.
#pragma once

// The weights of one tap of one block of channels, for a tile's channels.
__device__ __forceinline__ void load_weights(unsigned stage, const TensorMap& w_map, unsigned full, const Params& p,
                                             int block, int tap, int k) {
  load_3d(stage, &w_map, full, block * F_KB, tap, k);
  if (kParts == 2) load_3d(stage + kStagePartStride, &w_map, full, block * F_KB, tap, p.k + k);
}

#if F_RESIDENT
__device__ __forceinline__ void keep_weights(const TensorMap& w_map, const Params& p, unsigned stages,
                                             Barriers& barriers) {
  const Tile t = locate(p, blockIdx.x);  // every tile of this block has the same channels
  const unsigned full = smem_address(&barriers.stage_full[0]);
  barrier_expect(full, F_STAGES * kStageBytes * kParts);
  for (int i = 0; i < F_STAGES; ++i) {
    load_weights(stages + i * kStageStride, w_map, full, p, i / kTaps, i % kTaps, t.k);
  }
}
#endif

#if F_IM2COL
__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        unsigned slots, unsigned stages, Barriers& barriers) {
  Ring<F_SLOTS> slot;
#if F_RESIDENT
  keep_weights(w_map, p, stages, barriers);
#endif
  if (F_FETCH && F_RESIDENT) return;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    for (int block = work.first; block < work.end; ++block) {
      for (int tap = 0; tap < kTaps; ++tap) {
        const unsigned full = smem_address(&barriers.slot_full[slot.place]);
        barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
        barrier_expect(full, (F_FETCH ? 0 : kSlotBytes) + (F_RESIDENT ? 0 : kStageBytes * kParts));
#if F_PLANES
        for (int i = 0; i < kTilePixels / 64; ++i) {
          load_3d(slots + slot.place * kSlotStride + i * kPlanesBox, &x_map, full, t.first + i * 64, block * F_KB,
                  t.n);
        }
#elif !F_FETCH
        load_im2col(slots + slot.place * kSlotStride, &x_map, full, block * F_KB, t.w * p.stride_w - p.pad_left,
                    t.h * p.stride_h - p.pad_top, t.n, static_cast<unsigned short>(tap % F_S * F_DIL_W),
                    static_cast<unsigned short>(tap / F_S * F_DIL_H));
#endif
#if !F_RESIDENT
        load_weights(stages + slot.place * kStageStride, w_map, full, p, block, tap, t.k);
#endif
        slot.advance();
      }
    }
  }
}
#else
#if !F_TURNED || (F_TF32 && F_RAWS > 0)
// The patches and the weights each by a thread of its own: patches that are prepared must come further ahead.
__device__ __forceinline__ void produce_patches(const TensorMap& x_map, const Params& p, unsigned patches,
                                                Barriers& barriers) {
#if F_TURNED
  Ring<F_RAWS> ring;
  constexpr int kBytes = kRawBytes, kStride = kRawStride, kLeft = kRawLeft;
  unsigned long long *const all_full = barriers.raw_full, *const all_empty = barriers.raw_empty;
#else
  Ring<F_SLOTS> ring;
  constexpr int kBytes = kSlotBytes, kStride = kSlotStride;
  const int kLeft = p.pad_left;
  unsigned long long *const all_full = barriers.slot_full, *const all_empty = barriers.slot_empty;
#endif
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    for (int block = work.first; block < work.end; ++block) {
      const unsigned full = smem_address(all_full + ring.place), to = patches + ring.place * kStride;
      barrier_wait(smem_address(all_empty + ring.place), ring.parity ^ 1);
      barrier_expect(full, kBytes);
#if F_TURNED
      load_4d(to, &x_map, full, t.w - kLeft, block * F_KB, t.h - p.pad_top, t.n);
#else
      load_4d(to, &x_map, full, block * F_KB, t.w - kLeft, t.h * F_STRIDE_H - p.pad_top, t.n);
#endif
      ring.advance();
    }
  }
}
#endif

__device__ __forceinline__ void produce_weights(const TensorMap& w_map, const Params& p, unsigned stages,
                                                Barriers& barriers) {
#if F_RESIDENT
  keep_weights(w_map, p, stages, barriers);
#else
  Ring<F_STAGES> stage;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    for (int block = work.first; block < work.end; ++block) {
      for (int tap = 0; tap < kTaps; ++tap) {
        const unsigned full = smem_address(&barriers.stage_full[stage.place]);
        barrier_wait(smem_address(&barriers.stage_empty[stage.place]), stage.parity ^ 1);
        barrier_expect(full, kStageBytes * kParts);
        load_weights(stages + stage.place * kStageStride, w_map, full, p, block, tap, t.k);
        stage.advance();
      }
    }
  }
#endif
}
#endif
