// What the kernels of few input channels share: what they know when they are compiled, a block's share of the
// work, and how a patch of the input comes.
#pragma once
#pragma nv_diag_suppress 177  // no kernel needs every constant

#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/elected.cuh"
#include "kernels/sm90/few_channels_config.h"
#include "kernels/sm90/pair.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/words.cuh"

using namespace faltung::few_channels_sm90;

// The host's words for it.
__device__ constexpr Config config() {
  Config c;
  F_CONFIG
  return c;
}
constexpr Config kConfig = config();
constexpr int kStages = kConfig.stages, kOctets = octets(kConfig);
constexpr int kPixel = pixel_pitch(kConfig) * 2, kRow = row_bytes(kConfig);  // bytes

struct Barriers {
  unsigned long long full[kStages], empty[kStages];
};
__device__ __forceinline__ void init_barriers(Barriers& barriers, int readers) {
  for (int i = 0; i < kStages; ++i) {
    barrier_init(smem_address(&barriers.full[i]), 1);
    barrier_init(smem_address(&barriers.empty[i]), readers);
  }
  barrier_init_fence();
}

// Some output channels of every so many tiles.
struct Work {
  int channel, first, step;
};
__device__ __forceinline__ Work divide_work(const Params& p, int channels) {
  const int block = static_cast<int>(blockIdx.x);
  return {block % p.k_tiles * channels, block / p.k_tiles, static_cast<int>(gridDim.x) / p.k_tiles};
}

struct Tile {
  int n, h, w;  // its first result
};
__device__ __forceinline__ Tile tile_of(const Params& p, int tile) {
  const int row = tile / p.tiles_w;
  return {row / p.tiles_h, row % p.tiles_h * kConfig.height, tile % p.tiles_w * kConfig.width};
}

// By one thread.
__device__ __forceinline__ void bring_patch(const TensorMap& x_map, const Params& p, const Tile& tile,
                                            unsigned to, unsigned full) {
  const int h = tile.h * kConfig.stride_h - p.pad_top, w = tile.w * kConfig.stride_w - p.pad_left;
  if constexpr (kConfig.nchw) {
    load_4d(to, &x_map, full, w - lead(kConfig), h, 0, tile.n);
  } else {
    load_3d(to, &x_map, full, w * kConfig.c - lead(kConfig), h, tile.n);
  }
}

// An operand of wgmma whose rows are swizzled by 128 bytes, 1024 from eight of them to the next eight.
__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  constexpr unsigned kHigh = 1024 >> 4 | 1u << 30;
  return static_cast<unsigned long long>(kHigh) << 32 | (address >> 4 & 0x3fff);
}
template <int kCount>
__device__ __forceinline__ void pin(
    float (&sums)[kCount]) {  // what was written is read after here, not before
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}
