// Pixels of c channels (NHWC), a multiple of 16 bytes, to planes (NCHW). Also for filters: K "images" of R x S
// pixels.
//
// kBytes an element, kStore pixels a store (they divide a plane and `tile`), or, kWhole, 16 bytes of planes that lie one
// behind the other. A block turns `tile` pixels of `span`
// channels through shared memory: whole planes where they are small, so that what it writes is contiguous.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
constexpr int kThreads = 256, kChunk = 16 / kBytes;  // channels of a load
constexpr int kPair = 4 / kBytes;                    // pixels of a word
constexpr int kWords = 64 * 33;

extern "C" __global__ void __launch_bounds__(kThreads)
    to_nchw(const uint4* __restrict__ from, Element* __restrict__ to, int c, int pixels, int tile, int span) {
  __shared__ unsigned shared[kWords];
  let_next_kernel_begin();
  const int pixel_tiles = (pixels + tile - 1) / tile, channel_tiles = (c + span - 1) / span;
  const int channel_tile = blockIdx.x % channel_tiles, rest = blockIdx.x / channel_tiles;
  const int p0 = rest % pixel_tiles * tile, n = rest / pixel_tiles, c0 = channel_tile * span;
  const int here = pixels - p0 < tile ? pixels - p0 : tile, channels = c - c0 < span ? c - c0 : span;
  const int pitch = (tile + kPair - 1) / kPair | 1, chunks = channels / kChunk;
  const uint4* const source = from + ((static_cast<long long>(n) * pixels + p0) * c + c0) / kChunk;
  const int down = c / kChunk;  // from a pixel to the next
  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < chunks * ((here + kPair - 1) / kPair); i += kThreads) {
    const int group = i / chunks, chunk = i - group * chunks, pixel = group * kPair;
    Chunk<Element> v[kPair];
#pragma unroll
    for (int q = 0; q < kPair; ++q) {
      const bool inside = pixel + q < here;
      v[q].all = inside ? __ldcs(source + static_cast<long long>(pixel + q) * down + chunk) : uint4{};
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      unsigned word = 0;
#pragma unroll
      for (int q = 0; q < kPair; ++q) word |= static_cast<unsigned>(v[q].e[j]) << (q * 16);
      shared[(chunk * kChunk + j) * pitch + group] = word;
    }
  }
  __syncthreads();
  const Element* const elements = reinterpret_cast<const Element*>(shared);
  Element* const target = to + (static_cast<long long>(n) * c + c0) * pixels + p0;
  if constexpr (kWhole) {
    for (int i = threadIdx.x; i < channels * pixels / kChunk; i += kThreads) {
      int channel = i * kChunk / pixels, pixel = i * kChunk - channel * pixels;
      Chunk<Element> v;
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        v.e[j] = elements[channel * pitch * kPair + pixel];
        if (++pixel == pixels) pixel = 0, ++channel;
      }
      reinterpret_cast<uint4*>(target)[i] = v.all;
    }
    return;
  }
  const int across = here / kStore;
  for (int i = threadIdx.x; i < channels * across; i += kThreads) {
    const int channel = i / across, pixel = (i - channel * across) * kStore;
    union {
      Element e[kStore];
      unsigned words[kStore * kBytes < 4 ? 1 : kStore * kBytes / 4];
      Word<kStore * kBytes> all;
    } v;
    if constexpr (kStore * kBytes < 4) {
      v.e[0] = elements[channel * pitch * kPair + pixel];
    } else {
#pragma unroll
      for (int q = 0; q < kStore * kBytes / 4; ++q) v.words[q] = shared[channel * pitch + pixel / kPair + q];
    }
    *reinterpret_cast<Word<kStore * kBytes>*>(target + static_cast<long long>(channel) * pixels + pixel) = v.all;
  }
}
