// For few channels: each output column's row of the filter's window, S pixels of F_C channels, as the channels of one
// pixel, so that an R x S filter becomes an R x 1 one. Images of F_C x h x w, in NCHW or (F_NCHW 0) NHWC, to pixels
// of c_to, a multiple of 16 bytes; what lies outside, and new channels, are zero. Filters are turned the same way:
// K images of R x S with one column each. F_BYTES an element.
#include "kernels/sm90/ptx.cuh"

#if F_BYTES == 2
using Element = unsigned short;
#else
using Element = unsigned;
#endif

extern "C" __global__ void __launch_bounds__(256)
    gather_rows(const Element* __restrict__ from, Element* __restrict__ to, int images, int h, int w, int columns,
                int taps, int stride, int pad, int dilation, int c_to) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  constexpr int kChunk = 16 / F_BYTES;
  const int chunks = c_to / kChunk;
  const long long total = static_cast<long long>(images) * h * columns * chunks,
                  step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
    const long long pixel = i / chunks;
    const int chunk = static_cast<int>(i - pixel * chunks);
    const long long line = pixel / columns;  // of all images
    const int column = static_cast<int>(pixel - line * columns), first = column * stride - pad;
#if F_NCHW
    const long long image = line / h;
    const Element* const source = from + (image * F_C * h + (line - image * h)) * w;
    const long long plane = static_cast<long long>(h) * w;
#else
    const Element* const source = from + line * w * F_C;
#endif
    union {
      Element e[kChunk];
      uint4 all;
    } v;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      const int at = chunk * kChunk + j, tap = at / F_C, c = at - tap * F_C, x = first + tap * dilation;
      const bool inside = tap < taps && x >= 0 && x < w;
#if F_NCHW
      v.e[j] = inside ? source[c * plane + x] : Element(0);
#else
      v.e[j] = inside ? source[x * F_C + c] : Element(0);
#endif
    }
    reinterpret_cast<uint4*>(to)[i] = v.all;
  }
}
