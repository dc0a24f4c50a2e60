// From a consumer's sums to 32-bit NHWC, from registers: a warp holds eight neighbouring channels, a sector,
// of each of its pixels.
#pragma once
#include "kernels/sm90/store/channels.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned, unsigned, unsigned, int consumer, int thread) {
    const int lane = thread % 32, w = t.w + lane % 4 * 2;
    const long long row = static_cast<long long>(p.q) * p.y_pitch;
    for_channels(p, t, consumer, thread, [&](int mt, int half, int k, OfChannel bias) {
      const long long first =
          (static_cast<long long>(t.n) * p.p + t.h) * row + static_cast<long long>(w) * p.y_pitch + k;
      float* y = static_cast<float*>(p.y) + first;
      [[maybe_unused]] const float* residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
        if (t.h + i >= p.p) break;
#pragma unroll
        for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (w + nb * 8 + j >= p.q) continue;
            const int at = (nb * 8 + j) * p.y_pitch;
            y[at] = finish_value(sums[mt][nb][i * 4 + half * 2 + j], bias, kResidual ? residual[at] : 0.0f,
                                 p.slope);
          }
        }
        y += row;
        if constexpr (kResidual) residual += row;
      }
    });
  }
};
