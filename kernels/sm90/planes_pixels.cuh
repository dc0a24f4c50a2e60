// 32-bit planes in shared memory as wgmma's first operand, from registers. Part of planes_gemm.cu.
#pragma once
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/planes_pixels.h"
#include "kernels/sm90/words.cuh"

constexpr int kBox = planes::kBox, kBoxBytes = planes::kBoxBytes;
constexpr int kTogether = 2 * kMBlocks;  // pixels of a thread
static_assert(kKBlock == kBox && kMBlocks <= 2);

// Boxes over all images: those of a plane, whose last one may reach beyond it, then the next one's.
struct Place {
  int n, pixel;  // image, pixel of its plane
};
__device__ __forceinline__ Place place_of(const Params& p, int first) {
  const int boxes = (p.p * p.q + kBox - 1) / kBox, n = first / kBox / boxes;
  return {n, first - n * boxes * kBox};
}

// Where a thread reads: of 32 bytes of channels the first and the second 16.
struct Pixels {
  unsigned low, high;
  __device__ __forceinline__ explicit Pixels(int thread) {
    const int pixel = planes::first_pixel(kMBlocks, thread), channel = thread % 4;
    low = planes::place_of(pixel, channel), high = planes::place_of(pixel, channel + 4);
  }
};

template <int kCount>
__device__ __forceinline__ void load_pixels(unsigned from, unsigned (&v)[kCount]) {
  if constexpr (kCount == 4) {
    load_shared_128(from, v);
  } else {
    const Word<8> two = load_word<8>(from);
    v[0] = two.x, v[1] = two.y;
  }
}

// What it reads of 32 bytes of channels.
struct Fragment {
  unsigned v[2][kTogether];
  __device__ __forceinline__ void load(const Pixels& at, unsigned boxes, int step) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      load_pixels(boxes + (half == 0 ? at.low : at.high) + step * 8 * 128, v[half]);
  }
};
// The first operand of a block of 64 pixels.
struct First {
  unsigned a[4];
  __device__ __forceinline__ First(const Fragment& f, int block)
      : a{f.v[0][block * 2], f.v[0][block * 2 + 1], f.v[1][block * 2], f.v[1][block * 2 + 1]} {}
};
