// From a consumer's sums to 16-bit NCHW: bias, residual, activation, pool, then through a staging area with a
// row a channel. The weights are on M: a row of sums is a channel, as the output wants it.
#pragma once
#include "kernels/sm90/store/area.cuh"
#include "kernels/sm90/store/matrices.cuh"
#include "kernels/sm90/store/overlapping_pool.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned staging, unsigned, unsigned, int consumer,
                                                int thread) {
    const int warp = thread / 32, lane = thread % 32;
    const int k0 = my_first_channel(t, consumer);
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
      const int channel = mt * 64 + warp * 16 + lane / 4, k = k0 + channel;
      const RowBias bias = row_bias(p, k);
      if constexpr (kWindow == 3) {
        pool_overlapping(sums, p, t, mt, bias.of, thread, [&](int in_block, int pixel, float value) {
          store_shared_16(staging + (mt * 64 + in_block) * kChannelPitch + pixel * 2, pack(value, 0.0f));
        });
      } else if constexpr (kWindow == 2) {
        put_pooled(sums, p, mt, channel, bias, staging, lane);
      } else {
        put(sums, p, t, mt, k, bias, staging, warp, lane);
      }
    }
    named_sync(3 + consumer, 128);
    store_rows(p, t, k0, staging, thread);
    named_sync(3 + consumer, 128);
  }

 private:
  static __device__ __forceinline__ void put_pooled(Sums& sums, const Params& p, int mt, int channel,
                                                    const RowBias& bias, unsigned staging, int lane) {
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float value = pool_sums(&sums[mt][nb][i * 4 + half * 2], bias.of[half], p);
          const int pixel = i / 2 * (4 * kNBlocks) + nb * 4 + lane % 4;
          store_shared_16(staging + (channel + half * 8) * kChannelPitch + pixel * 2, pack(value, 0.0f));
        }
      }
    }
  }

  static __device__ __forceinline__ void put(Sums& sums, const Params& p, const Tile& t, int mt, int k,
                                             const RowBias& bias, unsigned staging, int warp, int lane) {
    const int matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          float residual[2] = {};
          if constexpr (kResidual) {
            const int pixel = pixel_of(nb, i + further(i, m)) + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const long long at = locate_output(p, t, k + (m & 1) * 8, pixel + j, false);
              residual[j] = at >= 0 ? load_element(p.residual, at) : 0.0f;
            }
          }
          const OfChannel of = bias.of[m & 1];
          out[m] = finish_pair(sums_of(sums[mt][nb], i, m), of, of, residual[0], residual[1], p.slope);
        }
        const int pixel = pixel_of(nb, i + further(i, matrix));
        const int staged_channel = mt * 64 + warp * 16 + (matrix & 1) * 8 + row;
        store_matrices(staging + staged_channel * kChannelPitch + pixel * 2, out[0], out[1], out[2], out[3]);
#pragma unroll
        for (int m = 0; m < 4; ++m) keep_stored(sums_of(sums[mt][nb], i, m), out[m]);
      }
    }
  }
};
