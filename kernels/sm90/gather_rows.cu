// For few channels: each output column's row of the filter's window, kTaps pixels of kC channels, as the
// channels of one pixel, so that an R x S filter becomes an R x 1 one. Images of kC x h x w, in NCHW or
// (kNchw 0) NHWC, to pixels of kTo channels, a multiple of 16 bytes; what lies outside, and new channels, are
// zero. Filters are turned the same way: K images of R x S with one column each. kBytes an element, kDilation
// between the taps.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
constexpr int kChunk = 16 / kBytes, kChunks = kTo / kChunk;

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
    gather_rows(const Element* __restrict__ from, Element* __restrict__ to, int lines, int h, int w,
                int columns, int stride, int pad, int group_lines) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  const unsigned a_line = columns * kChunks;
  // Rows in NHWC lie as they are wanted, but for what lies outside.
  const bool in_order =
      kBytes == 2 && !kNchw && kDilation == 1 && (reinterpret_cast<unsigned long long>(from) & 3) == 0;
  // A block takes so many of the images' lines at a time.
  for (long long begin = static_cast<long long>(blockIdx.x) * group_lines; begin < lines;
       begin += static_cast<long long>(gridDim.x) * group_lines) {
    const int here = lines - begin < group_lines ? static_cast<int>(lines - begin) : group_lines;
    for (unsigned i = threadIdx.x; i < here * a_line; i += 256) {
      const unsigned in_group = i / a_line, rest = i - in_group * a_line;
      const long long line = begin + in_group;
      const int column = rest / kChunks, chunk = rest - column * kChunks, first = column * stride - pad;
      Chunk<Element> v;
      const int from_here = first * kC + chunk * kChunk;  // in an NHWC line
      if (in_order && from_here >= 0 && from_here + kChunk < w * kC) {
        v.all = load_any(from, line * w * kC + from_here);
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
          if (chunk * kChunk + j >= kTaps * kC) v.e[j] = Element(0);
        }
      } else {
        const long long image = kNchw ? line / h : 0, plane = static_cast<long long>(h) * w;
        const Element* const source =
            from + (kNchw ? (image * kC * h + (line - image * h)) * w : line * w * kC);
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
          const int at = chunk * kChunk + j, tap = at / kC, c = at - tap * kC, x = first + tap * kDilation;
          const bool inside = tap < kTaps && x >= 0 && x < w;
          if constexpr (kNchw) {
            v.e[j] = inside ? source[c * plane + x] : Element(0);
          } else {
            v.e[j] = inside ? source[x * kC + c] : Element(0);
          }
        }
      }
      reinterpret_cast<uint4*>(to)[begin * a_line + i] = v.all;
    }
  }
}
