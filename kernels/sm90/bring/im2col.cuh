// The copy engine gathers the pixels of a tile for one tap at a time: any stride.
#pragma once
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/bring/split.cuh"

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x == 0) {
    if constexpr (kResident) keep_weights(w_map, p, m.stages, barriers);
    produce_taps(w_map, p, m, barriers, kSlotBytes,
                 [&](unsigned slot, unsigned full, const Tile& t, int block, int tap) {
                   load_im2col(slot, &x_map, full, t.c + block * kKBlock, t.w * p.stride_w - p.pad_left,
                               t.h * p.stride_h - p.pad_top, t.n,
                               static_cast<unsigned short>(tap % kS * kDilationW),
                               static_cast<unsigned short>(tap / kS * kDilationH));
                 });
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  split_slots(p, m.slots, barriers, thread);
}
