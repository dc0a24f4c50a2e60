// From a consumer's sums to NHWC of any K, an element at a time; the pixels are on M.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned, unsigned, unsigned, int consumer, int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = my_first_pixel(consumer) + mt * 64 + warp * 16 + half * 8 + lane / 4;
        bool inside;
        long long pixel;
        if constexpr (kFlat) {
          inside = t.first + row < p.pixels;
          pixel = t.first + row;
        } else {
          const int h = t.h + row / 8, w = t.w + row % 8;
          inside = h < p.p && w < p.q;
          pixel = (static_cast<long long>(t.n) * p.p + h) * p.q + w;
        }
#pragma unroll
        for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
          for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
              const int k = t.k + nb * kN + i * 8 + lane % 4 * 2 + pair;
              if (inside && k < p.k) {
                const OfChannel bias = of_channel(p.bias, p.slopes, k);
                const float residual = kResidual ? load_element(p.residual, pixel * p.y_pitch + k) : 0.0f;
                store_element(p.y, pixel * p.y_pitch + k,
                              finish_value(sums[mt][nb][i * 4 + half * 2 + pair], bias, residual, p.slope));
              }
            }
          }
        }
      }
    }
  }
};
