// Pools of 3x3 with stride 2 in the consumers' sums: the tiles overlap by a row and a column, which are
// computed twice, so that every window lies in one tile.
//
// Of a channel a thread holds in every row of 8 pixels the two from 2 (lane % 4) on: the two first columns of
// a window, whose third is the next lane's first.
#pragma once
#include "kernels/sm90/store/area.cuh"

__device__ __forceinline__ float larger(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));  // a NaN stays
  return most;
}

__device__ __forceinline__ float joined(float a, float b) {
  return kPooling == Pooling::max ? larger(a, b) : a + b;
}

// Of 3 neighbours from `first` on, how many there are among `count`.
__device__ __forceinline__ float inside(int first, int count) {
  const int from = first < 0 ? 0 : first, to = first + 3 < count ? first + 3 : count;
  return static_cast<float>(to - from);
}

// Calls store(channel within 64, pixel of the pooled tile, value) for what block mt of the thread's sums
// gives.
template <class Store>
__device__ __forceinline__ void pool_overlapping(Sums& sums, const Params& p, const Tile& t, int mt,
                                                 const OfChannel (&bias)[2], int thread, Store store) {
  const int warp = thread / 32, lane = thread % 32, quad = lane % 4;
  const float nothing =
      kPooling == Pooling::max ? -__int_as_float(0x7f800000) : 0.0f;  // what lies outside of the image
#pragma unroll
  for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      float& sum = sums[mt][nb][i];
      sum = finish_value(sum, bias[i >> 1 & 1], 0.0f, p.slope);
    }
  }
  if (t.h < 0 || t.w < 0 || t.h + kTileHeight > p.p || t.w + kTileWidth > p.q) {
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int h = t.h + i / 4, w = t.w + nb * 8 + quad * 2 + (i & 1);
        const bool in_image = static_cast<unsigned>(h) < static_cast<unsigned>(p.p) &&
                              static_cast<unsigned>(w) < static_cast<unsigned>(p.q);
        if (!in_image) sums[mt][nb][i] = nothing;
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kPoolHeight; ++row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto column = [&](int nb, int i) {
        const float* const s = &sums[mt][nb][row * 8 + half * 2 + i];
        return joined(joined(s[0], s[4]), s[8]);
      };
      float a = column(kNBlocks - 1, 0), right = nothing;
#pragma unroll
      for (int nb = kNBlocks - 1; nb >= 0; --nb) {
        const float next = __shfl_sync(0xffffffffu, quad == 0 ? right : a, (quad + 1) & 3, 4);
        float value = joined(joined(a, column(nb, 1)), next);
        if (kPooling == Pooling::average)
          value /= inside(t.h + row * 2, p.p) * inside(t.w + nb * 8 + quad * 2, p.q);
        const int x = nb * 4 + quad;
        if (x < kPoolWidth) store(warp * 16 + lane / 4 + half * 8, row * kPoolWidth + x, value);
        right = a;
        if (nb > 0) a = column(nb - 1, 0);
      }
    }
  }
}
