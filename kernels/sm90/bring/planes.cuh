// NCHW as it is, channels by pixels, by the copy engine: 1x1 filters of stride 1. wgmma takes it transposed.
#pragma once
#include "kernels/sm90/bring/flat.cuh"

constexpr int kBringRegisters = 40;
constexpr int kPrepareWarps = 0;

__device__ __forceinline__ void prefetch_pixels(const TensorMap& x_map, const Params& p) {
  ask_for_pixels(p, [&](const Tile& t, int block, int) {
    for (int i = 0; i < kTilePixels / 64; ++i) prefetch_3d(&x_map, t.first + i * 64, t.c + block * kKBlock, t.n);
  });
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x != 0) return;
  produce_taps(w_map, p, m, barriers, kSlotBytes,
               [&](unsigned slot, unsigned full, const Tile& t, int block, int) {
                 for (int i = 0; i < kTilePixels / 64; ++i) {
                   load_3d(slot + i * kPlanesBox, &x_map, full, t.first + i * 64, t.c + block * kKBlock, t.n);
                 }
               });
}

// The matrix units take them as they come.
__device__ __forceinline__ void prepare(const Params&, const Memory&, Barriers&, int) {}
