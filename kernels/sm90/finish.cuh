// What every epilogue does with a sum.
#pragma once
#include "kernels/sm90/constants.cuh"
#include "kernels/sm90/element.cuh"

// Of an output channel. That of phases may have several pixels side by side as channels, each with the whole
// bias.
__device__ __forceinline__ float load_bias(const Params& p, int k) {
  if (!kBias || k >= p.k) return 0.0f;
  return bias_at(p.bias, kPhased ? k % p.bias_k : k);
}

// Asks for the bias of a tile from channel k on, which nothing else would do before a sum wants it: by then it is near.
__device__ __forceinline__ void touch_bias(const Params& p, int k, int thread) {
  constexpr int kSize = kF32Bias ? 4 : kElement, kSector = 32 / kSize;
  const int mine = thread * kSector;
  if (mine >= kTileChannels || k + mine >= p.k) return;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(static_cast<const unsigned char*>(p.bias) + (k + mine) * kSize));
}

__device__ __forceinline__ float finish_value(float sum, float bias, float residual, float slope) {
  if constexpr (kGates) return residual <= 0.0f ? 0.0f : sum;  // a NaN lets it pass
  float x = sum;
  if constexpr (kBias) x += bias;
  if constexpr (kResidual && !kResidualAfter) x += residual;
  x = activate(x, slope);
  return kResidual && kResidualAfter ? x + residual : x;
}

// Where results' channels are added up (channel_sums.cuh): of two sums the first becomes the results as they are stored,
// which half as many registers hold.
__device__ __forceinline__ void keep_stored(float* sums, unsigned pair) {
  if constexpr (kStats) sums[0] = __uint_as_float(pair);
}

// A pool's window of 2 x 2.
__device__ __forceinline__ float pooled(float a, float b, float c, float d) {
  if constexpr (kPooling == Pooling::max) {
    // A NaN stays.
    float m = a;
    m = b > m || b != b ? b : m;
    m = m != m ? m : (c > m || c != c ? c : m);
    m = m != m ? m : (d > m || d != d ? d : m);
    return m;
  } else {
    return (a + b + c + d) * 0.25f;
  }
}
