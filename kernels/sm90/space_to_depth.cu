// For few channels and a stride: each block of kDown x kAcross pixels as the channels of one pixel, so that
// a filter with that stride becomes a smaller one with stride 1. Images of kC x h x w, in NCHW or (kNchw 0)
// NHWC, padded, to pixels of kTo channels, a multiple of 16 bytes, h_to x w_to of them; what lies outside,
// and new channels, are zero. Filters are turned the same way: K images of R x S. kVolumes: in NCHW so many
// planes of a channel, which are images, are neighbours. kBytes an element.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
constexpr int kChunk = 16 / kBytes, kChunks = kTo / kChunk;

extern "C" __global__ void __launch_bounds__(256)
    space_to_depth(const Element* __restrict__ from, Element* __restrict__ to, int pixels, int h, int w,
                   int h_to, int w_to, int pad_top, int pad_left, int planes) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < pixels; i += gridDim.x * 256) {
    const int line = i / w_to, image = line / h_to;
    const int x0 = (i - line * w_to) * kAcross - pad_left, y0 = (line - image * h_to) * kDown - pad_top;
    union {
      Element e[kTo];
      uint4 all[kChunks];
    } v;
#pragma unroll
    for (int at = 0; at < kTo; ++at) {
      const int c = at % kC, a = at / kC / kAcross, x = x0 + at / kC % kAcross, y = y0 + a;
      const bool inside = a < kDown && static_cast<unsigned>(y) < static_cast<unsigned>(h) &&
                          static_cast<unsigned>(x) < static_cast<unsigned>(w);
      const int volume = kVolumes ? image / planes : image;
      const long long channel = static_cast<long long>(volume) * kC + c;
      const long long plane = kVolumes ? channel * planes + (image - volume * planes) : channel;
      const long long place = kNchw ? (plane * h + y) * w + x
                                    : ((static_cast<long long>(image) * h + y) * w + x) * kC + c;
      v.e[at] = inside ? from[place] : Element(0);
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      reinterpret_cast<uint4*>(to)[static_cast<long long>(i) * kChunks + chunk] = v.all[chunk];
    }
  }
}
