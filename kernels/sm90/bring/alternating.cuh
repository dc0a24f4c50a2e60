// Whole images of NCHW, a tile each, whose planes are a multiple of 8 bytes, not of 16: 1x1 filters of
// stride 1. The copy engine begins at multiples of 16 bytes, as every second channel's planes do: it brings
// those, warps the others.
//
// So a block's channels lie in a slot the even ones first, and so do the weights' (even_channels_first in
// src/algorithms/sm90/copies.hpp). Each half is as fetch.cuh has them all: rows of 128 bytes, a channel's 64
// pixels.
#pragma once
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kPrepareWarps = 7;
constexpr int kBringRegisters = 72;

constexpr int kHalf = kKBlock / 2;  // channels
constexpr int kBoxes = (kTilePixels + 63) / 64;
static_assert(kKBlock == 64 && kTaps == 1, "boxes of 64 channels, one tap");

// All of a block's memory, which begins where swizzles do: nothing is left for aligning it (shared_bytes in
// src/algorithms/sm90/tiling.cpp), so that it ends where the cache that loads go through is larger.
extern __shared__ __align__(1024) unsigned char aligned_memory[];

// Both kinds of channels lie together.
__device__ __forceinline__ void prefetch_pixels(const TensorMap&, const Params& p) {
  const int image = p.p * p.q;
  ask_for_pixels(p, [&](const Tile& t, int block, int) {
    const long long channel = static_cast<long long>(t.n) * p.c + block * kKBlock;
    prefetch_bytes(static_cast<const unsigned short*>(p.x) + channel * image, kKBlock * image * 2);
  });
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x != 0) return;
  if (smem_address(aligned_memory) != m.slots) __trap();
  produce_taps(w_map, p, m, barriers, kBoxes * kHalf * kRow,
               [&](unsigned slot, unsigned full, const Tile& t, int block, int) {
#pragma unroll
                 for (int i = 0; i < kBoxes; ++i)
                   load_3d(slot + i * kPlanesBox, &x_map, full, i * 64, block * kHalf, t.n);
               });
}

// A thread has four neighbouring pixels, of every kDown-th of the odd channels.
constexpr int kTaken = 4, kAcross = kTilePixels / kTaken, kDown = 4, kLoads = kHalf / kDown;
static_assert(kAcross * kDown <= kPrepareWarps * 32, "a thread has pixels of its own");

__device__ __forceinline__ void arrive(Barriers& barriers, Ring<kSlots>& loaded) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[loaded.place]));
  loaded.advance();
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  const int column = thread % kAcross * kTaken, first = thread / kAcross, image = p.p * p.q;
  const bool idle = first >= kDown, inside = column < image;
  // Rows that lie two loads apart have the same place in the swizzle.
  unsigned to[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = kHalf + first + i * kDown;
    to[i] =
        m.slots + column / 64 * kPlanesBox + row * kRow + ((column / 8 % 8 ^ row % 8) << 4) + column % 8 * 2;
  }
  const long long hop = 2ll * kDown * image * 2;
  const Work work = work_of(p);
  // A slot is said to be there once the loads of all but the last so many are.
  constexpr int kAhead = kSlots - 1;
  Ring<kSlots> slot, loaded;
  int count = 0;
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const unsigned short* const from = static_cast<const unsigned short*>(p.x) +
                                       (static_cast<long long>(t.n) * p.c + 2 * first + 1) * image + column;
    for (int block = work.first; block < work.end; ++block, ++count) {
      barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
      if (!idle) {
        const void* at = from + static_cast<long long>(block) * kKBlock * image;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          load_async<kTaken * 2>(to[i % 2] + slot.place * kSlotStride + i / 2 * (2 * kDown * kRow), at,
                                 inside);
          // One address, not one a load: the compiler would keep them all in registers.
          asm volatile("add.s64 %0, %0, %1;" : "+l"(at) : "l"(hop));
        }
      }
      load_async_commit();
      slot.advance();
      if (count >= kAhead - 1) {
        load_async_wait<kAhead - 1>();
        arrive(barriers, loaded);
      }
    }
  }
  load_async_wait<0>();
  while (loaded.place != slot.place || loaded.parity != slot.parity) arrive(barriers, loaded);
}
