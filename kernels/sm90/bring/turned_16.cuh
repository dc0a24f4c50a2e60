// Halo patches of 16-bit NCHW as it is, of any alignment and stride, which warps turn on their way into
// shared memory.
//
// They read the input themselves, or from buffers of rows (raws) that the copy engine fills: of each channel
// the whole rows that a patch has, which are contiguous. (Rows by themselves come slowly; and the cache that
// threads' loads go through is what shared memory leaves, and holds few lines.)
//
// A thread loads of each of eight channels the element of a pixel, or of a pair of them where rows are of
// pairs (kRun); its neighbours in the warp load the next ones. Of each pixel it writes 16 bytes as the
// matrix units take them. Columns that one tap reads lie together: of a horizontal stride of 2 the even ones,
// then the odd ones.
#pragma once
#include "kernels/sm90/bring/weights.cuh"
#include "kernels/sm90/words.cuh"

constexpr bool kBuffered = kRowSlots > 0;
constexpr int kPrepareWarps = kBuffered ? 6 : 7;
constexpr int kRun = kConfig.pixels_a_turn;
constexpr int kPatchWidth = patch_width(kConfig), kPatchHeight = patch_height(kConfig),
              kPhaseWidth = phase_width(kConfig);
// Of the buffers: from a channel's rows to the next one's; whole images.
constexpr int kRowPitch = kConfig.row_pitch, kRawStride = raw_stride(kConfig);
constexpr bool kRowsWhole = kConfig.rows_whole;
static_assert(kKBlock == 64 || kBuffered, "eight times eight channels");

// Of a thread, as setmaxnreg takes them: what the consumers' sums leave, and what they do with them.
constexpr int kSumRegisters = kConfig.tile.sums();
constexpr int kBringRegisters = kSumRegisters <= 64    ? 112
                                : kSumRegisters <= 104 ? 88
                                : kPools               ? (kBuffered ? 64 : 72)
                                                       : 80;

// Pairs are aligned: the first may begin a column before the patch.
constexpr int kLead = kRun == 1 ? 0 : (kConfig.pad_left + kBefore * kStrideW) % kRun;
constexpr int kReadColumns = (kTileWidth - 1) * kStrideW + (kS - 1) * kDilationW + 1;  // that taps read
constexpr int kRowRuns = (kReadColumns + kLead + kRun - 1) / kRun, kPatchRuns = kRowRuns * kPatchHeight;
// A thread has as many loads under way as it has room for, eight an item, then writes them all: two sets in
// turn would not overlap, since the compiler counts both by one scoreboard.
constexpr int kMostItems = kSumRegisters > 104 || kPools || kResidual ? 2
                           : kSumRegisters > 64                       ? (kBuffered ? 3 : 4)
                                                                      : (kBuffered ? 4 : 6);
constexpr int kMostRuns = kMostItems > 2 ? 3 : 1;  // that a thread remembers, for the sake of more groups
// Threads are groups with channels of their own, eight at a time; in a group each has some runs of the patch,
// the same in every tile. More groups where that leaves clearly fewer threads idle, and a thread few runs to
// remember.
constexpr int kThreads = kPrepareWarps * 32, kChunks = kKBlock / 8;
__device__ constexpr int runs_of(int groups) {
  return (kPatchRuns + kThreads / groups - 1) / (kThreads / groups);
}
__device__ constexpr int best_groups(int groups, int best) {
  return groups > kChunks
             ? best
             : best_groups(groups * 2, runs_of(groups) <= kMostRuns &&
                                               8 * runs_of(groups) * best < 7 * runs_of(best) * groups
                                           ? groups
                                           : best);
}
constexpr int kGroups = best_groups(2, 1), kRuns = runs_of(kGroups), kGroupThreads = kThreads / kGroups;
static_assert(kRuns <= 32, "a bit each");
constexpr int kPasses = (kRuns + kMostItems - 1) / kMostItems, kPassRuns = (kRuns + kPasses - 1) / kPasses;
__device__ constexpr int chunks_at_once(int chunks) {
  return chunks > 1 && (chunks * kPassRuns > kMostItems || chunks * kGroups > kChunks)
             ? chunks_at_once(chunks / 2)
             : chunks;
}
constexpr int kChunksAtOnce = kPasses == 1 ? chunks_at_once(8) : 1;  // chunks of a thread at once
constexpr int kRounds = kChunks / kGroups / kChunksAtOnce;

// The rows of the image that a tile's patch has.
struct Rows {
  int first, count;
};
__device__ __forceinline__ Rows rows_of(const Params& p, const Tile& t) {
  const int top = t.h * kStrideH - p.pad_top, end = top + kPatchHeight < p.h ? top + kPatchHeight : p.h;
  return kRowsWhole ? Rows{0, p.h} : Rows{top < 0 ? 0 : top, top < 0 ? end : end - top};
}
// Where they begin in channel c of the input, in bytes.
__device__ __forceinline__ long long raw_begin(const Params& p, const Tile& t, int c, int row) {
  return ((static_cast<long long>(t.n) * p.c + c) * p.h + row) * p.w * 2;
}

// By a warp. The copy engine takes multiples of 16 bytes: what is more of a row's neighbours does no harm.
__device__ __forceinline__ void produce_raws(const Params& p, unsigned raws, Barriers& barriers, int lane) {
  const Work work = work_of(p);
  const char* const x = static_cast<const char*>(p.x);
  Ring<kBuffered ? kRowSlots : 1> raw;
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const Rows rows = rows_of(p, t);
#pragma unroll 1
    for (int block = work.first; block < work.end; ++block) {
      const unsigned full = smem_address(&barriers.raw_full[raw.place]), to = raws + raw.place * kRawStride;
      const int c0 = t.c + block * kKBlock, channels = p.c - c0 < kKBlock ? p.c - c0 : kKBlock;
      barrier_wait(smem_address(&barriers.raw_empty[raw.place]), raw.parity ^ 1);
      if constexpr (kRowsWhole) {
        if (lane == 0) {
          const unsigned bytes = channels * kRowPitch;
          barrier_expect(full, bytes);
          load_bytes(to, x + raw_begin(p, t, c0, 0), bytes, full);
        }
      } else {
        long long begin[kKBlock / 32];
        unsigned bytes[kKBlock / 32], all = 0;
#pragma unroll
        for (int i = 0; i < kKBlock / 32; ++i) {
          const int c = lane + i * 32;
          const long long first = raw_begin(p, t, c0 + c, rows.first), last = first + rows.count * p.w * 2;
          begin[i] = first / 16 * 16;
          bytes[i] =
              c < channels && rows.count > 0 ? static_cast<unsigned>((last + 15) / 16 * 16 - begin[i]) : 0;
          all += bytes[i];
        }
        barrier_expect(full, all);
#pragma unroll
        for (int i = 0; i < kKBlock / 32; ++i) {
          if (bytes[i] > 0) load_bytes(to + (lane + i * 32) * kRowPitch, x + begin[i], bytes[i], full);
        }
      }
      raw.advance();
    }
  }
}

// Where a thread's runs are: of a patch, and in a slot. Those that there are not lie below the patch.
struct Runs {
  int from[kRuns];         // from the patch's first pixel on, in bytes
  int pixel[kRuns];        // of a slot, the first of the run; the second lies kToNext further
  unsigned written[kRun];  // bits: of which runs taps read the first, and the second pixel
  unsigned swapped;        // which are written from the second on
};
constexpr int kToNext = kStrideW == 1 ? 1 : kLead == 0 ? kPhaseWidth : 1 - kPhaseWidth;

__device__ __forceinline__ int row_of(int run) { return run / kRowRuns; }
__device__ __forceinline__ int column_of(int run) { return run % kRowRuns * kRun - kLead; }

__device__ __forceinline__ Runs runs_of_thread(const Params& p, int in_group) {
  Runs r;
  r.swapped = 0;
#pragma unroll
  for (int e = 0; e < kRun; ++e) r.written[e] = 0;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int run = in_group + i * kGroupThreads, row = row_of(run), column = column_of(run);
    r.from[i] = (row * p.w + column) * 2;
    // Of a run that begins before the patch the first pixel is not written: its place may be anything.
    const int phase = kStrideW == 1 ? 0 : column & 1, in_phase = kStrideW == 1 ? column : column >> 1;
    r.pixel[i] = row * kPatchWidth + phase * kPhaseWidth + in_phase;
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      const bool read = run < kPatchRuns && column + e >= 0 && column + e < kReadColumns;
      r.written[e] |= static_cast<unsigned>(read) << i;
    }
    // Of eight neighbours that write together four begin with the even pixels: all eight to different banks.
    const bool swaps = kRun == 2 && kStrideW == 1 && (run % kRowRuns & 4) != 0;
    r.swapped |= static_cast<unsigned>(swaps) << i;
  }
  return r;
}

using Loads = unsigned[kChunksAtOnce][kPassRuns][8][1];

// A tile, of which a thread's runs lie inside the image or not.
struct Patch {
  int c;  // the first channel
  unsigned inside;
  // From buffers: of the patch's first pixel, in bytes from the beginning of a channel's rows in a buffer on;
  // and those rows of channel 0 in the input, in bytes.
  int from;
  unsigned begin;
  // From the input: the element of channel 0 with which the patch begins, though it may lie outside.
  long long first;
};
__device__ __forceinline__ Patch patch_of(const Params& p, int tile, int in_group) {
  Patch at;
  const Tile t = locate(p, tile);
  const int top = t.h * kStrideH - p.pad_top, left = t.w * kStrideW - p.pad_left;
  at.c = t.c;
  at.inside = 0;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int run = in_group + i * kGroupThreads, h = top + row_of(run), w = left + column_of(run);
    const bool inside = tile < p.tiles && run < kPatchRuns &&
                        static_cast<unsigned>(h) < static_cast<unsigned>(p.h) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.w);
    at.inside |= static_cast<unsigned>(inside) << i;
  }
  if constexpr (kBuffered) {
    const Rows rows = rows_of(p, t);
    at.from = ((top - rows.first) * p.w + left) * 2;
    at.begin = static_cast<unsigned>(raw_begin(p, t, 0, rows.first));
  } else {
    at.first = static_cast<long long>(t.n) * p.c * p.h * p.w + top * p.w + left;
  }
  return at;
}

// The loads of a pass over some runs, of kChunksAtOnce chunks from channel c, a multiple of eight, of the
// input on; raw: where that channel's rows are, in a buffer.
__device__ __forceinline__ void read(const Params& p, const Patch& at, const Runs& r, int pass, int c,
                                     [[maybe_unused]] unsigned raw, Loads& v) {
#pragma unroll
  for (int k = 0; k < kChunksAtOnce; ++k) {
#pragma unroll
    for (int i = 0; i < kPassRuns; ++i) {
      const int run = pass * kPassRuns + i;
      const bool inside = run < kRuns && (at.inside >> run & 1);
      const int left = inside ? p.c - c - k * 8 : 0;
      if constexpr (kBuffered) {
        const unsigned plane = p.h * p.w * 2;
        const unsigned from = raw + k * 8 * kRowPitch + (at.from + r.from[run < kRuns ? run : 0]);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[k][i][j][0] = 0;
        if (left > 0) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            // How far behind a multiple of 16 bytes the channel's rows begin.
            const unsigned lead =
                kRowsWhole ? 0 : at.begin + (kConfig.rows_begin_alike ? 0 : (c + k * 8 + j) * plane) & 15;
            load_shared<2 * kRun>(from + j * kRowPitch + lead, v[k][i][j][0]);
          }
        }
      } else {
        const long long plane = static_cast<long long>(p.h) * p.w, hop = plane * 2;
        const void* from = static_cast<const char*>(p.x) + (at.first + (c + k * 8) * plane) * 2 +
                           r.from[run < kRuns ? run : 0];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          load_global_if<2 * kRun>(from, v[k][i][j], j < left);
          // One address, not one a load: the compiler would keep them all in registers.
          asm volatile("add.s64 %0, %0, %1;" : "+l"(from) : "l"(hop));
        }
      }
    }
  }
}

__device__ __forceinline__ void place_turned(const Loads& v, const Runs& r, int pass, int chunk,
                                             unsigned slot) {
#pragma unroll
  for (int k = 0; k < kChunksAtOnce; ++k) {
#pragma unroll
    for (int i = 0; i < kPassRuns; ++i) {
      const int run = pass * kPassRuns + i;
      if (run >= kRuns) continue;
      const bool swaps = r.swapped >> run & 1;
#pragma unroll
      for (int e = 0; e < kRun; ++e) {
        const bool second = (e == 1) != swaps;
        const int pixel = r.pixel[run] + (second ? kToNext : 0);
        unsigned out[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          out[j] = __byte_perm(v[k][i][2 * j][0], v[k][i][2 * j + 1][0], second ? 0x7632u : 0x5410u);
        }
        const int turned = kKBlock == 64 ? pixel & 7 : pixel >> 1 & 3;
        store_shared_128_if(slot + pixel * kRow + ((turned ^ (chunk + k)) << 4), out,
                            (second ? r.written[kRun - 1] : r.written[0]) >> run & 1);
      }
    }
  }
}

__device__ __forceinline__ void turn(const Params& p, unsigned slots, [[maybe_unused]] unsigned raws,
                                     Barriers& barriers, int thread) {
  const Work work = work_of(p);
  const bool idle = thread >= kGroups * kGroupThreads;
  const int group = idle ? 0 : thread / kGroupThreads,
            in_group = idle ? kPatchRuns : thread - group * kGroupThreads;
  const int first_chunk = group * (kChunks / kGroups);
  const Runs runs = runs_of_thread(p, in_group);
  Ring<kSlots> slot;
  [[maybe_unused]] Ring<kBuffered ? kRowSlots : 1> raw;
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Patch patch = patch_of(p, tile, in_group);
    for (int block = work.first; block < work.end; ++block) {
      if constexpr (kBuffered) barrier_wait(smem_address(&barriers.raw_full[raw.place]), raw.parity);
      const unsigned channels = kBuffered ? raws + raw.place * kRawStride : 0;
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        const int chunk = first_chunk + round * kChunksAtOnce;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          Loads v;
          read(p, patch, runs, pass, patch.c + block * kKBlock + chunk * 8, channels + chunk * 8 * kRowPitch, v);
          if (round == 0 && pass == 0) {
            barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
          }
          place_turned(v, runs, pass, chunk, slots + slot.place * kSlotStride);
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
        if constexpr (kBuffered) barrier_arrive(smem_address(&barriers.raw_empty[raw.place]));
      }
      slot.advance();
      if constexpr (kBuffered) raw.advance();
    }
  }
}

// Nothing is asked ahead.
__device__ __forceinline__ void prefetch_pixels(const TensorMap&, const Params&) {}

__device__ __forceinline__ void produce(const TensorMap&, const TensorMap& w_map, const Params& p,
                                        const Memory& m, Barriers& barriers) {
  if constexpr (kBuffered) {
    if (threadIdx.x < 32) produce_raws(p, m.raws, barriers, threadIdx.x);
    if (threadIdx.x == 32) produce_weights(w_map, p, m.stages, barriers);
  } else {
    if (threadIdx.x == 0) produce_weights(w_map, p, m.stages, barriers);
  }
}

__device__ __forceinline__ void prepare(const Params& p, const Memory& m, Barriers& barriers, int thread) {
  turn(p, m.slots, m.raws, barriers, thread);
}
