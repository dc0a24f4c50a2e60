// A row of the output's gradient in shared memory, read into registers as wgmma's A. Part of weights_gradient_lines.cu.
#pragma once
#include "kernels/sm90/words.cuh"

// What one thread reads of it: of an instruction's 64 channels two, of its pixels (or pairs of 16-bit ones) two.
class Line {
 public:
  // consumer: the column of taps, by whose reach the row is shifted.
  __device__ __forceinline__ explicit Line(int consumer) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int pixel = kLead + kConfig.pad_left - consumer * kConfig.dilation_w;
    if constexpr (kTurns) {
      // Pixels of 32 channels, swizzled. An instruction takes of eight pixels the even ones, then the odd ones: so
      // a warp reads every bank once.
      const int first = warp % 2 * 16 + lane / 4;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int at = pixel + lane % 4 * 2 + odd;
        from_[odd] = warp / 2 * kHalfLine + at * 128 + (first / 4 ^ at % 8) * 16 + first % 4 * 4;
      }
      shift_ = 0;
    } else {
      from_[0] = (warp * 16 + lane / 4) * kLinePitch + pixel * kElement / 4 * 4 + lane % 4 * 4;
      shift_ = pixel * kElement % 4 * 8;
    }
  }

  __device__ __forceinline__ void load(unsigned (&a)[4], unsigned line, int step) const {
    if constexpr (kTurns) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Eight channels on are two chunks of 16 bytes on.
        const unsigned chunks = i % 2 == 0 ? 0 : 32;
        load_shared<4>(line + ((from_[i / 2] + step * 8 * 128) ^ chunks), a[i]);
      }
    } else {
      constexpr int kChannels = 8 * kLinePitch, kPixels = 16;  // to the other channel, to the other pixels
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned from = line + from_[0] + step * 32 + i % 2 * kChannels + i / 2 * kPixels;
        load_shared<4>(from, a[i]);
        if (kElement == 2 && shift_ != 0) {  // between two words
          unsigned next;
          load_shared<4>(from + 4, next);
          a[i] = __funnelshift_r(a[i], next, 16);
        }
      }
    }
  }

 private:
  unsigned from_[2];
  int shift_;  // bits
};
