// NCHW as it is, by the copy engine, in tiles of as many pixels as divide a plane, not by 64: 1x1 filters of stride 1. Its
// boxes are of 64 pixels, as where warps fetch them; what the last one has beyond the tile is not multiplied.
#pragma once
#include "kernels/sm90/bring/flat.cuh"

constexpr int kBringRegisters = 40;
constexpr int kPrepareWarps = 1;  // so many arrivals say that a slot is there: the copy engine's thread's, with its bytes
constexpr int kBoxes = (kTilePixels + 63) / 64;

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x != 0) return;
  const unsigned to_ready = smem_address(&barriers.slot_ready[0]) - smem_address(&barriers.slot_full[0]);
  produce_taps(w_map, p, m, barriers, 0, [&](unsigned slot, unsigned full, const Tile& t, int block, int) {
    const unsigned ready = full + to_ready;
    barrier_expect(ready, kBoxes * kPlanesBox);
    for (int i = 0; i < kBoxes; ++i) {
      load_3d(slot + i * kPlanesBox, &x_map, ready, t.first - t.n * (p.p * p.q) + i * 64, t.c + block * kKBlock,
              t.n);
    }
  });
}

// The matrix units take them as they come.
__device__ __forceinline__ void prepare(const Params&, const Memory&, Barriers&, int) {}
