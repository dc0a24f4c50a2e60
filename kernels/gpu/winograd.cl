// Winograd's F(M x M, 3 x 3) in one kernel: a block transforms BT tiles of the input, BC channels at a time, into local
// memory, multiplies them with the transformed filter of BK out channels, and transforms the sums back. The sums of
// all A * A positions stay in registers: neither they nor the transformed input go through memory.
//
// A thread has PP positions, TT tiles (quads, LT * 4 apart) and TK out channels (LK apart). What it needs of the
// filter no other thread of its position has beside LT neighbours: it comes straight from memory, a step ahead.
//
// The host defines M, BT, BK, BC, PP, TT, TK, LK = BK / TK, THREADS = A * A / PP * (BT / TT) * LK, ROUND (out
// channels of a thread that are transformed back at a time), PARTS (1 or 2), LOOKAHEAD (1: the filter's next step has
// registers of its own; 2: and the loop is unrolled, so that they need no copies), SPLIT, COMPACT, VW = 4, and what
// correlation.h asks for. TT and TK are multiples of 4, BT is a power of 2.
#include "kernels/gpu/correlation.h"
#include "kernels/gpu/parts.h"
#include "kernels/gpu/vector.h"
#include "kernels/gpu/winograd_transforms.h"

#define LT (BT / TT)
#define POSITIONS (A * A)
// A patch of the input is one thread's, or two threads' that have half of its columns, then of its rows (PARTS): that
// takes half of the registers.
#define SIDE (A / PARTS)
#define PATCHES (BT * BC * PARTS)
#define LOADS ((PATCHES + THREADS - 1) / THREADS)

// Compilers for devices with registers unroll whole tiles; others would only take long.
#if COMPACT
#define F_UNROLL_TILE F_NO_UNROLL
#else
#define F_UNROLL_TILE F_UNROLL
#endif
// Two steps take turns in the registers that the filter has, where it has them twice.
#if LOOKAHEAD > 1
#define F_UNROLL_STEPS F_UNROLL_TWICE
#else
#define F_UNROLL_STEPS F_NO_UNROLL
#endif

// Where threads of neighbouring channels (or out channels) write the same tiles: spread over the banks, by quads.
#define F_SPREAD(c) ((((c) & 1) << 2 | ((c) >> 1 & 3)) * 4 & (BT - 1))
#ifdef LAYOUT_nchw
#define PATCH_TILE(e) ((e) % BT)
#define PATCH_CHANNEL(e) ((e) / BT % BC)
#define V_SPREAD(c) 0
#define NEXT_COLUMN 1
#else
#define PATCH_TILE(e) ((e) / BC % BT)
#define PATCH_CHANNEL(e) ((e) % BC)
#define V_SPREAD(c) F_SPREAD(c)
#define NEXT_COLUMN OUT_C
#endif
#define PATCH_PART(e) ((e) / (BT * BC))

// The SIDE columns of a patch that a thread brings: the first element's offset, and which rows (bits 0 to A - 1) and
// columns (bits A to A + SIDE - 1) exist.
typedef struct {
  index_t offset;
  int exist;
} Patch;

F_DEVICE Patch patch_of(index_t tile, int channel, int part, int tiles_h, int tiles_w, Sizes z) {
  Patch patch;
  const int top = (int)(tile / tiles_w % tiles_h) * M - PAD_TOP;
  const int left = (int)(tile % tiles_w) * M - PAD_LEFT + part * SIDE, n = (int)(tile / tiles_w / tiles_h);
  patch.offset = F_OFFSET(n, channel, 0, 0, IN_C, IN_H, IN_W) + top * IN_ROW_STRIDE + left * IN_COLUMN_STRIDE;
  patch.exist = 0;
  for (int i = 0; i < A; ++i) {
    if (n < z.n && part < PARTS && top + i >= 0 && top + i < IN_H) patch.exist |= 1 << i;
    if (i < SIDE && left + i >= 0 && left + i < IN_W) patch.exist |= 1 << (A + i);
  }
  return patch;
}

F_DEVICE void load_patch(F_GLOBAL const element_t* in, Patch patch, int exists, float* d, Sizes z) {
  const int exist = exists ? patch.exist : 0;
  F_UNROLL_TILE
  for (int i = 0; i < A; ++i) {
    F_UNROLL_TILE
    for (int j = 0; j < SIDE; ++j) {
      d[i * SIDE + j] = 0.0f;
      if ((exist >> i & 1) && (exist >> (A + j) & 1)) {
        d[i * SIDE + j] = F_LOAD(in, patch.offset + i * IN_ROW_STRIDE + j * IN_COLUMN_STRIDE);
      }
    }
  }
}

// A patch's columns, and its rows where it is one thread's, into local memory: [position][tile].
F_DEVICE void transform_patch(float* d, int part, F_LOCAL float* to) {
  F_UNROLL_TILE
  for (int j = 0; j < SIDE; ++j) transform_input(d + j, SIDE);
#if PARTS == 1
  F_UNROLL_TILE
  for (int i = 0; i < A; ++i) transform_input(d + i * A, 1);
#endif
  F_UNROLL_TILE
  for (int i = 0; i < A; ++i) {
    F_UNROLL_TILE
    for (int j = 0; j < SIDE; ++j) to[(i * A + part * SIDE + j) * BT] = d[i * SIDE + j];
  }
}

#if PARTS > 1
F_DEVICE void transform_rows(int part, F_LOCAL float* rows) {
  float d[A * SIDE];
  F_UNROLL_TILE
  for (int i = 0; i < A * SIDE; ++i) d[i] = rows[(part * SIDE * A + i) * BT];
  F_UNROLL_TILE
  for (int i = 0; i < SIDE; ++i) transform_input(d + i * A, 1);
  F_UNROLL_TILE
  for (int i = 0; i < A * SIDE; ++i) rows[(part * SIDE * A + i) * BT] = d[i];
}
#endif

// A thread's quads of the filter for one in channel and position.
F_DEVICE void load_filter(F_GLOBAL const float* from, float* u) {
  F_UNROLL_TILE
  for (int v = 0; v < TK / 4; ++v) {
    const F_VECTOR quad = *(F_GLOBAL const F_VECTOR*)(from + v * 4 * LK);
    F_UNROLL_TILE
    for (int e = 0; e < 4; ++e) u[v * 4 + e] = F_LANE(quad, e);
  }
}

#define RESULTS_ALIGNED(p, bytes) (((int)(i64)(p) & ((bytes)-1)) == 0)
#ifdef __OPENCL_VERSION__
#define F_PAIR(a, b) (float2)(a, b)
#else
#define F_PAIR(a, b) make_float2(a, b)
#endif

// With SPLIT, F_BLOCKS(1) blocks share the sum over the in channels: finish_parts.cl adds what they write.
F_KERNEL(THREADS)
winograd(F_INPUT(element_t, in), F_INPUT(float, filter), F_OUTPUT(result_t, result), F_INPUT(element_t, bias),
         F_INPUT(element_t, residual), F_INPUT(float, slopes), Sizes z) {
  // [channel][position][tile] of the input, then [position][out channel][tile] of the sums.
  F_LOCAL_ARRAY(F_VECTOR, quads, F_MAX(BC, LK * ROUND) * POSITIONS * BT / 4);
  F_LOCAL_ARRAY(index_t, block, 2);  // its first tile and out channel: for the end, so that no register holds them
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(float, filter);
  F_OPEN_OUTPUT(result_t, result);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
#if SPLIT
  F_GLOBAL result_t* const out = result + (index_t)F_BLOCK(1) * z.n * OUT_C * OUT_H * OUT_W;
#else
  F_GLOBAL result_t* const out = result;
#endif
  F_LOCAL float* const values = (F_LOCAL float*)quads;
  const int thread = F_THREAD();
  // Unsigned: shifts, which are rather done again than kept in a register.
  const u32 own = (u32)thread;
  const int lt = (int)(own % LT), lk = (int)(own / LT % LK), first_position = (int)(own / (LT * LK)) * PP;
  const int tiles_h = (OUT_H + M - 1) / M, tiles_w = (OUT_W + M - 1) / M;
  const int k_blocks = (OUT_GROUP + BK - 1) / BK, channels = (IN_GROUP + BC - 1) / BC * BC;
  // Neighbouring blocks share the input, which is the larger.
  const int k_block = F_BLOCK(0) % k_blocks, group = F_BLOCK(0) / k_blocks % z.groups;
  const index_t first_tile = (index_t)(F_BLOCK(0) / k_blocks / z.groups) * BT;

  if (thread == 0) {
    block[0] = first_tile;
    block[1] = group * OUT_GROUP + k_block * BK;
  }
  Patch patches[LOADS];
  F_UNROLL_TILE
  for (int l = 0; l < LOADS; ++l) {
    const int e = thread + l * THREADS;
    patches[l] = patch_of(first_tile + PATCH_TILE(e), group * IN_GROUP + PATCH_CHANNEL(e), PATCH_PART(e), tiles_h,
                          tiles_w, z);
  }
  int u_from = ((group * k_blocks + k_block) * channels * POSITIONS + first_position) * BK + lk * 4;

#if SPLIT
  // No block is without channels: the host asks for no more blocks than there are steps.
  const int begin = channels / BC * F_BLOCK(1) / F_BLOCKS(1) * BC;
  const int end = channels / BC * (F_BLOCK(1) + 1) / F_BLOCKS(1) * BC;
  u_from += begin * POSITIONS * BK;
  F_UNROLL_TILE
  for (int l = 0; l < LOADS; ++l) patches[l].offset += begin * IN_CHANNEL_STRIDE;
#else
  const int begin = 0, end = channels;
#endif

  float sums[PP][TT][TK];
  F_UNROLL_TILE
  for (int p = 0; p < PP; ++p) {
    F_UNROLL_TILE
    for (int i = 0; i < TT; ++i) {
      F_UNROLL_TILE
      for (int j = 0; j < TK; ++j) sums[p][i][j] = 0.0f;
    }
  }
  float d[LOADS][A * SIDE], u[PP][TK];
  F_UNROLL_TILE
  for (int l = 0; l < LOADS; ++l) {
    load_patch(in, patches[l], begin + PATCH_CHANNEL(thread + l * THREADS) < IN_GROUP, d[l], z);
  }
  F_UNROLL_TILE
  for (int p = 0; p < PP; ++p) load_filter(filter + u_from + p * BK, u[p]);

  int first = begin;
  F_NO_UNROLL_DO
  do {
    F_BARRIER();
    F_UNROLL_TILE
    for (int l = 0; l < LOADS; ++l) {
      const int e = thread + l * THREADS, c = PATCH_CHANNEL(e);
      if (PATCHES % THREADS == 0 || e < PATCHES) {
        transform_patch(d[l], PATCH_PART(e), values + c * POSITIONS * BT + (PATCH_TILE(e) ^ V_SPREAD(c)));
      }
    }
    F_BARRIER();
#if PARTS > 1
    F_UNROLL_TILE
    for (int l = 0; l < LOADS; ++l) {
      const int e = thread + l * THREADS, c = PATCH_CHANNEL(e);
      if (PATCHES % THREADS == 0 || e < PATCHES) {
        transform_rows(PATCH_PART(e), values + c * POSITIONS * BT + (PATCH_TILE(e) ^ V_SPREAD(c)));
      }
    }
    F_BARRIER();
#endif
    // The next channels' patches are on their way while these are multiplied.
    F_UNROLL_TILE
    for (int l = 0; l < LOADS; ++l) {
      patches[l].offset += BC * IN_CHANNEL_STRIDE;
      load_patch(in, patches[l], first + BC + PATCH_CHANNEL(thread + l * THREADS) < IN_GROUP, d[l], z);
    }
    int v_from = first_position * (BT / 4);
    F_UNROLL_STEPS
    for (int c = 0; c < BC; ++c, v_from += POSITIONS * BT / 4) {
      u_from += POSITIONS * BK;
#if LOOKAHEAD
      float next[PP][TK];
      F_UNROLL_TILE
      for (int p = 0; p < PP; ++p) load_filter(filter + u_from + p * BK, next[p]);
#endif
      F_UNROLL_TILE
      for (int p = 0; p < PP; ++p) {
        float v[TT];
        F_UNROLL_TILE
        for (int i = 0; i < TT / 4; ++i) {
          const F_VECTOR quad = quads[v_from + p * (BT / 4) + ((i * LT + lt) ^ V_SPREAD(c) / 4)];
          F_UNROLL_TILE
          for (int e = 0; e < 4; ++e) v[i * 4 + e] = F_LANE(quad, e);
        }
        F_UNROLL_TILE
        for (int i = 0; i < TT; ++i) {
          F_UNROLL_TILE
          for (int j = 0; j < TK; ++j) sums[p][i][j] += v[i] * u[p][j];
        }
#if LOOKAHEAD
        F_UNROLL_TILE
        for (int j = 0; j < TK; ++j) u[p][j] = next[p][j];
#else
        load_filter(filter + u_from + p * BK, u[p]);
#endif
      }
    }
    first += BC;
  } while (first != end);

  // The sums of a tile's positions come together through local memory, LK * ROUND out channels at a time:
  // [position][out channel][tile].
  F_BARRIER();
  const int last_channel = ((int)block[1] / OUT_GROUP + 1) * OUT_GROUP;  // of the group
  // The round's out channels of a thread, as a bit. Registers have no addresses, and a compiler that knew the round's
  // number might put it in the sums' index, and all sums in memory for that.
  u32 round = 1;
  F_NO_UNROLL
  for (int slots = 0; slots < TK * LK; slots += ROUND * LK) {
    F_BARRIER();
    F_UNROLL_TILE
    for (int j = 0; j < TK; ++j) {
      if ((round >> (j / ROUND) & 1) == 0) continue;
      const int slot = j % ROUND * LK + lk;
      F_UNROLL_TILE
      for (int p = 0; p < PP; ++p) {
        F_UNROLL_TILE
        for (int i = 0; i < TT; i += 4) {
          F_VECTOR quad;
          F_UNROLL_TILE
          for (int e = 0; e < 4; ++e) F_LANE(quad, e) = sums[p][i + e][j];
          quads[(((first_position + p) * LK * ROUND + slot) * BT + ((i * LT + lt * 4) ^ F_SPREAD(slot))) / 4] = quad;
        }
      }
    }
    F_BARRIER();
    F_NO_UNROLL
    F_EACH(e, BT * LK * ROUND) {
#ifdef LAYOUT_nchw
      const int tile = e % BT, slot = e / BT;
#else
      const int tile = e / (LK * ROUND), slot = e % (LK * ROUND);
#endif
      const int channel = (int)block[1] + slots + slot;
      const index_t t = block[0] + tile;
      const int n = (int)(t / tiles_w / tiles_h);
      if (n >= z.n || channel >= last_channel) continue;
      float m[POSITIONS];
      F_UNROLL_TILE
      for (int i = 0; i < POSITIONS; ++i) m[i] = values[(i * LK * ROUND + slot) * BT + (tile ^ F_SPREAD(slot))];
      F_UNROLL_TILE
      for (int j = 0; j < A; ++j) transform_output(m + j, A);
      F_UNROLL_TILE
      for (int i = 0; i < M; ++i) transform_output(m + i * A, 1);
      const int p = (int)(t / tiles_w % tiles_h) * M, q = (int)(t % tiles_w) * M;
      F_UNROLL_TILE
      for (int i = 0; i < M; ++i) {
        if (p + i >= OUT_H) continue;
        const index_t offset = F_OFFSET(n, channel, p + i, q, OUT_C, OUT_H, OUT_W);
        float* const row = m + i * A;
        F_UNROLL_TILE
        for (int j = 0; j < M; ++j) {
          if (q + j < OUT_W) row[j] = AFTER(row[j], channel, offset + (index_t)j * NEXT_COLUMN);
        }
#if defined(LAYOUT_nchw) && (defined(DTYPE_f32) || SPLIT)
        // Rows of whole pairs or quads, in whole stores.
#ifndef F_CLSPV  // of three ways to store it makes one, and ends in a segmentation fault
        if (M == 4 && (OUT_W & 3) == 0 && RESULTS_ALIGNED(out, 16)) {
          F_VECTOR quad;
          F_UNROLL_TILE
          for (int j = 0; j < M; ++j) F_LANE(quad, j) = row[j];
          *(F_GLOBAL F_VECTOR*)(out + offset) = quad;
          continue;
        }
#endif
        if ((OUT_W & 1) == 0 && RESULTS_ALIGNED(out, 8)) {
          F_UNROLL_TILE
          for (int j = 0; j < M; j += 2) {
            if (q + j < OUT_W) *(F_GLOBAL float2*)(out + offset + j) = F_PAIR(row[j], row[j + 1]);
          }
          continue;
        }
#endif
        F_UNROLL_TILE
        for (int j = 0; j < M; ++j) {
          if (q + j < OUT_W) STORE_RESULT(out, offset + (index_t)j * NEXT_COLUMN, row[j]);
        }
      }
    }
    round <<= 1;
  }
}
