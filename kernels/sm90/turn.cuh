// How warps turn patches of 16-bit NCHW, of any alignment and stride, on their way into shared memory. Part
// of implicit_gemm.cu.
//
// They read the input themselves, or with F_RAWS from buffers that the copy engine fills: of each channel the
// whole rows that a patch has, which are contiguous. (Rows by themselves come slowly; and the cache that
// threads' loads go through is what shared memory leaves, and holds few lines.)
//
// A thread loads of each of eight channels the element of a pixel, or of a pair of them where rows are of
// pairs (F_RUN); its neighbours in the warp load the next ones. Of each pixel it writes 16 bytes as the
// matrix units take them. Columns that one tap reads lie together: of a horizontal stride of 2 the even ones,
// then the odd ones.
#pragma once

static_assert(F_KB == 64 || F_RAWS > 0, "eight times eight channels");

// Of a thread, as setmaxnreg takes them: what the consumers' sums leave, and what they do with them.
constexpr int kSumRegisters = F_MT * F_NB * F_N / 2;
constexpr int kTurnRegisters = kSumRegisters <= 64    ? 112
                               : kSumRegisters <= 104 ? 88
                               : F_POOL               ? (F_RAWS > 0 ? 64 : 72)
                                                      : 80;

// Pairs are aligned: the first may begin a column before the patch.
constexpr int kLead = F_RUN == 1 ? 0 : (F_PAD_LEFT + kBefore * F_STRIDE_W) % F_RUN;
constexpr int kColumns = (kTileWidth - 1) * F_STRIDE_W + (F_S - 1) * F_DIL_W + 1;  // that taps read
constexpr int kRowRuns = (kColumns + kLead + F_RUN - 1) / F_RUN, kPatchRuns = kRowRuns * kPatchHeight;
// A thread has as many loads under way as it has room for, eight an item, then writes them all: two sets in
// turn would not overlap, since the compiler counts both by one scoreboard.
constexpr int kMostItems = kSumRegisters > 104 || F_POOL || F_RESIDUAL ? 2
                           : kSumRegisters > 64                        ? (F_RAWS > 0 ? 3 : 4)
                                                                       : (F_RAWS > 0 ? 4 : 6);
constexpr int kMostRuns = kMostItems > 2 ? 3 : 1;  // that a thread remembers, for the sake of more groups
// Threads are groups with channels of their own, eight at a time; in a group each has some runs of the patch,
// the same in every tile. More groups where that leaves clearly fewer threads idle, and a thread few runs to
// remember.
constexpr int kThreads = kPrepareWarps * 32, kChunks = F_KB / 8;
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

#if F_RAWS > 0
// The rows of the image that a tile's patch has.
struct Rows {
  int first, count;
};
__device__ __forceinline__ Rows rows_of(const Params& p, const Tile& t) {
  const int top = t.h * F_STRIDE_H - p.pad_top, end = top + kPatchHeight < p.h ? top + kPatchHeight : p.h;
  return F_RAW_WHOLE ? Rows{0, p.h} : Rows{top < 0 ? 0 : top, top < 0 ? end : end - top};
}
// Where they begin in channel c of the input, in bytes.
__device__ __forceinline__ long long raw_begin(const Params& p, const Tile& t, int c, int row) {
  return ((static_cast<long long>(t.n) * p.c + c) * p.h + row) * p.w * 2;
}

// By a warp. The copy engine takes multiples of 16 bytes: what is more of a row's neighbours does no harm.
__device__ __forceinline__ void produce_raws(const Params& p, unsigned raws, Barriers& barriers, int lane) {
  const Work work = work_of(p);
  const char* const x = static_cast<const char*>(p.x);
  Ring<F_RAWS> raw;
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Tile t = locate(p, tile);
    const Rows rows = rows_of(p, t);
    for (int block = work.first; block < work.end; ++block) {
      const unsigned full = smem_address(&barriers.raw_full[raw.place]), to = raws + raw.place * kRawStride;
      const int c0 = block * F_KB, channels = p.c - c0 < F_KB ? p.c - c0 : F_KB;
      barrier_wait(smem_address(&barriers.raw_empty[raw.place]), raw.parity ^ 1);
#if F_RAW_WHOLE
      if (lane == 0) {
        const unsigned bytes = channels * F_RAW_PITCH;
        barrier_expect(full, bytes);
        load_bytes(to, x + raw_begin(p, t, c0, 0), bytes, full);
      }
#else
      long long begin[F_KB / 32];
      unsigned bytes[F_KB / 32], all = 0;
#pragma unroll
      for (int i = 0; i < F_KB / 32; ++i) {
        const int c = lane + i * 32;
        const long long first = raw_begin(p, t, c0 + c, rows.first), last = first + rows.count * p.w * 2;
        begin[i] = first / 16 * 16;
        bytes[i] =
            c < channels && rows.count > 0 ? static_cast<unsigned>((last + 15) / 16 * 16 - begin[i]) : 0;
        all += bytes[i];
      }
      barrier_expect(full, all);
#pragma unroll
      for (int i = 0; i < F_KB / 32; ++i) {
        if (bytes[i] > 0) load_bytes(to + (lane + i * 32) * F_RAW_PITCH, x + begin[i], bytes[i], full);
      }
#endif
      raw.advance();
    }
  }
}
#endif

// Where a thread's runs are: of a patch, and in a slot. Those that there are not lie below the patch.
struct Runs {
  int from[kRuns];          // from the patch's first pixel on, in bytes
  int pixel[kRuns];         // of a slot, the first of the run; the second lies kToNext further
  unsigned written[F_RUN];  // bits: of which runs taps read the first, and the second pixel
  unsigned swapped;         // which are written from the second on
};
constexpr int kToNext = F_STRIDE_W == 1 ? 1 : kLead == 0 ? kPhaseWidth : 1 - kPhaseWidth;

__device__ __forceinline__ int row_of(int run) { return run / kRowRuns; }
__device__ __forceinline__ int column_of(int run) { return run % kRowRuns * F_RUN - kLead; }

__device__ __forceinline__ Runs runs_of_thread(const Params& p, int in_group) {
  Runs r;
  r.swapped = 0;
#pragma unroll
  for (int e = 0; e < F_RUN; ++e) r.written[e] = 0;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int run = in_group + i * kGroupThreads, row = row_of(run), column = column_of(run);
    r.from[i] = (row * p.w + column) * 2;
    // Of a run that begins before the patch the first pixel is not written: its place may be anything.
    const int phase = F_STRIDE_W == 1 ? 0 : column & 1, in_phase = F_STRIDE_W == 1 ? column : column >> 1;
    r.pixel[i] = row * kPatchWidth + phase * kPhaseWidth + in_phase;
#pragma unroll
    for (int e = 0; e < F_RUN; ++e) {
      const bool read = run < kPatchRuns && column + e >= 0 && column + e < kColumns;
      r.written[e] |= static_cast<unsigned>(read) << i;
    }
    // Of eight neighbours that write together four begin with the even pixels: all eight to different banks.
    const bool swaps = F_RUN == 2 && F_STRIDE_W == 1 && (run % kRowRuns & 4) != 0;
    r.swapped |= static_cast<unsigned>(swaps) << i;
  }
  return r;
}

using Loads = unsigned[kChunksAtOnce][kPassRuns][8][1];

// A tile, of which a thread's runs lie inside the image or not.
struct Patch {
  unsigned inside;
#if F_RAWS > 0
  int from;  // of the patch's first pixel, in bytes from the beginning of a channel's rows in a buffer on
  unsigned begin;  // those rows of channel 0 in the input, in bytes
#else
  long long first;  // the element of channel 0 with which the patch begins, though it may lie outside
#endif
};
__device__ __forceinline__ Patch patch_of(const Params& p, int tile, int in_group) {
  Patch at;
  const Tile t = locate(p, tile);
  const int top = t.h * F_STRIDE_H - p.pad_top, left = t.w * F_STRIDE_W - p.pad_left;
  at.inside = 0;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int run = in_group + i * kGroupThreads, h = top + row_of(run), w = left + column_of(run);
    const bool inside = tile < p.tiles && run < kPatchRuns &&
                        static_cast<unsigned>(h) < static_cast<unsigned>(p.h) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.w);
    at.inside |= static_cast<unsigned>(inside) << i;
  }
#if F_RAWS > 0
  const Rows rows = rows_of(p, t);
  at.from = ((top - rows.first) * p.w + left) * 2;
  at.begin = static_cast<unsigned>(raw_begin(p, t, 0, rows.first));
#else
  at.first = static_cast<long long>(t.n) * p.c * p.h * p.w + top * p.w + left;
#endif
  return at;
}

// The loads of a pass over some runs, of kChunksAtOnce chunks from channel c, a multiple of eight, of the
// input on; raw: where that channel's rows are, with F_RAWS.
__device__ __forceinline__ void read(const Params& p, const Patch& at, const Runs& r, int pass, int c,
                                     [[maybe_unused]] unsigned raw, Loads& v) {
#pragma unroll
  for (int k = 0; k < kChunksAtOnce; ++k) {
#pragma unroll
    for (int i = 0; i < kPassRuns; ++i) {
      const int run = pass * kPassRuns + i;
      const bool inside = run < kRuns && (at.inside >> run & 1);
      const int left = inside ? p.c - c - k * 8 : 0;
#if F_RAWS > 0
      const unsigned plane = p.h * p.w * 2;
      const unsigned from = raw + k * 8 * F_RAW_PITCH + (at.from + r.from[run < kRuns ? run : 0]);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[k][i][j][0] = 0;
      if (left > 0) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          // How far behind a multiple of 16 bytes the channel's rows begin.
          const unsigned lead = F_RAW_WHOLE ? 0 : at.begin + (F_RAW_ALIKE ? 0 : (c + k * 8 + j) * plane) & 15;
          load_shared<2 * F_RUN>(from + j * F_RAW_PITCH + lead, v[k][i][j][0]);
        }
      }
#else
      const long long plane = static_cast<long long>(p.h) * p.w, hop = plane * 2;
      const void* from = static_cast<const char*>(p.x) + (at.first + (c + k * 8) * plane) * 2 +
                         r.from[run < kRuns ? run : 0];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        load_global_if<2 * F_RUN>(from, v[k][i][j], j < left);
        // One address, not one a load: the compiler would keep them all in registers.
        asm volatile("add.s64 %0, %0, %1;" : "+l"(from) : "l"(hop));
      }
#endif
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
      for (int e = 0; e < F_RUN; ++e) {
        const bool second = (e == 1) != swaps;
        const int pixel = r.pixel[run] + (second ? kToNext : 0);
        unsigned out[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          out[j] = __byte_perm(v[k][i][2 * j][0], v[k][i][2 * j + 1][0], second ? 0x7632u : 0x5410u);
        }
        const int turned = F_KB == 64 ? pixel & 7 : pixel >> 1 & 3;
        store_shared_128_if(slot + pixel * kRow + ((turned ^ (chunk + k)) << 4), out,
                            (second ? r.written[F_RUN - 1] : r.written[0]) >> run & 1);
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
  Ring<F_SLOTS> slot;
#if F_RAWS > 0
  Ring<F_RAWS> raw;
#endif
  for (int tile = work.first_tile; tile < p.tiles; tile += gridDim.x) {
    const Patch patch = patch_of(p, tile, in_group);
    for (int block = work.first; block < work.end; ++block) {
#if F_RAWS > 0
      barrier_wait(smem_address(&barriers.raw_full[raw.place]), raw.parity);
      const unsigned channels = raws + raw.place * kRawStride;
#else
      constexpr unsigned channels = 0;
#endif
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        const int chunk = first_chunk + round * kChunksAtOnce;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          Loads v;
          read(p, patch, runs, pass, block * F_KB + chunk * 8, channels + chunk * 8 * F_RAW_PITCH, v);
          if (round == 0 && pass == 0) {
            barrier_wait(smem_address(&barriers.slot_empty[slot.place]), slot.parity ^ 1);
          }
          place_turned(v, runs, pass, chunk, slots + slot.place * kSlotStride);
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        barrier_arrive(smem_address(&barriers.slot_ready[slot.place]));
#if F_RAWS > 0
        barrier_arrive(smem_address(&barriers.raw_empty[raw.place]));
#endif
      }
      slot.advance();
#if F_RAWS > 0
      raw.advance();
#endif
    }
  }
}
