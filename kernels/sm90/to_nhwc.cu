// Images of c planes (NCHW) to pixels of c_to channels (NHWC), c_to a multiple of 16 bytes; new channels are zero.
// Also for filters: K "images" of R x S pixels. F_BYTES an element, F_V elements a load (they divide h w).
// A block turns 64 pixels by 128 bytes of channels through shared memory.
#include "kernels/sm90/ptx.cuh"

#if F_BYTES == 2
using Element = unsigned short;
#else
using Element = unsigned;
#endif
constexpr int kPixels = 64, kChannels = 128 / F_BYTES, kPitch = 33;  // words a pixel: one more than 128 bytes

extern "C" __global__ void __launch_bounds__(256)
    to_nhwc(const Element* __restrict__ from, Element* __restrict__ to, int images, int c, int c_to, int pixels) {
  __shared__ unsigned tile[kPixels * kPitch];
  Element* const elements = reinterpret_cast<Element*>(tile);
  let_next_kernel_begin();
  wait_for_previous_kernel();
  const int pixel_tiles = (pixels + kPixels - 1) / kPixels, channel_tiles = (c_to + kChannels - 1) / kChannels;
  const int channel_tile = blockIdx.x % channel_tiles, rest = blockIdx.x / channel_tiles;
  const int p0 = rest % pixel_tiles * kPixels, n = rest / pixel_tiles, c0 = channel_tile * kChannels;
  using Load = Word<F_V * F_BYTES>;
  constexpr int kLoads = kPixels / F_V;  // a channel
#pragma unroll 4
  for (int i = threadIdx.x; i < kLoads * kChannels; i += 256) {
    const int channel = i / kLoads, pixel = i % kLoads * F_V;
    union {
      Load load;
      Element e[F_V];
    } v = {};
    if (c0 + channel < c && p0 + pixel < pixels) {
      v.load = *reinterpret_cast<const Load*>(from + (static_cast<long long>(n) * c + c0 + channel) * pixels + p0 +
                                              pixel);
    }
#pragma unroll
    for (int j = 0; j < F_V; ++j) elements[(pixel + j) * (kPitch * 4 / F_BYTES) + channel] = v.e[j];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kPixels * 8; i += 256) {
    const int chunk = i % 8, pixel = i / 8;
    if (p0 + pixel < pixels && c0 + chunk * (16 / F_BYTES) < c_to) {
      const unsigned* const word = tile + pixel * kPitch + chunk * 4;
      *reinterpret_cast<uint4*>(to + (static_cast<long long>(n) * pixels + p0 + pixel) * c_to + c0 +
                                chunk * (16 / F_BYTES)) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}
