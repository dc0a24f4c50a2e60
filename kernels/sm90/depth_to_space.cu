// The way back from blocks of pixels: images of kC x h x w, in NCHW or (kNchw 0) NHWC, out of pixels that hold kDown x
// kAcross of theirs in kTo channels, h_from x w_from of them, padded; what none of them holds is zero. kBytes an
// element. A thread has one block of pixels, so what a warp writes of a row lies together.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
constexpr int kChunk = 16 / kBytes, kChunks = kTo / kChunk;

extern "C" __global__ void __launch_bounds__(256)
    depth_to_space(const Element* __restrict__ from, Element* __restrict__ to, int blocks, int h, int w, int rows,
                   int columns, int h_from, int w_from, int pad_top, int pad_left) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < blocks; i += gridDim.x * 256) {
    const int line = i / columns, image = line / rows, row = line - image * rows, column = i - line * columns;
    union {
      Element e[kTo];
      uint4 all[kChunks];
    } v;
    const bool held = row < h_from && column < w_from;
    const long long pixel = (static_cast<long long>(image) * h_from + row) * w_from + column;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
      v.all[chunk] = held ? __ldcs(reinterpret_cast<const uint4*>(from) + pixel * kChunks + chunk) : uint4{};
    const int x0 = column * kAcross - pad_left, y0 = row * kDown - pad_top;
#pragma unroll
    for (int at = 0; at < kDown * kAcross * kC; ++at) {
      const int c = at % kC, x = x0 + at / kC % kAcross, y = y0 + at / kC / kAcross;
      if (static_cast<unsigned>(y) >= static_cast<unsigned>(h) || static_cast<unsigned>(x) >= static_cast<unsigned>(w))
        continue;
      const long long channel = static_cast<long long>(image) * kC + c;
      const long long place =
          kNchw ? (channel * h + y) * w + x : ((static_cast<long long>(image) * h + y) * w + x) * kC + c;
      to[place] = v.e[at];
    }
  }
}
