// What a block's first tile reads of x, as much as its slots hold, into the cache while the kernel before still runs: by one
// thread, before it waits for that kernel. Blocks that have the same pixels share them out.
#pragma once
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/prefetch.cuh"

// ask(tile, block, tap)
template <class Ask>
__device__ __forceinline__ void ask_for_pixels(const Params& p, Ask ask) {
  if constexpr (kSplit > 1 || kVolume || kPhased) return;
  const int tile = static_cast<int>(blockIdx.x);
  if (p.asks_ahead == 0 || tile >= p.tiles) return;
  constexpr int kFills = kFlat ? kTaps : 1;  // slots of a block of channels
  const int fills = p.c_blocks * kFills;
  const Tile t = locate(p, tile);
#pragma unroll 1
  for (int i = tile % p.k_tiles; i < fills && i < kSlots; i += p.k_tiles) ask(t, i / kFills, i % kFills);
}
