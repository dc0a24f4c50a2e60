// The copy engine gathers the pixels of a tile for one tap at a time: any stride.
#pragma once
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/bring/ready.cuh"

__device__ __forceinline__ void prefetch_pixels(const TensorMap& x_map, const Params& p) {
  ask_for_pixels(p, [&](const Tile& t, int block, int tap) {
    prefetch_im2col(&x_map, t.c + block * kKBlock, t.w * p.stride_w - p.pad_left, t.h * p.stride_h - p.pad_top, t.n,
                    static_cast<unsigned short>(tap % kS * kDilationW), static_cast<unsigned short>(tap / kS * kDilationH));
  });
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x == 0) {
    produce_taps(w_map, p, m, barriers, kSlotBytes,
                 [&](unsigned slot, unsigned full, const Tile& t, int block, int tap) {
                   const auto right = static_cast<unsigned short>(tap % kS * kDilationW),
                              down = static_cast<unsigned short>(tap / kS * kDilationH);
                   const int w = t.w * p.stride_w - p.pad_left, h = t.h * p.stride_h - p.pad_top;
                   if constexpr (kVolume) {
                     const Block of = block_at(p, block);
                     load_im2col(slot, &x_map, full, t.c + of.channels * kKBlock, w, h, input_plane(p.depth, t.z, 0, 1),
                                 t.volume, right, down, static_cast<unsigned short>(of.depth * kDilationD));
                   } else {
                     load_im2col(slot, &x_map, full, t.c + block * kKBlock, w, h, t.n, right, down);
                   }
                 });
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  make_ready<GatheredPixels>(p, m, barriers, thread);
}
