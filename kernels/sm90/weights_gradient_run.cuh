// A row of the output's gradient that lies anywhere in its box, beside what its plane has before and behind it, read into
// registers as wgmma's A: what is not the row's is zero. Part of weights_gradient_runs.cu.
#pragma once
#include "kernels/sm90/weights_gradient_runs.h"

// A word of shared memory; zero where the pixel that it begins with is outside the row.
__device__ __forceinline__ unsigned load_within(unsigned address, int pixel, int row_pixels) {
  unsigned v;
  asm volatile("{.reg .pred p; setp.lo.u32 p, %2, %3; mov.b32 %0, 0; @p ld.shared.b32 %0, [%1];}"
               : "=&r"(v)
               : "r"(address), "r"(pixel), "r"(row_pixels)
               : "memory");
  return v;
}

// What one thread reads of it: of an instruction's 64 channels two, of its pixels (or pairs of 16-bit ones) two words.
class Line {
 public:
  // consumer: the column of taps, by whose reach the row is moved.
  __device__ __forceinline__ Line(int consumer, int row_pixels) : row_pixels_(row_pixels) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int reach = kLead + kConfig.pad_left - consumer * kConfig.dilation_w;  // from the box's beginning
    const int first = reach / kWordPixels * kWordPixels - kLead;
    odd_ = reach % kWordPixels != 0;
    turned_ = word_of_lane(kCrosses, lane, 0) >= 4;
#pragma unroll
    for (int load = 0; load < 2; ++load) {
      own_pixel_[load] = first + word_of_lane(kCrosses, lane, load) * kWordPixels;
      from_[load] = place_in_box(kConfig, kLate, warp * 16 + lane / 4, own_pixel_[load]);
    }
  }

  // The rows of a tile.
  __device__ __forceinline__ void begin_tile(int column) {
#pragma unroll
    for (int load = 0; load < 2; ++load) pixel_[load] = column + own_pixel_[load];
  }

  // line: where the row's box is, further on by its shift.
  __device__ __forceinline__ void load(unsigned (&a)[4], unsigned line, int step) const {
    load_words(a, line, step * 8);
    if (kElement == 2 && odd_) {
      unsigned next[4];
      load_words(next, line, step * 8 + 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = __funnelshift_r(a[i], next[i], 16);
    }
    if constexpr (kCrosses) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned first = a[i], second = a[i + 2];
        a[i] = turned_ ? second : first;
        a[i + 2] = turned_ ? first : second;
      }
    }
  }

 private:
  static constexpr int kWordPixels = 4 / kElement;
  static constexpr bool kCrosses = crosses(kConfig, kLate);

  // on: so many words further on in the row.
  __device__ __forceinline__ void load_words(unsigned (&v)[4], unsigned line, int on) const {
    constexpr int kChannels = 8 * kLinePitch;  // to the other channel
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i] = load_within(line + from_[i / 2] + on * 4 + i % 2 * kChannels, pixel_[i / 2] + on * kWordPixels, row_pixels_);
  }

  int row_pixels_, from_[2], own_pixel_[2], pixel_[2] = {};
  bool odd_, turned_;  // between two words; the second words come first
};
