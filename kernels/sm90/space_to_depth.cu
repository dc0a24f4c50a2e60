// For few channels and a stride: each block of F_DOWN x F_ACROSS pixels as the channels of one pixel, so that
// a filter with that stride becomes a smaller one with stride 1. Images of F_C x h x w, in NCHW or (F_NCHW 0)
// NHWC, padded, to pixels of F_TO channels, a multiple of 16 bytes, h_to x w_to of them; what lies outside,
// and new channels, are zero. Filters are turned the same way: K images of R x S. F_BYTES an element.
#include "kernels/sm90/ptx.cuh"

using Element = Word<F_BYTES>;
constexpr int kChunk = 16 / F_BYTES, kChunks = F_TO / kChunk;

extern "C" __global__ void __launch_bounds__(256)
    space_to_depth(const Element* __restrict__ from, Element* __restrict__ to, int pixels, int h, int w,
                   int h_to, int w_to, int pad_top, int pad_left) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < pixels; i += gridDim.x * 256) {
    const int line = i / w_to, image = line / h_to;
    const int x0 = (i - line * w_to) * F_ACROSS - pad_left, y0 = (line - image * h_to) * F_DOWN - pad_top;
    union {
      Element e[F_TO];
      uint4 all[kChunks];
    } v;
#pragma unroll
    for (int at = 0; at < F_TO; ++at) {
      const int c = at % F_C, a = at / F_C / F_ACROSS, x = x0 + at / F_C % F_ACROSS, y = y0 + a;
      const bool inside = a < F_DOWN && static_cast<unsigned>(y) < static_cast<unsigned>(h) &&
                          static_cast<unsigned>(x) < static_cast<unsigned>(w);
#if F_NCHW
      const long long place = ((static_cast<long long>(image) * F_C + c) * h + y) * w + x;
#else
      const long long place = ((static_cast<long long>(image) * h + y) * w + x) * F_C + c;
#endif
      v.e[at] = inside ? from[place] : Element(0);
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      reinterpret_cast<uint4*>(to)[static_cast<long long>(i) * kChunks + chunk] = v.all[chunk];
    }
  }
}
