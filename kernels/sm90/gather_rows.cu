// For few channels: each output column's row of the filter's window, F_TAPS pixels of F_C channels, as the channels of
// one pixel, so that an R x S filter becomes an R x 1 one. Images of F_C x h x w, in NCHW or (F_NCHW 0) NHWC, to pixels
// of F_TO channels, a multiple of 16 bytes; what lies outside, and new channels, are zero. Filters are turned the same
// way: K images of R x S with one column each. F_BYTES an element, F_DILATION between the taps.
#include "kernels/sm90/ptx.cuh"

using Element = Word<F_BYTES>;
constexpr int kChunk = 16 / F_BYTES, kChunks = F_TO / kChunk;

// Eight elements side by side of 2 bytes, from an element on that a word may begin with or not.
__device__ __forceinline__ uint4 load_any(const Element* from, long long first) {
  const unsigned* const words = reinterpret_cast<const unsigned*>(from) + (first >> 1);
  unsigned v[5];
#pragma unroll
  for (int i = 0; i < 5; ++i) v[i] = words[i];
  const unsigned shift = (first & 1) * 16;
  return uint4{__funnelshift_r(v[0], v[1], shift), __funnelshift_r(v[1], v[2], shift),
               __funnelshift_r(v[2], v[3], shift), __funnelshift_r(v[3], v[4], shift)};
}

extern "C" __global__ void __launch_bounds__(256)
    gather_rows(const Element* __restrict__ from, Element* __restrict__ to, int lines, int h, int w, int columns,
                int stride, int pad, int group_lines) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  const unsigned a_line = columns * kChunks;
  // Rows in NHWC lie as they are wanted, but for what lies outside.
  const bool in_order =
      F_BYTES == 2 && !F_NCHW && F_DILATION == 1 && (reinterpret_cast<unsigned long long>(from) & 3) == 0;
  // A block takes so many of the images' lines at a time.
  for (long long begin = static_cast<long long>(blockIdx.x) * group_lines; begin < lines;
       begin += static_cast<long long>(gridDim.x) * group_lines) {
    const int here = lines - begin < group_lines ? static_cast<int>(lines - begin) : group_lines;
    for (unsigned i = threadIdx.x; i < here * a_line; i += 256) {
      const unsigned in_group = i / a_line, rest = i - in_group * a_line;
      const long long line = begin + in_group;
      const int column = rest / kChunks, chunk = rest - column * kChunks, first = column * stride - pad;
      union {
        Element e[kChunk];
        unsigned words[4];
        uint4 all;
      } v;
      const int from_here = first * F_C + chunk * kChunk;  // in an NHWC line
      if (in_order && from_here >= 0 && from_here + kChunk < w * F_C) {
        v.all = load_any(from, line * w * F_C + from_here);
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
          if (chunk * kChunk + j >= F_TAPS * F_C) v.e[j] = Element(0);
        }
      } else {
#if F_NCHW
        const long long image = line / h, plane = static_cast<long long>(h) * w;
        const Element* const source = from + (image * F_C * h + (line - image * h)) * w;
#else
        const Element* const source = from + line * w * F_C;
#endif
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
          const int at = chunk * kChunk + j, tap = at / F_C, c = at - tap * F_C, x = first + tap * F_DILATION;
          const bool inside = tap < F_TAPS && x >= 0 && x < w;
#if F_NCHW
          v.e[j] = inside ? source[c * plane + x] : Element(0);
#else
          v.e[j] = inside ? source[x * F_C + c] : Element(0);
#endif
        }
      }
      reinterpret_cast<uint4*>(to)[begin * a_line + i] = v.all;
    }
  }
}
