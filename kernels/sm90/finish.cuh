// What every epilogue does with a sum.
#pragma once
#include "kernels/sm90/constants.cuh"
#include "kernels/sm90/element.cuh"

// What the results of an output channel have of their own: a bias, or that and prelu's slope.
struct BiasAndSlope {
  float bias, slope;
  __device__ __forceinline__ BiasAndSlope(float bias = 0.0f, float slope = 0.0f) : bias(bias), slope(slope) {}
};
template <bool kOwnSlope>
struct OfChannelWith {
  using Type = float;
  static __device__ __forceinline__ Type make(float bias, const float*, int) { return bias; }
};
template <>
struct OfChannelWith<true> {
  using Type = BiasAndSlope;
  static __device__ __forceinline__ Type make(float bias, const float* slopes, int k) { return {bias, slopes[k]}; }
};
using OfChannel = OfChannelWith<kSlopes>::Type;

__device__ __forceinline__ float bias_of(float bias) { return bias; }
__device__ __forceinline__ float bias_of(const BiasAndSlope& of) { return of.bias; }
__device__ __forceinline__ float slope_of(float, float slope) { return slope; }
__device__ __forceinline__ float slope_of(const BiasAndSlope& of, float) { return of.slope; }

// Of output channel k.
__device__ __forceinline__ OfChannel of_channel(const void* bias, const float* slopes, int k) {
  return OfChannelWith<kSlopes>::make(kBias ? bias_at(bias, k) : 0.0f, slopes, k);
}

// Of one that there may not be. Those of phases may have several pixels side by side as channels, each with
// the whole bias.
__device__ __forceinline__ OfChannel load_bias(const Params& p, int k) {
  if (!kOfChannel || k >= p.k) return 0.0f;
  return of_channel(p.bias, p.slopes, kPhased ? k % p.bias_k : k);
}

// Asks for the bias of a tile from channel k on, which nothing else would do before a sum wants it: by then it is near.
__device__ __forceinline__ void touch_bias(const Params& p, int k, int thread) {
  constexpr int kSize = kF32Bias ? 4 : kElement, kSector = 32 / kSize;
  const int mine = thread * kSector;
  if (mine >= kTileChannels || k + mine >= p.k) return;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(static_cast<const unsigned char*>(p.bias) + (k + mine) * kSize));
}

// What is activated.
__device__ __forceinline__ float biased(float sum, OfChannel of, float residual) {
  if constexpr (kBias) sum += bias_of(of);
  return kResidual && !kResidualAfter ? sum + residual : sum;
}

// slope: of all channels, where each has not its own.
__device__ __forceinline__ float finish_value(float sum, OfChannel of, float residual, float slope) {
  if constexpr (kGates) return residual <= 0.0f ? 0.0f : sum;  // a NaN lets it pass
  const float x = activate(biased(sum, of, residual), slope_of(of, slope));
  return kResidual && kResidualAfter ? x + residual : x;
}

// Of two sums a pair of 16-bit elements. A ReLU that comes last is done as they are rounded, by the same instruction.
__device__ __forceinline__ unsigned finish_pair(const float* sums, OfChannel first_of, OfChannel second_of,
                                                float first_residual, float second_residual, float slope) {
  if constexpr (kConfig.relu && !kGates && !(kResidual && kResidualAfter)) {
    return pack_pair<kBf16, true>(biased(sums[0], first_of, first_residual),
                                  biased(sums[1], second_of, second_residual));
  } else {
    return pack(finish_value(sums[0], first_of, first_residual, slope),
                finish_value(sums[1], second_of, second_residual, slope));
  }
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
