// Where a tile is whole images of NCHW whose planes have few bytes in common with 16: what a consumer's
// channels have of an image is contiguous. The sums are put side by side as they lie in the output, and
// copied as bytes.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned staging, unsigned, unsigned, int consumer,
                                                int thread) {
    const int warp = thread / 32, lane = thread % 32;
    const int plane = channel_pixels(p), k0 = my_first_channel(t, consumer);
    const int first_image = kFlat ? t.first / plane : t.n, images = kFlat ? p.step / plane : 1;
    const int image_count = p.pixels / plane;
    if (thread == 0) store_wait_read();
    named_sync(3 + consumer, 128);
    unsigned row[kMBlocks][2];  // where the channels of this thread's sums begin, of a tile's first image
    OfChannel bias[kMBlocks][2];
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int channel = mt * 64 + warp * 16 + half * 8 + lane / 4;
        row[mt][half] = staging + channel * plane * 2;
        bias[mt][half] = load_bias(p, k0 + channel);
      }
    }
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
        int image[2], in_image[2];
        unsigned at[2];
        bool inside[2];
        const int first = pixel_of(nb, i) + lane % 4 * 2;  // pixel of the tile
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if constexpr (kFlat) {
            image[j] = static_cast<int>(__umulhi(static_cast<unsigned>(first + j), p.per_image));
            in_image[j] = first + j - image[j] * plane;
            inside[j] = first + j < p.step;
          } else {
            const int h = (first + j) / kTileWidth, w = (first + j) % kTileWidth;
            image[j] = 0;
            in_image[j] = h * p.q + w;
            inside[j] = h < p.p && w < p.q;
          }
          at[j] = (in_image[j] + image[j] * kMyChannels * plane) * 2;
        }
#pragma unroll
        for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float residual[2] = {};
            if constexpr (kResidual) {
#pragma unroll
              for (int j = 0; j < 2; ++j) {
                const int k = k0 + mt * 64 + warp * 16 + half * 8 + lane / 4;
                const long long channels = static_cast<long long>(first_image + image[j]) * p.k + k;
                const bool there = inside[j] && k < p.k && first_image + image[j] < image_count;
                if (there) residual[j] = load_element(p.residual, channels * plane + in_image[j]);
              }
            }
            const unsigned pair = finish_pair(&sums[mt][nb][i * 4 + half * 2], bias[mt][half], bias[mt][half], residual[0],
                                              residual[1], p.slope);
            if constexpr (kConfig.even_images) {  // pairs lie in one row and aligned
              store_shared_32_if(row[mt][half] + at[0], pair, inside[0]);
            } else {
              store_shared_16_if(row[mt][half] + at[0], pair, inside[0]);
              store_shared_16_if(row[mt][half] + at[1], pair >> 16, inside[1]);
            }
          }
        }
      }
    }
    fence_async();
    named_sync(3 + consumer, 128);
    if (thread == 0) {
      const int channels = p.k - k0 < kMyChannels ? p.k - k0 : kMyChannels;
      unsigned short* const y = static_cast<unsigned short*>(p.y);
      for (int i = 0; i < images && first_image + i < image_count && channels > 0; ++i) {
        store_bytes(y + (static_cast<long long>(first_image + i) * p.k + k0) * plane,
                    staging + i * kMyChannels * plane * 2, channels * plane * 2);
      }
      store_commit();
    }
  }
};
