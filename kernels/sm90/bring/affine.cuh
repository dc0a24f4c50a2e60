// x through a scale and a shift of its channels, and a ReLU, by warps, where the copy engine has put it: the
// bits that kernels/gpu/affine.cl would store, but for a zero's sign.
//
// Of a slot a thread has 16 bytes of every so many pixels, of the same channels of a block each time. What
// lies outside the image came as zeros and is left alone.
#pragma once
#include "kernels/sm90/element.cuh"
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kPieces = kRow / 16;                              // of a pixel
constexpr int kAcross = prepare_warps(kConfig) * 32 / kPieces;  // pixels at once
constexpr int kSlotPixels = kSlotBytes / kRow;
// Pixels of a thread on their way through its registers, of which their places, and a part of a sum, take some.
constexpr int kBatch = kBringRegisters < 64 && (kConfig.affine_pads || kSplit > 1) ? 2 : 4;

// Of 8 channels. Those beyond the last one stay zeros.
struct Lines {
  float scale[8], shift[8];
  __device__ __forceinline__ Lines(const Params& p, int channel) {
    const bool there = channel < p.c;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      scale[i] = there ? p.scale[channel + i] : 0.0f;
      shift[i] = there ? p.shift[channel + i] : 0.0f;
    }
  }
  __device__ __forceinline__ unsigned through(unsigned pair, int i) const {
    return pack_pair<kBf16, kConfig.affine_relu>(fmaf(low(pair), scale[i], shift[i]),
                                                 fmaf(high(pair), scale[i + 1], shift[i + 1]));
  }
};

__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// Where a thread's pixels of a slot lie in the image, one after the other: a tile's, of which begin() takes a
// tap.
struct AllPixels {
  __device__ __forceinline__ AllPixels(const Params&, const Tile&, int) {}
  __device__ __forceinline__ void begin(const Params&, int) {}
  __device__ __forceinline__ bool inside(const Params&) const { return true; }
  __device__ __forceinline__ void advance(const Params&) {}
};

// Of a halo patch.
struct PatchPixels {
  static constexpr int kWidth = static_cast<int>(patch_width(kConfig));
  int h, w, right;
  __device__ __forceinline__ PatchPixels(const Params& p, const Tile& t, int first) {
    const int left = t.w - p.pad_left;
    h = t.h * kStrideH - p.pad_top + first / kWidth, w = left + first % kWidth, right = left + kWidth;
  }
  __device__ __forceinline__ void begin(const Params&, int) {}
  __device__ __forceinline__ bool inside(const Params& p) const {
    return within(h, p.h) & within(w, p.w);
  }
  __device__ __forceinline__ void advance(const Params&) {
    h += kAcross / kWidth, w += kAcross % kWidth;
    if (w >= right) w -= kWidth, ++h;
  }
};

// Of what is gathered: outputs one after the other over all images, of each the pixel that a tap reads.
struct GatheredPixels {
  int h, w;                          // of the first tap, without padding
  int down, right;                   // of the tap
  int height, width, rows, columns;  // of all outputs; from a pixel to the next
  __device__ __forceinline__ GatheredPixels(const Params& p, const Tile& t, int first) {
    const int q = t.w + first, row = q / p.q, rows_across = kAcross / p.q;
    h = (t.h + row) % p.p * p.stride_h, w = (q - row * p.q) * p.stride_w;
    height = p.p * p.stride_h, width = p.q * p.stride_w;
    rows = rows_across % p.p * p.stride_h, columns = (kAcross - rows_across * p.q) * p.stride_w;
  }
  __device__ __forceinline__ void begin(const Params& p, int tap) {
    down = tap / kS * kDilationH - p.pad_top, right = tap % kS * kDilationW - p.pad_left;
  }
  __device__ __forceinline__ bool inside(const Params& p) const {
    return within(h + down, p.h) & within(w + right, p.w);
  }
  __device__ __forceinline__ void advance(const Params& p) {
    w += columns, h += rows;
    if (w >= width) w -= width, h += p.stride_h;
    if (h >= height) h -= height;
  }
};

template <class Pixels>
__device__ __forceinline__ void scale_slots(const Params& p, unsigned slots, Barriers& barriers, int thread) {
  // Every eighth pixel's pieces are in the same order, every fourth one's but for the halves of 128 bytes.
  static_assert(kAcross % 8 == 0 || (kAcross % 8 == 4 && kPieces == 8 && kBatch % 2 == 0),
                "the swizzle's period");
  constexpr int kTurn = kAcross % 8 == 0 ? 0 : 64;
  const int piece = thread % kPieces, first = thread / kPieces;
  const unsigned mine = first * kRow + ((piece ^ (first * kPieces / 8 % kPieces)) << 4);
  Ring<kSlots> slot;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const Pixels begin(p, t, first);
    for (int block = work.first; block < work.end; ++block) {
      const Lines lines(p, t.c + block * kKBlock + piece * 8);
#pragma unroll 1
      for (int tap = 0; tap < (kFlat ? kTaps : 1); ++tap) {
        Pixels at = begin;
        at.begin(p, tap);
        unsigned from = slots + slot.place * kSlotStride + mine;
        barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
#pragma unroll 1
        for (int pixel = first; pixel < kSlotPixels; pixel += kBatch * kAcross) {
          unsigned v[kBatch][4];
          bool there[kBatch];
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            there[i] = (pixel + i * kAcross < kSlotPixels) & at.inside(p);
            at.advance(p);
            // One address, so that nothing beyond the slots is read.
            const unsigned place = (i % 2 == 0 ? from : from ^ kTurn) + i * kAcross * kRow;
            load_shared_128(there[i] ? place : from, v[i]);
          }
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) v[i][pair] = lines.through(v[i][pair], pair * 2);
            store_shared_128_if((i % 2 == 0 ? from : from ^ kTurn) + i * kAcross * kRow, v[i], there[i]);
          }
          from += kBatch * kAcross * kRow;
        }
        fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
        slot.advance();
      }
    }
  }
}
