// Pixels of c channels (or, with kNchw, c planes of pixels) copied to pixels of c_to, a multiple of 16 bytes;
// new channels are zero. For tensors whose pixels are no multiple of 16 bytes, which the bulk copy engine
// cannot address, and for few channels. kBytes an element.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;

extern "C" __global__ void __launch_bounds__(256)
    pad_channels(const Element* __restrict__ from, Element* __restrict__ to, int images, int c, int c_to,
                 int pixels) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
  constexpr int kChunk = 16 / kBytes;
  const int chunks = c_to / kChunk;
  const long long total = static_cast<long long>(images) * pixels * chunks,
                  stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
    // Neighbouring threads read neighbouring elements: of a plane, or of a pixel.
    long long source, target;
    int first;
    if constexpr (kNchw) {
      const long long plane = i / pixels;
      const int pixel = static_cast<int>(i - plane * pixels), image = static_cast<int>(plane / chunks);
      first = static_cast<int>(plane - static_cast<long long>(image) * chunks) * kChunk;
      source = (static_cast<long long>(image) * c + first) * pixels + pixel;
      target = (static_cast<long long>(image) * pixels + pixel) * c_to + first;
    } else {
      const long long row = i / chunks;
      first = static_cast<int>(i - row * chunks) * kChunk;
      source = row * c + first, target = row * c_to + first;
    }
    const int step = kNchw ? pixels : 1;
    Chunk<Element> v;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      v.e[j] = first + j < c ? from[source + static_cast<long long>(j) * step] : Element(0);
    }
    *reinterpret_cast<uint4*>(to + target) = v.all;
  }
}
