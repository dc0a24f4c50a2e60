// Attention on the matrix units that every NVIDIA GPU since compute capability 8.0 has (mma.sync): of each head's queries
// the softmax of their products with all keys, times the values, in one pass over the keys. A score lives in registers
// alone; what is summed so far is made smaller whenever a larger score comes (online softmax).
//
// A block takes QUERIES queries of a head (grid dimensions 0 and 1), and brings tiles of KEYS keys and values to local
// memory, one tile ahead. A warp takes 16 * TILES_Q queries, which stay in registers; with SIDES of 2 two warps share them:
// each has half of their depth, whose parts of the scores they add through local memory, and half of the result's columns.
//
// The host defines DTYPE_f16 or DTYPE_bf16, DEPTH (of a query, a multiple of 8; with two sides of 32), WARPS (along the
// queries), TILES_Q, SIDES, KEYS, THREADS (32 * WARPS * SIDES), BLOCKS, how many a unit has at once, and WIDE as index.h
// has it. scale: what scores are multiplied by, times log2(e); positive. Rows begin at multiples of 16 bytes.
#include "kernels/gpu/index.h"

typedef u16 element_t;
#include "kernels/gpu/attention_units.h"

#ifdef DTYPE_f16
#define PAIR(low, high) pair_f16(low, high)
#else
#define PAIR(low, high) pair_bf16(low, high)
#endif

#define CHUNKS ((DEPTH + 15) / 16 * 2)  // of a row, 16 bytes each, with zeros up to 16 elements
#define ROW_BYTES (CHUNKS * 16 + 16)    // an odd number of chunks: eight rows' fill all banks
#define DEPTH_STEPS (CHUNKS / 2 / SIDES)  // of the matrix units, along a warp's part of a row
#define QUERIES (WARPS * TILES_Q * 16)
#define SCORES (KEYS / 8)            // tiles of eight keys
#define COLUMNS (DEPTH / SIDES / 8)  // a warp's tiles of eight columns of the result
#define STAGE_BYTES (2 * KEYS * ROW_BYTES)
#define SIDE_FLOATS (QUERIES * KEYS)  // of the scores' parts, where two warps share them

// Of a tensor: elements from batch to batch, head to head, row to row.
typedef struct {
  i64 batch, head, row;
} strides_t;
#define F_HEAD(name) (name##_buffer + batch * name##_strides.batch + head * name##_strides.head)

F_ALL_LOCAL_MEMORY(local_memory);

// Rows [first, first + rows) of `all`; zeros beyond the last.
F_DEVICE void bring_rows(u32 to, const element_t* from, index_t pitch, int first, int rows, int all) {
#if DEPTH % 16 == 0 && THREADS % CHUNKS == 0
  // A thread has the same chunk of each of its rows: few instructions a copy, of which tiles of deep heads have many.
  const int row = F_THREAD() / CHUNKS, chunk = F_THREAD() % CHUNKS, left = all - first - row;
  const element_t* at = from + (first + row) * pitch + chunk * 8;
  to += row * ROW_BYTES + chunk * 16;
  F_UNROLL_TWICE
  for (int done = 0; done < rows; done += THREADS / CHUNKS) {
    copy_chunk(to, done < left ? at : from, done < left);
    at += THREADS / CHUNKS * pitch;
    to += THREADS / CHUNKS * ROW_BYTES;
  }
#else
  F_UNROLL
  for (int i = F_THREAD(); i < rows * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS;
    const bool wanted = first + row < all && chunk * 8 < DEPTH;
    copy_chunk(to + row * ROW_BYTES + chunk * 16, wanted ? from + (first + row) * pitch + chunk * 8 : from, wanted);
  }
#endif
}

F_DENSE_KERNEL(THREADS, BLOCKS)
attention(F_INPUT(element_t, q), F_INPUT(element_t, k), F_INPUT(element_t, v), F_OUTPUT(element_t, y), i64 heads,
          i64 queries_of_head, i64 keys_of_head, float scale, strides_t q_strides, strides_t k_strides,
          strides_t v_strides, strides_t y_strides) {
  F_FOLLOW_PREVIOUS();
  const int lane = F_THREAD() % 32, warp = F_THREAD() / 32, side = warp / WARPS, own = warp % WARPS * TILES_Q * 16;
  const int queries = (int)queries_of_head, keys = (int)keys_of_head, first = F_BLOCK(0) * QUERIES;
  const i64 batch = F_BLOCK(1) / (int)heads, head = F_BLOCK(1) % (int)heads;
  const element_t *const keys_from = F_HEAD(k), *const values_from = F_HEAD(v);
  const u32 asked = local_address(local_memory), stages = asked + QUERIES * ROW_BYTES;

  const auto bring_tile = [&](int tile) {
    const u32 to = stages + tile % 2 * STAGE_BYTES;
    bring_rows(to, keys_from, (index_t)k_strides.row, tile * KEYS, KEYS, keys);
    bring_rows(to + KEYS * ROW_BYTES, values_from, (index_t)v_strides.row, tile * KEYS, KEYS, keys);
    close_copies();
  };
  bring_rows(asked, F_HEAD(q), (index_t)q_strides.row, first, QUERIES, queries);
  bring_tile(0);

  // Where a lane's part of a 16 x 16 tile of queries begins; of a tile of 16 keys; of 16 values.
  const u32 part = side * DEPTH_STEPS * 32, query_row = asked + (own + lane % 16) * ROW_BYTES + lane / 16 * 16 + part;
  const u32 key_row = (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16 + part;
  const u32 value_row = KEYS * ROW_BYTES + lane % 16 * ROW_BYTES + (side * COLUMNS + lane / 16) * 16;

  float out[TILES_Q][COLUMNS][4], top[TILES_Q][2], sum[TILES_Q][2];
  F_UNROLL
  for (int m = 0; m < TILES_Q; ++m) {
    F_UNROLL
    for (int h = 0; h < 2; ++h) top[m][h] = -F_INFINITY, sum[m][h] = 0.0f;
    F_UNROLL
    for (int j = 0; j < COLUMNS; ++j) {
      F_UNROLL
      for (int e = 0; e < 4; ++e) out[m][j][e] = 0.0f;
    }
  }
  u32 query[TILES_Q][DEPTH_STEPS][4];
#if SIDES == 2
  // Of a warp's tile of scores a lane has four, all lanes' together.
  float* const parts = (float*)(local_memory + QUERIES * ROW_BYTES + 2 * STAGE_BYTES);
  const int own_part = side * SIDE_FLOATS + own * KEYS + lane * 4;
#endif

  const int tiles = (keys + KEYS - 1) / KEYS;
  F_NO_UNROLL
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies();
    F_BARRIER();
    if (tile == 0) {
      F_UNROLL
      for (int m = 0; m < TILES_Q; ++m) {
        F_UNROLL
        for (int d = 0; d < DEPTH_STEPS; ++d)
          load_matrices(query_row + m * 16 * ROW_BYTES + d * 32, query[m][d]);
      }
    }
    if (tile + 1 < tiles) bring_tile(tile + 1);
    const u32 stage = stages + tile % 2 * STAGE_BYTES;

    float score[TILES_Q][SCORES][4];
    F_UNROLL
    for (int m = 0; m < TILES_Q; ++m) {
      F_UNROLL
      for (int j = 0; j < SCORES; ++j) {
        F_UNROLL
        for (int e = 0; e < 4; ++e) score[m][j][e] = 0.0f;
      }
    }
    F_UNROLL
    for (int d = 0; d < DEPTH_STEPS; ++d) {
      F_UNROLL
      for (int j = 0; j < SCORES; j += 2) {
        u32 key[4];
        load_matrices(stage + key_row + j * 8 * ROW_BYTES + d * 32, key);
        F_UNROLL
        for (int m = 0; m < TILES_Q; ++m) {
          multiply(query[m][d], key, score[m][j]);
          multiply(query[m][d], key + 2, score[m][j + 1]);
        }
      }
    }
#if SIDES == 2
    F_UNROLL
    for (int m = 0; m < TILES_Q; ++m) {
      F_UNROLL
      for (int j = 0; j < SCORES; ++j) store4_f32(parts + own_part + (m * SCORES + j) * 128, score[m][j]);
    }
    F_BARRIER();
    F_UNROLL
    for (int m = 0; m < TILES_Q; ++m) {
      F_UNROLL
      for (int j = 0; j < SCORES; ++j) {
        float other[4];
        load4_f32(parts + (own_part ^ SIDE_FLOATS) + (m * SCORES + j) * 128, other);
        F_UNROLL
        for (int e = 0; e < 4; ++e) score[m][j][e] += other[e];
      }
    }
#endif
    if ((tile + 1) * KEYS > keys) {
      const int begin = tile * KEYS + lane % 4 * 2;
      F_UNROLL
      for (int j = 0; j < SCORES; ++j) {
        F_UNROLL
        for (int e = 0; e < 4; ++e) {
          if (begin + j * 8 + e % 2 < keys) continue;
          F_UNROLL
          for (int m = 0; m < TILES_Q; ++m) score[m][j][e] = -F_INFINITY;
        }
      }
    }

    float most[TILES_Q][2];
    F_UNROLL
    for (int m = 0; m < TILES_Q; ++m) {
      F_UNROLL
      for (int h = 0; h < 2; ++h) {
        most[m][h] = top[m][h];
        F_UNROLL
        for (int j = 0; j < SCORES; ++j)
          most[m][h] = fmaxf(most[m][h], fmaxf(score[m][j][2 * h], score[m][j][2 * h + 1]));
        most[m][h] = most_of_four(most[m][h]);
      }
    }
    F_UNROLL
    for (int m = 0; m < TILES_Q; ++m) {
      float smaller[2];
      F_UNROLL
      for (int h = 0; h < 2; ++h) {
        // Scores of -infinity alone: nothing is added.
        const float base = most[m][h] == -F_INFINITY ? 0.0f : most[m][h] * scale;
        smaller[h] = power_of_two(F_FMA(top[m][h], scale, -base));
        float added = 0.0f;
        F_UNROLL
        for (int j = 0; j < SCORES; ++j) {
          F_UNROLL
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            score[m][j][e] = power_of_two(F_FMA(score[m][j][e], scale, -base));
            added += score[m][j][e];
          }
        }
        top[m][h] = most[m][h];
        sum[m][h] = F_FMA(sum[m][h], smaller[h], added);
      }
      // Most tiles bring no larger score, and columns may be many.
      if (COLUMNS <= 16 || smaller[0] != 1.0f || smaller[1] != 1.0f) {
        F_UNROLL
        for (int j = 0; j < COLUMNS; ++j) {
          F_UNROLL
          for (int e = 0; e < 4; ++e) out[m][j][e] *= smaller[e / 2];
        }
      }
    }
    F_UNROLL
    for (int t = 0; t < KEYS / 16; ++t) {
      u32 power[TILES_Q][4];
      F_UNROLL
      for (int m = 0; m < TILES_Q; ++m) {
        F_UNROLL
        for (int e = 0; e < 4; ++e)
          power[m][e] = PAIR(score[m][2 * t + e / 2][e % 2 * 2], score[m][2 * t + e / 2][e % 2 * 2 + 1]);
      }
      F_UNROLL
      for (int j = 0; j < COLUMNS; j += 2) {
        u32 value[4];
        load_matrices_transposed(stage + value_row + t * 16 * ROW_BYTES + j * 16, value);
        F_UNROLL
        for (int m = 0; m < TILES_Q; ++m) {
          multiply(power[m], value, out[m][j]);
          if (j + 1 < COLUMNS) multiply(power[m], value + 2, out[m][j + 1]);
        }
      }
    }
  }

  element_t* const to = F_HEAD(y);
  F_UNROLL
  for (int m = 0; m < TILES_Q; ++m) {
    F_UNROLL
    for (int h = 0; h < 2; ++h) sum[m][h] = sum_of_four(sum[m][h]);
  }
  F_UNROLL
  for (int m = 0; m < TILES_Q; ++m) {
    F_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = first + own + m * 16 + h * 8 + lane / 4;
      if (row >= queries) continue;
      const float inverse = 1.0f / sum[m][h];
      element_t* const line = to + row * (index_t)y_strides.row + side * COLUMNS * 8 + lane % 4 * 2;
      F_UNROLL
      for (int j = 0; j < COLUMNS; ++j)
        *(u32*)(line + j * 8) = PAIR(out[m][j][2 * h] * inverse, out[m][j][2 * h + 1] * inverse);
    }
  }
}
