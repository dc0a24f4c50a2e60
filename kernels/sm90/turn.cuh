// How warps turn patches of 16-bit NCHW, of any alignment and stride, on their way into shared memory. Part of
// implicit_gemm.cu.
//
// A thread loads a pixel's element of each of eight channels, its neighbours in the warp the next pixels', and writes 16
// bytes as the matrix units take them. Columns that one tap reads lie together: of a horizontal stride of 2 the even
// ones, then the odd ones.
#pragma once

static_assert(F_KB == 64, "eight times eight channels");

// Of a thread, as setmaxnreg takes them: what the consumers' sums leave, and what they do with them.
constexpr int kSumRegisters = F_MT * F_NB * F_N / 2;
constexpr bool kScarce = kSumRegisters > 104 && (F_POOL || F_RESIDUAL);
constexpr int kTurnRegisters = kSumRegisters <= 64 ? 112 : kSumRegisters <= 104 ? 88 : kScarce ? 72 : 80;

constexpr int kPatchPixels = kPatchWidth * kPatchHeight, kItems = kPatchPixels * 8;
constexpr int kThreads = kPrepareWarps * 32;
// A thread has as many loads under way as it has room for, then writes them all: two sets in turn would not overlap,
// since the compiler counts both by one scoreboard.
constexpr int kBlockItems = (kItems + kThreads - 1) / kThreads;
constexpr int kMostItems = kSumRegisters <= 64 ? 8 : kSumRegisters <= 104 ? 6 : kScarce ? 3 : 4;
constexpr int kRounds = (kBlockItems + kMostItems - 1) / kMostItems;
constexpr int kRoundItems = (kBlockItems + kRounds - 1) / kRounds;

using Loads = unsigned[kRoundItems][8][1];

struct Turner {
  int tile, block, round;
  Tile t;
  __device__ __forceinline__ void advance(const Params& p, const Work& work) {
    if (++round < kRounds) return;
    round = 0;
    if (++block < work.end) return;
    block = work.first;
    tile += gridDim.x;
    t = locate(p, tile);
  }
  __device__ __forceinline__ void read(const Params& p, int thread, Loads& v) const {
    const long long plane = static_cast<long long>(p.h) * p.w, hop = plane * 2;
#pragma unroll
    for (int i = 0; i < kRoundItems; ++i) {
      const int item = thread + (round * kRoundItems + i) * kThreads, chunk = item / kPatchPixels;
      const int pixel = item - chunk * kPatchPixels, row = pixel / kPatchWidth, place = pixel - row * kPatchWidth;
      const int column = place % kPhaseWidth * F_STRIDE_W + place / kPhaseWidth;
      const int h = t.h * F_STRIDE_H - p.pad_top + row, w = t.w * F_STRIDE_W - p.pad_left + column;
      const int c = block * F_KB + chunk * 8;
      const bool inside = tile < p.tiles && chunk < 8 && static_cast<unsigned>(h) < static_cast<unsigned>(p.h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(p.w);
      const int left = inside ? p.c - c : 0;
      const void* at =
          static_cast<const unsigned short*>(p.x) + (static_cast<long long>(t.n) * p.c + c) * plane + h * p.w + w;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        load_global_if<2>(at, v[i][j], j < left);
        // One address, not one a load: the compiler would keep them all in registers.
        asm volatile("add.s64 %0, %0, %1;" : "+l"(at) : "l"(hop));
      }
    }
  }
};

__device__ __forceinline__ void place_turned(const Loads& v, unsigned slot, int first) {
#pragma unroll
  for (int i = 0; i < kRoundItems; ++i) {
    const int item = first + i * kThreads, chunk = item / kPatchPixels, pixel = item - chunk * kPatchPixels;
    unsigned out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j] = __byte_perm(v[i][2 * j][0], v[i][2 * j + 1][0], 0x5410);
    store_shared_128_if(slot + pixel * kRow + ((chunk ^ (pixel & 7)) << 4), out, chunk < 8);
  }
}

__device__ __forceinline__ void turn(const Params& p, unsigned slots, Barriers& barriers, int thread) {
  const Work work = work_of(p);
  Ring<F_SLOTS> slot;
  for (Turner at{work.first_tile, work.first, 0, locate(p, work.first_tile)}; at.tile < p.tiles; at.advance(p, work)) {
    Loads v;
    at.read(p, thread, v);
    if (at.round == 0) barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
    place_turned(v, slots + slot.place * kSlotStride, thread + at.round * (kRoundItems * kThreads));
    if (at.round + 1 == kRounds) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
      slot.advance();
    }
  }
}
