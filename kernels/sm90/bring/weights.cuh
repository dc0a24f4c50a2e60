// What brings the weights: the copy engine, for a tap of a block of channels at a time, or all of them once.
#pragma once
#include "kernels/sm90/pipeline.cuh"

// Where in the filter a tap lies. Forward's view of backward_data, stride 1, goes through it from the end.
__device__ __forceinline__ int place_of_tap(const Params& p, int phase, int depth, int tap) {
  if constexpr (kPhased) {
    const Phase& of = p.phases[phase];
    const int row = tap / of.columns;
    return of.tap + row * of.tap_down + (tap - row * of.columns) * of.tap_across +
           (kVolume ? depth * of.tap_deep : 0);
  } else {
    const int place = depth * kTaps + tap;
    return kFilterAsItIs ? kT * kTaps - 1 - place : place;
  }
}

// The weights of one tap of a block of a tile's sum, for a tile's channels.
__device__ __forceinline__ void load_weights(unsigned stage, const TensorMap& w_map, unsigned full,
                                             const Params& p, int block, int phase, int tap_of_plane, int k) {
  const Block of = block_at(p, block);
  const int tap = place_of_tap(p, phase, of.depth, tap_of_plane), c = of.channels * kKBlock;
  if constexpr (kFilterAsItIs) {
#pragma unroll
    for (int i = 0; i < kTileChannels / 64; ++i)
      load_3d(stage + i * kFilterBox, &w_map, full, k + i * 64, tap, c);
    return;
  }
  load_3d(stage, &w_map, full, c, tap, k);
  if constexpr (kParts == 2) load_3d(stage + kStagePartStride, &w_map, full, c, tap, p.k + k);
}

// All weights into the cache, each block of threads a share, while the kernel before still runs: most networks' are
// gone from there since the last run, and every block would wait for its first ones. Where they are very many,
// the first ones.
__device__ __forceinline__ void prefetch_weights(const TensorMap& w_map, const Params& p) {
  if constexpr (kPhased || kT > 1) return;
  constexpr int kMost = 8;
  const int taps = p.c_blocks * kTaps, boxes = p.k_tiles * taps;
#pragma unroll 1
  for (int i = 0, box = static_cast<int>(blockIdx.x); i < kMost && box < boxes;
       ++i, box += static_cast<int>(gridDim.x)) {
    const int tile = box / taps, of_tile = box - tile * taps, block = of_tile / kTaps;
    const int tap = place_of_tap(p, 0, 0, of_tile - block * kTaps), c = block * kKBlock, k = tile * kTileChannels;
    if constexpr (kFilterAsItIs) {
#pragma unroll
      for (int j = 0; j < kTileChannels / 64; ++j) prefetch_3d(&w_map, k + j * 64, tap, c);
    } else {
      prefetch_3d(&w_map, c, tap, k);
      if constexpr (kParts == 2) prefetch_3d(&w_map, c, tap, p.k + k);
    }
  }
}

// Those that stay.
__device__ __forceinline__ void keep_weights(const TensorMap& w_map, const Params& p, unsigned stages,
                                             Barriers& barriers) {
  const Tile t = locate(p, blockIdx.x);  // every tile of this block has the same channels
  const unsigned full = smem_address(&barriers.stage_full[0]);
  barrier_expect(full, kStages * kStageBytes * kParts);
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) {
    load_weights(stages + i * kStageStride, w_map, full, p, i / kTaps, 0, i % kTaps, t.k);
  }
}

// Weights at rest need not wait for the kernel in front: so many fills of a block's first tile come before, all where
// they stay.
__device__ __forceinline__ int weights_ahead(const Params& p) {
  if (kPhased || kVolume || p.weights_rest == 0) return 0;
  if constexpr (kResident) return kStages;
  const Work work = work_of(p);
  const int fills = (work.end - work.first) * kTaps, room = kFlat ? kSlots : kStages;
  return fills < room ? fills : room;
}

// By the thread that brings the pixels where both are expected by one barrier.
__device__ __forceinline__ void bring_weights_ahead(const TensorMap& w_map, const Params& p, unsigned stages,
                                                    Barriers& barriers) {
  const int ahead = weights_ahead(p);
  if (ahead == 0) return;
  if constexpr (kResident) return keep_weights(w_map, p, stages, barriers);
  const Work work = work_of(p);
  const Tile t = locate(p, work.first_tile);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) {
    const unsigned full = smem_address(kFlat ? &barriers.slot_full[i] : &barriers.stage_full[i]);
    if constexpr (kFlat) {
      barrier_expect_beforehand(full, kStageBytes * kParts);
    } else {
      barrier_expect(full, kStageBytes * kParts);
    }
    load_weights(stages + i * kStageStride, w_map, full, p, work.first + i / kTaps, 0, i % kTaps, t.k);
  }
}

// By a thread of its own: pixels that are prepared must come further ahead.
__device__ __forceinline__ void produce_weights(const TensorMap& w_map, const Params& p, unsigned stages,
                                                Barriers& barriers) {
  int ahead = weights_ahead(p);
  if constexpr (kResident) {
    if (ahead == 0) keep_weights(w_map, p, stages, barriers);
  } else {
    Ring<kStages> stage;
    const Work work = work_of(p);
    for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
      const Tile t = locate(p, tile);
      const int taps = taps_of(p, t.phase);
      const Span span = span_of(p, work, t);
#pragma unroll 1
      for (int block = span.first; block < span.end; ++block) {
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) {
          const unsigned full = smem_address(&barriers.stage_full[stage.place]);
          if (--ahead < 0) {
            barrier_wait(smem_address(&barriers.stage_empty[stage.place]), stage.parity ^ 1);
            barrier_expect(full, kStageBytes * kParts);
            load_weights(stages + stage.place * kStageStride, w_map, full, p, block, t.phase, tap, t.k);
          }
          stage.advance();
        }
      }
    }
  }
}
