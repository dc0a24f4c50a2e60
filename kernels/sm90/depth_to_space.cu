// The way back from blocks of pixels: images of kC x h x w, in NCHW or (kNchw 0) NHWC, out of pixels that hold kDown x
// kAcross of theirs in kTo channels, h_from x w_from of them, padded; what none of them holds is zero. kBytes an
// element. A block of threads makes kColumns of the result's columns, of a row of those pixels, in shared memory, and
// stores them by words of kWord bytes, which a line of the result is a multiple of.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
using Stored = Word<kWord>;
constexpr int kChunk = 16 / kBytes, kChunks = kTo / kChunk;
constexpr int kInWord = kWord / kBytes;
// Lines lie together in the result: all channels of a row, or a channel's row.
constexpr int kTogether = kNchw ? 1 : kC, kLines = kNchw ? kC * kDown : kDown;
constexpr int kRoom = 16384 / (kDown * kC * kBytes) / 16 * 16, kColumns = kRoom < 512 ? kRoom : 512;

extern "C" __global__ void __launch_bounds__(256)
    depth_to_space(const uint4* __restrict__ from, Stored* __restrict__ to, int images, int h, int w, int rows, int h_from,
                   int w_from, int pad_top, int pad_left) {
  __shared__ __align__(16) Element shared[kLines * kColumns * kTogether];
  let_next_kernel_begin();
  wait_for_previous_kernel();
  const int parts = (w + kColumns - 1) / kColumns;
  for (int item = blockIdx.x; item < images * rows * parts; item += gridDim.x) {
    const int line = item / parts, image = line / rows, row = line - image * rows;
    const int x0 = (item - line * parts) * kColumns, columns = w - x0 < kColumns ? w - x0 : kColumns;
    const int first = (x0 + pad_left) / kAcross, end = (x0 + columns - 1 + pad_left) / kAcross + 1;
    for (int column = first + threadIdx.x; column < end; column += 256) {
      union {
        Element e[kTo];
        uint4 all[kChunks];
      } v;
      const bool held = row < h_from && column < w_from;
      const long long pixel = (static_cast<long long>(image) * h_from + row) * w_from + column;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) v.all[chunk] = held ? __ldcs(from + pixel * kChunks + chunk) : uint4{};
#pragma unroll
      for (int at = 0; at < kDown * kAcross * kC; ++at) {
        const int c = at % kC, a = at / kC / kAcross, x = column * kAcross - pad_left + at / kC % kAcross - x0;
        const int place = kNchw ? (c * kDown + a) * kColumns + x : (a * kColumns + x) * kC + c;
        if (static_cast<unsigned>(x) < static_cast<unsigned>(columns)) shared[place] = v.e[at];
      }
    }
    __syncthreads();
    const int words = columns * kTogether / kInWord;
    for (int i = threadIdx.x; i < kLines * words; i += 256) {
      const int of = i / words, at = i - of * words, y = row * kDown - pad_top + of % kDown;
      if (static_cast<unsigned>(y) >= static_cast<unsigned>(h)) continue;
      const long long plane = static_cast<long long>(image) * (kNchw ? kC : 1) + of / kDown;
      to[((plane * h + y) * w + x0) * kTogether / kInWord + at] =
          reinterpret_cast<const Stored*>(shared + of * kColumns * kTogether)[at];
    }
    __syncthreads();
  }
}
