// Warps bring planes of NCHW that the copy engine does not take, for 1x1 filters: of any alignment, or with
// strides; a tile may be of several images.
//
// A slot has boxes of 64 channels by 64 pixels as the copy engine would write them: rows of 128 bytes, a
// channel each, the 16 bytes of a row in the swizzle's order. wgmma takes them transposed, so nothing is
// turned here.
//
// Where pixels are taken as they lie, by 4 or 8 bytes, the loads write to shared memory themselves, several
// slots ahead. Else they go through registers: a thread has as many under way as it has room for, then writes
// them all. (Two such sets in turn would not overlap: the compiler counts both by one scoreboard.) kOdd:
// whole images of an odd number of pixels, side by side; of every other channel the aligned pairs begin a
// pixel before the image.
#pragma once
#include "kernels/sm90/bring/flat.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kPrepareWarps = 7;
constexpr int kTaken = kConfig.pixels_a_load;  // pixels a load,
constexpr int kStep = kConfig.load_step;       //   so many apart in a row
constexpr bool kOdd = kConfig.odd_images;

static_assert(kKBlock == 64 && kTaps == 1, "boxes of 64 channels, one tap");

// Of a thread, as setmaxnreg takes them: what the consumers' sums leave.
constexpr int kSumRegisters = kConfig.tile.sums();
constexpr bool kScarce = kSumRegisters > 104 || (kSumRegisters > 64 && kResidual);
constexpr int kBringRegisters = kSumRegisters <= 64 ? 112 : kScarce ? 72 : 88;
constexpr int kMostWords = kBringRegisters - 36;

constexpr int kLoadBytes = kOdd ? 4 : 2 * kTaken * kStep, kLoadWords = kLoadBytes < 4 ? 1 : kLoadBytes / 4;
constexpr bool kDirectly = kStep == 1 && kTaken > 1;
__device__ constexpr int power_of_two(int most) { return most < 2 ? 1 : 2 * power_of_two(most / 2); }
// Loads a channel; with kOdd each image may have half a pair more than it has pixels.
constexpr int kAcross = kOdd ? kTilePixels / 2 + 4 : kTilePixels / kTaken;
constexpr int kDown = power_of_two(kPrepareWarps * 32 / kAcross);  // channels at once
// A block of channels is taken in so many rounds of so many loads; and so many rounds are under way at once.
__device__ constexpr int fitting(int loads) {
  return loads * kLoadWords <= kMostWords ? loads : fitting(loads / 2);
}
constexpr int kLoads = kDirectly ? kKBlock / kDown : fitting(kKBlock / kDown),
              kRounds = kKBlock / kDown / kLoads;
constexpr int kMostAtOnce = kOdd ? (kBringRegisters > 100 ? 3 : kScarce ? 1 : 2) : 4;
constexpr int kAtOnce =
    kMostWords / (kLoads * kLoadWords) < kMostAtOnce ? kMostWords / (kLoads * kLoadWords) : kMostAtOnce;
static_assert(kPrepareWarps * 32 >= kAcross && kDown <= kKBlock, "a thread has pixels of its own");
static_assert(!kOdd || kDown % 2 == 0, "a thread's channels are all odd, or all even");

using Loads = unsigned[kLoads][kLoadWords];

// Where a thread is: it keeps its pixels of a tile and goes through the channels.
struct Fetcher {
  int tile, block, round;
  const unsigned short* from;  // of the first channel of block 0
  bool inside;
  int column;     // the first of its pixels in the tile; kOdd: may be one before the image's
  bool takes[2];  // kOdd: which pixels of a pair are the image's

  __device__ __forceinline__ void enter(const Params& p, int across, int first) {
    const int image = p.p * p.q, begin = tile / p.k_tiles * p.step;
    const long long plane = static_cast<long long>(p.h) * p.w;
    if constexpr (kOdd) {
      const int pairs = (image + 1) / 2, which = across / pairs, n = begin / image + which;
      const int odd = (static_cast<long long>(n) * p.c + first) & 1,
                pixel = 2 * (across - which * pairs) - odd;
      inside = tile < p.tiles && (which + 1) * image <= p.step && n * image < p.pixels;
      takes[0] = inside && pixel >= 0, takes[1] = inside && pixel + 1 < image;
      column = which * image + pixel;
      from =
          static_cast<const unsigned short*>(p.x) + (static_cast<long long>(n) * p.c + first) * plane + pixel;
    } else {
      column = across * kTaken;
      const int flat = begin + column;
      inside = tile < p.tiles && column < p.step && flat < p.pixels;
      const int n = flat / image, in_image = flat - n * image, h = in_image / p.q, w = in_image - h * p.q;
      from = static_cast<const unsigned short*>(p.x) + (static_cast<long long>(n) * p.c + first) * plane +
             (h * p.stride_h * p.w + w * p.stride_w);
    }
  }
  __device__ __forceinline__ void advance(const Params& p, const Work& work, int across, int first) {
    if (++round < kRounds) return;
    round = 0;
    if (++block < work.end) return;
    block = work.first;
    tile += gridDim.x;
    enter(p, across, first);
  }
  // Of the round: the address of its first load, and how many channels there are from there on.
  __device__ __forceinline__ const void* begin(const Params& p, int first, int& left) const {
    const int channel = block * kKBlock + round * (kLoads * kDown);
    left = inside ? p.c - channel - first : 0;
    return from + channel * (static_cast<long long>(p.h) * p.w);
  }
  __device__ __forceinline__ void read(const Params& p, int first, Loads& v) const {
    const long long hop = static_cast<long long>(kDown) * p.h * p.w * 2;
    int left;
    const void* at = begin(p, first, left);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      load_global_if<kLoadBytes>(at, v[i], i * kDown < left);
      // One address, not one a load: the compiler would keep them all in registers.
      asm volatile("add.s64 %0, %0, %1;" : "+l"(at) : "l"(hop));
    }
  }
};

// Where a thread's pixels of the first channels of a slot lie, in the swizzle's order; it is that of 8
// channels.
constexpr int kPeriod = kDown < 8 ? 8 / kDown : 1;
__device__ __forceinline__ unsigned in_slot(int column, int channel, int first) {
  return column / 64 * kPlanesBox + first * kRow + ((column / 8 % 8 ^ (channel & 7)) << 4) + column % 8 * 2;
}

// The loads of a round to a slot: of each the elements that lie kStep apart.
__device__ __forceinline__ void place(const Loads& v, const Fetcher& f, unsigned slot, int first) {
  unsigned to[kPeriod], next[kPeriod];
#pragma unroll
  for (int i = 0; i < kPeriod; ++i) {
    to[i] = slot + in_slot(f.column, first + i * kDown, first);
    next[i] = slot + in_slot(f.column + 1, first + i * kDown, first);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned at = to[i % kPeriod] + i * kDown * kRow;
    if constexpr (kOdd) {
      store_shared_16_if(at, v[i][0], f.takes[0]);
      store_shared_16_if(next[i % kPeriod] + i * kDown * kRow, v[i][0] >> 16, f.takes[1]);
    } else if constexpr (kTaken == 1) {
      store_shared_16(at, v[i][0]);
    } else if constexpr (kStep > 1) {
      const unsigned pair = __byte_perm(v[i][0], v[i][1 % kLoadWords], 0x5410);
      if constexpr (kTaken == 2) {
        store_shared_32(at, pair);
      } else {
        store_shared_64(at, pair, __byte_perm(v[i][2 % kLoadWords], v[i][3 % kLoadWords], 0x5410));
      }
    }
  }
}

__device__ __forceinline__ void arrive(Barriers& barriers, int place) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[place]));
}

__device__ __forceinline__ void fetch(const Params& p, unsigned slots, Barriers& barriers, int thread) {
  const Work work = work_of(p);
  const bool idle = thread >= kAcross * kDown;
  const int across = idle ? kTilePixels : thread % kAcross, first = idle ? 0 : thread / kAcross;
  Ring<kSlots> slot;
  Fetcher ahead{work.first_tile, work.first, 0, nullptr, false, 0, {false, false}};
  ahead.enter(p, across, first);
  if constexpr (kDirectly) {
    // A slot is said to be there once the loads of all but the last so many are.
    constexpr int kAhead = kSlots - 1;
    const long long hop = static_cast<long long>(kDown) * p.h * p.w * 2;
    unsigned to[kPeriod];
#pragma unroll
    for (int i = 0; i < kPeriod; ++i) to[i] = slots + in_slot(ahead.column, first + i * kDown, first);
    Ring<kSlots> loaded;
    for (int count = 0; ahead.tile < p.tiles; ++count) {
      barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
      int left;
      const void* at = ahead.begin(p, first, left);
      if (!idle) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          load_async<kLoadBytes>(to[i % kPeriod] + slot.place * kSlotStride + i * kDown * kRow, at,
                                 i * kDown < left);
          asm volatile("add.s64 %0, %0, %1;" : "+l"(at) : "l"(hop));
        }
      }
      load_async_commit();
      slot.advance();
      ahead.advance(p, work, across, first);
      if (count >= kAhead - 1) {
        load_async_wait<kAhead - 1>();
        arrive(barriers, loaded.place);
        loaded.advance();
      }
    }
    load_async_wait<0>();
    while (loaded.place != slot.place || loaded.parity != slot.parity) {
      arrive(barriers, loaded.place);
      loaded.advance();
    }
  } else {
    for (;;) {
      Loads v[kAtOnce];
      Fetcher of[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        of[i] = ahead;
        ahead.read(p, first, v[i]);
        if (ahead.tile < p.tiles) ahead.advance(p, work, across, first);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (of[i].tile >= p.tiles) return;
        if (of[i].round == 0) barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
        const unsigned to = slots + slot.place * kSlotStride + of[i].round * (kLoads * kDown * kRow);
        if (!idle) place(v[i], of[i], to, first);
        if (of[i].round + 1 == kRounds) {
          arrive(barriers, slot.place);
          slot.advance();
        }
      }
    }
  }
}

// Nothing is asked ahead.
__device__ __forceinline__ void prefetch_pixels(const TensorMap&, const Params&) {}

__device__ __forceinline__ void produce(const TensorMap&, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if (threadIdx.x == 0) {
    if constexpr (kResident) {
      produce_weights(w_map, p, m.stages, barriers);
    } else {
      produce_taps(w_map, p, m, barriers, 0, [](unsigned, unsigned, const Tile&, int, int) {});
    }
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  fetch(p, m.slots, barriers, thread);
}
