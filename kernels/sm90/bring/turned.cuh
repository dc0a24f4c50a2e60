// Halo patches of 32-bit NCHW as it is, which warps turn; they read it themselves, or from as many buffers of
// rows (raws) as the copy engine fills.
#pragma once
#include "kernels/sm90/bring/weights.cuh"
#include "kernels/sm90/tf32.cuh"
#include "kernels/sm90/words.cuh"

constexpr bool kBuffered = kRowSlots > 0;
constexpr int kPrepareWarps = kBuffered ? 6 : 7;
constexpr int kBringRegisters = kBuffered ? 48 : 80;
constexpr int kPatchWidth = patch_width(kConfig), kPatchHeight = patch_height(kConfig);
// Of the rows as they are loaded: from a multiple of 16 bytes on.
constexpr int kRawLeft = raw_left(kConfig), kRawLead = raw_lead(kConfig);  // pixels
constexpr int kRawWidth = raw_width(kConfig), kRawSwizzle = raw_swizzle(kConfig);
constexpr int kRawBytes = raw_bytes(kConfig), kRawStride = raw_stride(kConfig);

// Turning takes 4 pixels by 4 channels a thread: eight threads in turn write to different banks of a slot,
// whose pixels have kKBlock channels, as the matrix units take them. An item is such a square; 16 make 8
// pixels of a row of the patch.
static_assert(kKBlock == 32, "eight times four channels");
constexpr int kItemPairs = ((kPatchWidth + kRawLead + 3) / 4 + 1) / 2;  // of 4 pixels, in a row
constexpr int kItems = kPatchHeight * kItemPairs * 16;

struct Item {
  int chunk, row, x;  // four channels, the row of the patch, the first pixel in it from the aligned start on
};
__device__ __forceinline__ Item item(int i) {
  const int row = (i >> 4) / kItemPairs;
  return {(i & 3) + (i >> 1 & 4), row, ((i >> 4) - row * kItemPairs) * 8 + (i & 4)};
}

// Writes the square, v[channel][pixel], to the slot, rounded; what the copy engine brought for one part is.
__device__ __forceinline__ void turn(const unsigned (&v)[4][4], const Item& it, unsigned to) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int column = it.x + j - kRawLead;
    const bool inside = column >= 0 && column < kPatchWidth;
    const int pixel = it.row * kPatchWidth + column;
    const unsigned at = to + pixel * kRow + ((it.chunk ^ (pixel & 7)) << 4);
    unsigned high_part[4], low_part[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      high_part[c] = kParts == 2 ? round_tf32(v[c][j], low_part[c])
                     : kBuffered ? v[c][j]
                                 : nearest_tf32(v[c][j]);
    }
    store_shared_128_if(at, high_part, inside);
    if constexpr (kParts == 2) store_shared_128_if(at + kPartStride, low_part, inside);
  }
}

// The copy engine's part, by one thread.
__device__ __forceinline__ void produce_raws(const TensorMap& x_map, const Params& p, unsigned raws,
                                             Barriers& barriers) {
  Ring<kBuffered ? kRowSlots : 1> raw;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
#pragma unroll 1
    for (int block = work.first; block < work.end; ++block) {
      const unsigned full = smem_address(barriers.raw_full + raw.place), to = raws + raw.place * kRawStride;
      barrier_wait(smem_address(barriers.raw_empty + raw.place), raw.parity ^ 1);
      barrier_expect(full, kRawBytes);
      load_4d(to, &x_map, full, t.w - kRawLeft, t.c + block * kKBlock, t.h - p.pad_top, t.n);
      raw.advance();
    }
  }
}

__device__ __forceinline__ void turn_raws(const Params& p, unsigned slots, unsigned raws, Barriers& barriers,
                                          int thread) {
  Ring<kSlots> slot;
  Ring<kBuffered ? kRowSlots : 1> raw;
  const Work work = work_of(p);
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    for (int block = work.first; block < work.end; ++block) {
      barrier_wait(smem_address(&barriers.raw_full[raw.place]), raw.parity);
      barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
      const unsigned from = raws + raw.place * kRawStride, to = slots + slot.place * kSlotStride;
#pragma unroll 1
      for (int i = thread; i < kItems; i += kPrepareWarps * 32) {
        const Item it = item(i);
        unsigned v[4][4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int channel = it.chunk * 4 + c;
          const int turned = kRawSwizzle == 128 ? channel & 7 : kRawSwizzle == 64 ? channel >> 1 & 3 : 0;
          const int x = it.x ^ turned << 2;
          load_shared_128(from + ((it.row * kKBlock + channel) * kRawWidth + x) * 4, v[c]);
        }
        turn(v, it, to);
      }
      fence_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
        barrier_arrive(smem_address(&barriers.raw_empty[raw.place]));
      }
      slot.advance();
      raw.advance();
    }
  }
}
// Reads the patches as well, a square ahead of what it writes: the loads of a slot begin before it is free.
struct Reader {
  int tile, block, step;
  Tile t;
  __device__ __forceinline__ void advance(const Params& p, const Work& work) {
    if (++step < kSteps) return;
    step = 0;
    if (++block < work.end) return;
    block = work.first;
    tile += gridDim.x;
    t = locate(p, tile);
  }
  __device__ __forceinline__ void read(const Params& p, int thread, unsigned (&v)[4][4]) const {
    const Item it = item(thread + step * kPrepareWarps * 32);
    const int h = t.h - p.pad_top + it.row, w = t.w - kRawLeft + it.x, c = t.c + block * kKBlock + it.chunk * 4;
    const bool inside = tile < p.tiles && it.row < kPatchHeight &&
                        static_cast<unsigned>(h) < static_cast<unsigned>(p.h) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.w);
    const long long plane = static_cast<long long>(p.h) * p.w;
    const float* from =
        static_cast<const float*>(p.x) + (static_cast<long long>(t.n) * p.c + c) * plane + h * p.w + w;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      load_global_if<16>(from + j * plane, v[j], inside && c + j < p.c);
    }
  }
  static constexpr int kSteps = (kItems + kPrepareWarps * 32 - 1) / (kPrepareWarps * 32);
};

__device__ __forceinline__ void read_and_turn(const Params& p, unsigned slots, Barriers& barriers,
                                              int thread) {
  Ring<kSlots> slot;
  const Work work = work_of(p);
  Reader reader{work.first_tile, work.first, 0, locate(p, work.first_tile)};
  unsigned v[2][4][4];
  reader.read(p, thread, v[0]);
  // Two squares a turn, so that which registers hold them is known; a slot may end after either.
  for (;;) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (reader.tile >= p.tiles) return;
      const int step = reader.step, at = thread + step * kPrepareWarps * 32;
      reader.advance(p, work);
      reader.read(p, thread, v[half ^ 1]);
      if (step == 0) barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
      if (at < kItems) turn(v[half], item(at), slots + slot.place * kSlotStride);
      if (step + 1 == Reader::kSteps) {
        fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
        slot.advance();
      }
    }
  }
}

// Nothing is asked ahead.
__device__ __forceinline__ void prefetch_pixels(const TensorMap&, const Params&) {}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if constexpr (kBuffered) {
    if (threadIdx.x == 0) produce_raws(x_map, p, m.raws, barriers);
    if (threadIdx.x == 32) produce_weights(w_map, p, m.stages, barriers);
  } else {
    if (threadIdx.x == 0) produce_weights(w_map, p, m.stages, barriers);
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  if constexpr (kBuffered) {
    turn_raws(p, m.slots, m.raws, barriers, thread);
  } else {
    read_and_turn(p, m.slots, barriers, thread);
  }
}
