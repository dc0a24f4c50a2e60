// The copy engine loads the pixels of a tile as the rows that they are, one after the other: 1x1 filters that take every
// pixel.
#pragma once
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/bring/ready.cuh"

__device__ __forceinline__ void prefetch_pixels(const TensorMap& x_map, const Params& p) {
  ask_for_pixels(p, [&](const Tile& t, int block, int) { prefetch_2d(&x_map, t.c + block * kKBlock, t.first); });
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x == 0) {
    produce_taps(w_map, p, m, barriers, kSlotBytes,
                 [&](unsigned slot, unsigned full, const Tile& t, int block, int) {
                   load_2d(slot, &x_map, full, t.c + block * kKBlock, t.first);
                 });
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  make_ready<AllPixels>(p, m, barriers, thread);
}
