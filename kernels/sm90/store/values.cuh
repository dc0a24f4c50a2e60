// From a consumer's sums to 32-bit NHWC or NCHW: bias, residual, activation, pool, then a value at a time
// (there are no matrix stores of 32 bits) through a staging area, as the copy engine stores it or with a row
// a channel.
#pragma once
#include "kernels/sm90/store/area.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap& y_map, const Params& p,
                                                const Tile& t, unsigned staging, unsigned, unsigned,
                                                int consumer, int thread) {
    const int warp = thread / 32, lane = thread % 32;
    const int k0 = my_first_channel(t, consumer), pixel0 = my_first_pixel(consumer);
    if constexpr (!kNchw) {
      if (thread == 0) store_wait_read();
      named_sync(3 + consumer, 128);
    }
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = mt * 64 + warp * 16 + half * 8 + lane / 4;
        const OfChannel row_bias = kPixelsOnM ? OfChannel(0.0f) : load_bias(p, k0 + m);
#pragma unroll
        for (int nb = 0; nb < kNBlocks; ++nb) {
          if constexpr (kPools) {
#pragma unroll
            for (int i = 0; i < kN / 8; i += 2) {
              const float value = pool_sums(&sums[mt][nb][i * 4 + half * 2], row_bias, p);
              store_shared_32(staging + staged(m, i / 2 * (4 * kNBlocks) + nb * 4 + lane % 4),
                              __float_as_uint(value));
            }
          } else {
#pragma unroll
            for (int i = 0; i < kN / 8; ++i) {
#pragma unroll
              for (int j = 0; j < 2; ++j) {
                const int column = lane % 4 * 2 + j;
                const int channel = kPixelsOnM ? nb * kN + i * 8 + column : m;
                const int pixel = kPixelsOnM ? m : pixel_of(nb, i) + column;
                OfChannel bias = row_bias;
                if constexpr (kPixelsOnM)
                  bias = load_bias(p, k0 + channel);
                float residual = 0.0f;
                if constexpr (kResidual) {
                  const long long at = locate_output(p, t, k0 + channel, pixel0 + pixel, false);
                  if (at >= 0) residual = load_element(p.residual, at);
                }
                const float value = finish_value(sums[mt][nb][i * 4 + half * 2 + j], bias, residual, p.slope);
                store_shared_32(staging + staged(channel, pixel), __float_as_uint(value));
              }
            }
          }
        }
      }
    }
    store(y_map, p, t, k0, staging, consumer, thread);
  }

 private:
  // Where in the staging area a value lies: by the copy engine's swizzle, or a row a channel.
  static __device__ __forceinline__ unsigned staged(int channel, int pixel) {
    if constexpr (kNchw) {
      return channel * kChannelPitch + pixel * 4;
    } else {
      const int in_unit = channel % kUnit;
      return channel / kUnit * kUnitBytes + pixel * 128 + (((in_unit / 4) ^ (pixel & 7)) << 4) +
             in_unit % 4 * 4;
    }
  }

  static __device__ __forceinline__ void store(const TensorMap& y_map, const Params& p, const Tile& t, int k0,
                                               unsigned staging, int consumer, int thread) {
    if constexpr (kNchw) {
      named_sync(3 + consumer, 128);
      store_rows(p, t, k0, staging, thread);
      named_sync(3 + consumer, 128);
    } else {
      fence_async();
      named_sync(3 + consumer, 128);
      if (thread == 0) {
        store_tile(y_map, t, staging, consumer);
        store_commit();
      }
    }
  }
};
