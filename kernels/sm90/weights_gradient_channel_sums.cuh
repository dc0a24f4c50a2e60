// The sums of the output's gradient over each channel, the gradient of a bias, as a by-product of weights_gradient.cu: the
// warp that brings the operands adds up what has come, in fp32, while the consumers multiply it. Of the blocks that have
// the same output channels and pixels one does, that of the first input channels and taps; each share of the pixels makes
// a part, and sum_channels.cu adds up the parts.
//
// What lies beyond the gradient the copy engine brings as zeros.
#pragma once

#include "kernels/sm90/words.cuh"

class ChannelSums {
 public:
  // Of a tile, whose blocks of 64 channels begin at dy: a row of 128 bytes a pixel, swizzled. A lane has eight channels of
  // every fourth pixel.
  __device__ __forceinline__ void add(unsigned dy, int lane) {
    const int chunk = lane % 8, row = lane / 8;
#pragma unroll
    for (int block = 0; block < kConfig.k_blocks; ++block) {
#pragma unroll 4
      for (int pixel = row; pixel < kPixels; pixel += 4) {
        unsigned v[4];
        load_shared_128(dy + block * kGradientBytes + pixel * 128 + ((chunk ^ pixel % 8) << 4), v);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          of_[block][i * 2] += first(v[i]);
          of_[block][i * 2 + 1] += second(v[i]);
        }
      }
    }
  }

  // The share's part.
  __device__ __forceinline__ void store(const Params& p, const Work& work, int lane) {
#pragma unroll
    for (int block = 0; block < kConfig.k_blocks; ++block) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float sum = of_[block][i];
        sum += __shfl_xor_sync(~0u, sum, 8);
        sum += __shfl_xor_sync(~0u, sum, 16);
        const int k = work.k + block * kOutChannels + lane * 8 + i;
        if (lane < 8 && k < p.k) p.channel_sums[static_cast<long long>(work.share) * p.k + k] = sum;
      }
    }
  }

 private:
  static constexpr int kPixels = pixels(kConfig);

  static __device__ __forceinline__ float first(unsigned pair) {
    if constexpr (kConfig.element == Element::bf16) return __uint_as_float(pair << 16);
    return from_half(static_cast<unsigned short>(pair));
  }
  static __device__ __forceinline__ float second(unsigned pair) {
    if constexpr (kConfig.element == Element::bf16) return __uint_as_float(pair & 0xffff0000u);
    return from_half(static_cast<unsigned short>(pair >> 16));
  }
  static __device__ __forceinline__ float from_half(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }

  float of_[kConfig.k_blocks][8] = {};
};
