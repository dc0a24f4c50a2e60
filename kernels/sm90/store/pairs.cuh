// From a consumer's sums to 32-bit NCHW, from registers: the two pixels that a thread holds of eight make 8
// bytes, four threads a sector.
#pragma once
#include "kernels/sm90/store/area.cuh"
#include "kernels/sm90/store/channels.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned, unsigned, unsigned, int consumer, int thread) {
    constexpr int kShrink = kPools ? 2 : 1;
    const int lane = thread % 32, w = t.w + lane % 4 * 2, height = p.p / kShrink, width = p.q / kShrink;
    for_channels(p, t, consumer, thread, [&](int mt, int half, int k, OfChannel bias) {
      const long long first =
          ((static_cast<long long>(t.n) * p.k + k) * height + t.h / kShrink) * width + w / kShrink;
      float* const y = static_cast<float*>(p.y) + first;
      [[maybe_unused]] const float* const residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
      for (int i = 0; i < kN / 8; i += kShrink) {
        if (t.h / kShrink + i / kShrink >= height) break;
#pragma unroll
        for (int nb = 0; nb < kNBlocks; ++nb) {
          const float* s = &sums[mt][nb][i * 4 + half * 2];
          const int at = i / kShrink * width + nb * 8 / kShrink;
          if constexpr (kPools) {
            if (w / 2 + nb * 4 < width) y[at] = pool_sums(s, bias, p);
          } else {
            if (w + nb * 8 >= width) continue;
            put(s, bias, p, y + at, residual + at, w + nb * 8 + 1 < width);
          }
        }
      }
    });
  }

 private:
  // both: the second pixel is inside, too; where pairs are aligned it always is.
  static __device__ __forceinline__ void put(const float* s, OfChannel bias, const Params& p, float* y,
                                             const float* residual, bool both) {
    if constexpr (kStore > 1) {
      const float2 r = kResidual ? *reinterpret_cast<const float2*>(residual) : float2{0.0f, 0.0f};
      *reinterpret_cast<float2*>(y) =
          float2{finish_value(s[0], bias, r.x, p.slope), finish_value(s[1], bias, r.y, p.slope)};
    } else {
      y[0] = finish_value(s[0], bias, kResidual ? residual[0] : 0.0f, p.slope);
      if (both) y[1] = finish_value(s[1], bias, kResidual ? residual[1] : 0.0f, p.slope);
    }
  }
};
