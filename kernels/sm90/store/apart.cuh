// x's gradient of a 1x1 filter whose strides are 2: from a consumer's sums to every second pixel of every second row of
// NCHW in 16 bits, and zeros between. Tiles are of planes, or are whole images. The sums go through the staging area with
// a row a channel; a thread then keeps the places of its words of 16 bytes and goes through the channels, so that
// neighbours write what lies together.
#pragma once
#include "kernels/sm90/store/matrices.cuh"
#include "kernels/sm90/words.cuh"

static_assert(kFlat && !kBias && !kResidual && kSplit == 1);

namespace apart {  // what brings pixels has names of its own

// Where 8 pixels of a channel lie. Neighbouring channels begin in other banks: swizzled where a row is a multiple of 128
// bytes, which those of planes are.
constexpr bool kOfPlanes = kBring == Bring::planes;
constexpr int kUnitBytes = kMyChannels * 128;
__device__ __forceinline__ unsigned staged(int channel, int group) {
  if constexpr (kOfPlanes) return group / 8 * kUnitBytes + channel * 128 + (((group ^ channel) & 7) << 4);
  return (channel * (kMyPixels / 8) + group) * 16;
}

// A word of the output is four pixels, each with a zero beside it, or zeros. kTaken of the pixels lie together in a row.
constexpr int kTaken = kStore, kPieces = 4 / kTaken;
// Channels after which words lie as before: with planes of an odd number of pixels two.
constexpr int kSpan = kTaken == 1 ? 2 : 1;

// Pixels as words with zeros.
__device__ __forceinline__ void put(unsigned* v, uint2 pixels) {
  v[0] = pixels.x & 0xffff, v[1] = pixels.x >> 16, v[2] = pixels.y & 0xffff, v[3] = pixels.y >> 16;
}
__device__ __forceinline__ void put(unsigned* v, unsigned pixels) { v[0] = pixels & 0xffff, v[1] = pixels >> 16; }
__device__ __forceinline__ void put(unsigned* v, unsigned short pixel) { v[0] = pixel; }

}  // namespace apart

struct Results {
  static constexpr bool kBringsResidual = false;

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                                unsigned staging, unsigned, unsigned, int consumer,
                                                int thread) {
    named_sync(3 + consumer, 128);  // what was there has been read
    put(sums, staging, thread);
    named_sync(3 + consumer, 128);
    store(p, t, staging, consumer, thread);
  }

 private:
  static __device__ __forceinline__ void put(Sums& sums, unsigned staging, int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const float* s = sums_of(sums[mt][0], i, m);
          out[m] = pack(s[0], s[1]);
        }
        const PlanesRow mine(mt, i, warp, lane);
        store_planes_rows(staging + apart::staged(mine.channel, mine.pixels), out);
      }
    }
  }

  static __device__ __forceinline__ void store(const Params& p, const Tile& t, unsigned staging, int consumer,
                                               int thread) {
    const int k0 = my_first_channel(t, consumer);
    const int channels = p.k - k0 < kMyChannels ? p.k - k0 : kMyChannels;
    uint4* const y = static_cast<uint4*>(p.y);
    if constexpr (apart::kOfPlanes) {
      store_planes(p, t, y + (static_cast<long long>(t.n) * p.k + k0) * (p.p * p.q / 2), channels, staging,
                   t.first + my_first_pixel(consumer), thread);
    } else {
      store_images(p, t, y, k0, channels, staging, thread);
    }
  }

  // Words go along a plane's rows, and then along the zeros below each; the first and the last row may be parts.
  static __device__ __forceinline__ void store_planes(const Params& p, const Tile&, uint4* y, int channels,
                                                      unsigned staging, int first, int thread) {
    constexpr int kWords = kMyPixels / 4, kAcross = 2 * kWords, kDown = 128 / kAcross;
    static_assert(!apart::kOfPlanes || (kAcross <= 128 && apart::kTaken == 4));
    const int row_words = p.q / 4, row = first / p.q, before = (first - row * p.q) / 4, plane = p.p * p.q;
    const int begun = row_words - before < kWords ? row_words - before : kWords, rows = (kWords - begun) / row_words,
              ended = kWords - begun - rows * row_words;
    if (thread >= kAcross * kDown) return;
    int i = thread % kAcross, across = begun, column = before, down = 2 * row;
    if (i >= 2 * (kWords - ended)) {
      i -= 2 * (kWords - ended), across = ended, column = 0, down += 2 + 2 * rows;
    } else if (i >= 2 * begun) {
      i -= 2 * begun, across = row_words, column = 0, down += 2;
    }
    down += i / across, column += i % across;
    const int pixel = down / 2 * p.q + column * 4;
    if (pixel >= plane) return;
    uint4* const to = y + down * row_words + column;
    const int from = pixel - first;
#pragma unroll 4
    for (int channel = thread / kAcross; channel < channels; channel += kDown) {
      unsigned v[4] = {};
      if (down % 2 == 0) apart::put(v, load_word<apart::kTaken * 2>(staging + apart::staged(channel, from / 8) + from % 8 * 2));
      to[static_cast<long long>(channel) * (plane / 2)] = {v[0], v[1], v[2], v[3]};
    }
  }

  static __device__ __forceinline__ void store_images(const Params& p, const Tile& t, uint4* y, int k0, int channels,
                                                      unsigned staging, int thread) {
    const int plane = p.p * p.q, words = apart::kSpan * plane / 2;
    for (int i = thread; i < p.step / plane * words; i += 128) {
      const int image = i / words, in_image = i - image * words, n = t.first / plane + image;
      if (n >= p.pixels / plane) return;
      unsigned from[apart::kPieces];  // from a channel's first pixel, bytes
      bool zeros[apart::kPieces];
#pragma unroll
      for (int j = 0; j < apart::kPieces; ++j) {
        const int at = in_image * 4 + j * apart::kTaken, odd = at / (2 * plane), row = at / p.q - odd * 2 * p.p;
        zeros[j] = row % 2 != 0;
        from[j] = apart::staged(odd, 0) + (image * plane + row / 2 * p.q + at % p.q) * 2;
      }
      uint4* const to = y + (static_cast<long long>(n) * p.k + k0) / apart::kSpan * words + in_image;
#pragma unroll 4
      for (int channel = 0; channel < channels; channel += apart::kSpan) {
        unsigned v[4] = {};
#pragma unroll
        for (int j = 0; j < apart::kPieces; ++j) {
          if (!zeros[j]) apart::put(&v[j * apart::kTaken], load_word<apart::kTaken * 2>(staging + apart::staged(channel, 0) + from[j]));
        }
        to[static_cast<long long>(channel / apart::kSpan) * words] = {v[0], v[1], v[2], v[3]};
      }
    }
  }
};
