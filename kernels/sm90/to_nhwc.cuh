// Images of c planes (NCHW) to pixels of c_to channels (NHWC), c_to a multiple of 16 bytes; new channels are
// zero. Also for filters: K "images" of R x S pixels. With kStep above 1 of each row only every kStep-th
// pixel, and of the rows those `down` elements apart: what a 1x1 filter with strides reads. kDeep:
// planes of a volume lie one below the other, and those `deep` elements apart are taken, `rows` rows of each.
//
// kBytes (the host's) an element, kLoadPixels pixels a load (they divide a row, or without steps an image), kLoadPixels
// kStep elements. A block turns `tile` pixels, at most 64, by 128 bytes of channels through shared memory; with
// kLoadPixels 0 the whole planes, small ones, of `tile` channels, which lie together as c_to of c do.
// All of a thread's loads are under way at once: the step takes as long as memory does to answer.
#pragma once
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/turned.h"
#include "kernels/sm90/words.cuh"

using Element = Word<kBytes>;
constexpr int kPixels = 64, kChannels = 128 / kBytes, kPitch = 33;  // words a pixel: one more than 128 bytes
constexpr int kThreads = 256, kSharedWords = kPixels * kPitch;

__device__ __forceinline__ void turn_whole(unsigned* shared, int block, const faltung::sm90::Turned& tensor) {
  constexpr int kChunk = 16 / kBytes, kLoads = (kSharedWords / 4 + kThreads - 1) / kThreads;
  const int c = tensor.c, pixels = tensor.pixels, spans = (c + tensor.tile - 1) / tensor.tile;
  const int n = block / spans, c0 = (block - n * spans) * tensor.tile;
  const int channels = c - c0 < tensor.tile ? c - c0 : tensor.tile, chunks = channels * pixels / kChunk;
  const long long image = static_cast<long long>(n) * c * pixels;
  const uint4* const from =
      reinterpret_cast<const uint4*>(static_cast<const Element*>(tensor.from) + image + c0 * pixels);
  Element* const to = static_cast<Element*>(tensor.to) + image + c0;
  uint4 v[kLoads];
  wait_for_previous_kernel();
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const int i = threadIdx.x + j * kThreads;
    v[j] = i < chunks ? __ldcs(from + i) : uint4{};
  }
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const int i = threadIdx.x + j * kThreads;
    if (i < chunks) reinterpret_cast<uint4*>(shared)[i] = v[j];
  }
  __syncthreads();
  const Element* const elements = reinterpret_cast<const Element*>(shared);
  // Eight neighbours write 128 bytes of a pixel, and read from as many banks.
  for (int i = threadIdx.x; i < (channels / kChunk + 7) / 8 * 8 * pixels; i += kThreads) {
    const int line = i / 8, eight = line / pixels, pixel = line - eight * pixels;
    const int channel = (eight * 8 + i % 8) * kChunk;
    if (channel >= channels) continue;
    Chunk<Element> turned;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) turned.e[j] = elements[(channel + j) * pixels + pixel];
    *reinterpret_cast<uint4*>(to + static_cast<long long>(pixel) * c + channel) = turned.all;
  }
}

template <int kLoadPixels, int kStep, bool kDeep>
__device__ __forceinline__ void turn_tiles(unsigned* shared, int block, const faltung::sm90::Turned& tensor) {
  const Element* const __restrict__ from = static_cast<const Element*>(tensor.from);
  Element* const __restrict__ to = static_cast<Element*>(tensor.to);
  const int c = tensor.c, c_to = tensor.c_to, pixels = tensor.pixels, tile = tensor.tile, columns = tensor.columns;
  const int pixel_tiles = (pixels + tile - 1) / tile, channel_tiles = (c_to + kChannels - 1) / kChannels;
  const int channel_tile = block % channel_tiles, rest = block / channel_tiles;
  const int p0 = rest % pixel_tiles * tile, n = rest / pixel_tiles, c0 = channel_tile * kChannels;
  const int last = p0 + tile < pixels ? p0 + tile : pixels;
  constexpr int kLoad = kLoadPixels > 1 ? kLoadPixels * kStep : 1;  // elements
  using Load = Word<kLoad * kBytes>;
  constexpr int kPair = 4 / kBytes;               // channels of a word
  constexpr int kAcross = kPixels / kLoadPixels;  // threads a channel
  constexpr int kDown = kThreads / kAcross * kPair, kWords = kChannels / kDown;
  const int column = threadIdx.x % kAcross * kLoadPixels, first = threadIdx.x / kAcross * kPair,
            pixel = p0 + column;
  const int row = pixel / columns, first_of_row = kDeep ? row / tensor.rows * tensor.deep + row % tensor.rows * tensor.down
                                                         : row * tensor.down;
  const int in_plane = kStep == 1 ? pixel : first_of_row + pixel % columns * kStep;
  const Element* const source = from + (static_cast<long long>(n) * c + c0 + first) * tensor.plane + in_plane;
  union {
    Load load;
    Element e[kLoad];
  } v[kWords][kPair];
  wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int j = 0; j < kPair; ++j) {
      const int channel = i * kDown + j;
      const bool inside = c0 + first + channel < c && pixel < last;
      // Read once: what is written should stay in the cache in its place.
      const Load* const at = reinterpret_cast<const Load*>(source + static_cast<long long>(channel) * tensor.plane);
      v[i][j].load = inside ? __ldcs(at) : Load{};
    }
  }
  // Half of the threads of four pixels begin with the third, or two would write to one bank.
  const int swap = kLoadPixels == 4 ? threadIdx.x / 8 % 2 * 2 : 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
#pragma unroll
    for (int j = 0; j < kLoadPixels; ++j) {
      unsigned word = 0;
#pragma unroll
      for (int k = 0; k < kPair; ++k) {
        const Element here = v[i][k].e[j * kStep], other = v[i][k].e[(kLoadPixels == 4 ? j ^ 2 : j) * kStep];
        word |= static_cast<unsigned>(swap ? other : here) << (k * 16);
      }
      shared[(column + (j ^ swap)) * kPitch + (first + i * kDown) / kPair] = word;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kPixels * 8; i += kThreads) {
    const int chunk = i % 8, at = i / 8;
    if (p0 + at < last && c0 + chunk * (16 / kBytes) < c_to) {
      const unsigned* const word = shared + at * kPitch + chunk * 4;
      *reinterpret_cast<uint4*>(to + (static_cast<long long>(n) * pixels + p0 + at) * c_to + c0 +
                                chunk * (16 / kBytes)) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

template <int kLoadPixels, int kStep, bool kDeep>
__device__ __forceinline__ void turn(unsigned* shared, int block, const faltung::sm90::Turned& tensor) {
  if constexpr (kLoadPixels == 0) {
    turn_whole(shared, block, tensor);
  } else {
    turn_tiles<kLoadPixels, kStep, kDeep>(shared, block, tensor);
  }
}
