// backward_weights as a matrix product on AMD's matrix units: output channels x columns of the filter (tap and input
// channel), summed over pixels, of which each block takes a part. Both tensors have neighbouring channels together, the
// product neighbouring pixels: a thread brings some channels of a chunk of pixels and turns them. Tiles go through local
// memory; while one is multiplied, registers bring the next one, and where the one after it lies.
//
// The host defines BM and BN (channels and columns of a block), WAVES_M and WAVES_N (its waves along each), CHUNKS (of
// pixels of a tile of the sum), GATHER (1: channels are no aligned fours in memory and are brought one by one), THREADS
// and what convolution.h and amd_matrix.h ask for.
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/amd_matrix.h"

#define TAPS (R * S)
#define BK (CHUNKS * CHUNK)
#define EACH 4  // channels that a thread brings together
// Of so many channels and a chunk of pixels each; of y's gradient first, then of x.
#define UNITS (CHUNKS * (BM + BN) / EACH / THREADS)
#define Y_UNITS (CHUNKS * BM / EACH)
#define WAVE_M (BM / WAVES_M)
#define WAVE_N (BN / WAVES_N)
#define TILES_M (WAVE_M / 16)
#define TILES_N (WAVE_N / 16)
// A row of chunks has each unit's first channel, then each unit's second: what neighbouring threads write lies side by
// side. Which 16 channels make a fragment is free: it is 16 neighbours of such a row.
#define CHANNEL(slot, width) ((slot) % ((width) / EACH) * EACH + (slot) / ((width) / EACH))

#ifdef LAYOUT_nchw
#define X_CHANNEL_STRIDE (z.h * z.w)
#define Y_CHANNEL_STRIDE (z.p * z.q)
#define X_PIXEL_STRIDE 1
#else
#define X_CHANNEL_STRIDE 1
#define Y_CHANNEL_STRIDE 1
#define X_PIXEL_STRIDE z.c
#endif

// EACH channels of a pixel.
#if GATHER
typedef struct {
  element_t e[EACH];
} brought_t;
#else
typedef struct {
  u32 words[EACH * sizeof(element_t) / 4];
} brought_t;
#endif

F_DEVICE brought_t bring(buffer_t from, u32 at, u32 nowhere, u32 channel_bytes) {
  brought_t b;
#if GATHER
  F_UNROLL
  for (int e = 0; e < EACH; ++e) b.e[e] = load_element(from, (at + (u32)e * channel_bytes) | nowhere);
#elif defined(DTYPE_f32)
  const uint4 words = load_chunk(from, at | nowhere);
  b.words[0] = words.x, b.words[1] = words.y, b.words[2] = words.z, b.words[3] = words.w;
#else
  const words2_t words = load_words(from, at | nowhere);
  b.words[0] = words.x, b.words[1] = words.y;
#endif
  return b;
}

// Channel e of a chunk of pixels.
F_DEVICE uint4 turned(const brought_t* pixels, int e) {
#if GATHER
  element_t chunk[CHUNK];
  F_UNROLL
  for (int j = 0; j < CHUNK; ++j) chunk[j] = pixels[j].e[e];
  return chunk_of(chunk);
#else
  u32 w[4];
  F_UNROLL
  for (int j = 0; j < 4; ++j) {
#ifdef DTYPE_f32
    w[j] = pixels[j].words[e];
#else
    w[j] = __builtin_amdgcn_perm(pixels[2 * j + 1].words[e / 2], pixels[2 * j].words[e / 2],
                                 e % 2 == 0 ? 0x05040100u : 0x07060302u);
#endif
  }
  const uint4 chunk = {w[0], w[1], w[2], w[3]};
  return chunk;
#endif
}

// partial: [split][the whole filter tensor]. padded: pixels of all parts.
F_KERNEL(THREADS)
implicit_gemm_matrix_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_INPUT(u32, places),
                             F_OUTPUT(float, partial), int padded, int splits, Sizes z) {
  F_LOCAL_ARRAY(uint4, tiles, 2 * CHUNKS * (BM + BN));
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_INPUT(u32, places);
  F_OPEN_OUTPUT(float, partial);
  const int thread = F_THREAD(), lane = thread % WAVE, wave = thread / WAVE;
  const int wave_m = wave % WAVES_M * WAVE_M, wave_n = wave / WAVES_M * WAVE_N;
  const int first_column = F_BLOCK(0) * BN, first_k = F_BLOCK(1) * BM;
  const int group = F_BLOCK(2) / splits, split = F_BLOCK(2) % splits;
  const int tap_columns = (z.group_c + EACH - 1) / EACH * EACH;
  const int part = padded / splits, slabs = part / BK;
  const buffer_t x_tensor = buffer_of(x, (u32)z.n * z.c * z.h * z.w * sizeof(element_t));
  const buffer_t y_tensor = buffer_of(y, (u32)z.n * z.k * z.p * z.q * sizeof(element_t));
  const buffer_t table = buffer_of(places, (u32)padded * (3 + (TAPS + 31) / 32) * 4);

  u32 place_at[UNITS], bits_at[UNITS], shift[UNITS], channel_bytes[UNITS];
  int bit[UNITS], to[UNITS], row_of[UNITS];
  F_UNROLL
  for (int u = 0; u < UNITS; ++u) {
    // The same for all lanes of a wave.
    const int of_x = __builtin_amdgcn_readfirstlane(wave) * WAVE + u * THREADS >= Y_UNITS;
    const int width = of_x ? BN : BM, own = thread + u * THREADS - (of_x ? Y_UNITS : 0);
    const int four = own % (width / EACH), chunk = own / (width / EACH);
    const int column = first_column + four * EACH, c = column % tap_columns;
    const int tap = column / tap_columns < TAPS ? column / tap_columns : TAPS - 1;
    const int x_shift = (tap / S * DILATION_H * z.w + tap % S * DILATION_W) * X_PIXEL_STRIDE +
                        (group * z.group_c + c) * X_CHANNEL_STRIDE;
    const int y_shift = (group * z.group_k + first_k + four * EACH) * Y_CHANNEL_STRIDE;
    shift[u] = (u32)(of_x ? x_shift : y_shift) * (u32)sizeof(element_t);
    channel_bytes[u] = (u32)(of_x ? X_CHANNEL_STRIDE : Y_CHANNEL_STRIDE) * (u32)sizeof(element_t);
    const int pixel = split * part + chunk * CHUNK;
    place_at[u] = (u32)((of_x ? 2 : 0) * padded + pixel) * 4;
    bits_at[u] = (u32)((of_x ? 3 + tap / 32 : 1) * padded + pixel) * 4;
    bit[u] = of_x ? 31 - tap % 32 : 31;
    to[u] = (of_x ? 2 * CHUNKS * BM : 0) + chunk * width + four;
    row_of[u] = width;
  }

  uint4 place[UNITS][CHUNK / 4], bits[UNITS][CHUNK / 4];
#define BRING_PLACES(tile)                                                                   \
  F_UNROLL                                                                                   \
  for (int u = 0; u < UNITS; ++u) {                                                          \
    F_UNROLL                                                                                 \
    for (int j = 0; j < CHUNK / 4; ++j) {                                                    \
      place[u][j] = load_chunk(table, place_at[u] + (u32)((tile)*BK + j * 4) * 4);           \
      bits[u][j] = load_chunk(table, bits_at[u] + (u32)((tile)*BK + j * 4) * 4);             \
    }                                                                                        \
  }
  F_RESULTS sums[TILES_M][TILES_N];
  F_UNROLL
  for (int i = 0; i < TILES_M; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_N; ++j) sums[i][j] = (F_RESULTS)(0.0f);
  }

  BRING_PLACES(0)
  // Turn t brings tile t and multiplies tile t - 1. What the last turn brings is not used.
  for (int turn = 0; turn <= slabs; ++turn) {
    brought_t next[UNITS][CHUNK];
    F_UNROLL
    for (int u = 0; u < UNITS; ++u) {
      const int of_x = __builtin_amdgcn_readfirstlane(wave) * WAVE + u * THREADS >= Y_UNITS;
      const buffer_t from = of_x ? x_tensor : y_tensor;
      F_UNROLL
      for (int j = 0; j < CHUNK; ++j) {
        const u32 nowhere = bits[u][j / 4][j % 4] << bit[u] & F_NOWHERE;
        next[u][j] = bring(from, place[u][j / 4][j % 4] + shift[u], nowhere, channel_bytes[u]);
      }
    }
    BRING_PLACES(turn + 1)
    if (turn > 0) {
      F_LOCAL const uint4* const of_y = tiles + ((turn + 1) & 1) * CHUNKS * BM + wave_m + lane % 16;
      F_LOCAL const uint4* const of_x =
          tiles + 2 * CHUNKS * BM + ((turn + 1) & 1) * CHUNKS * BN + wave_n + lane % 16;
      F_UNROLL
      for (int k = 0; k < CHUNKS; k += FRAGMENT_CHUNKS) {
        uint4 a[TILES_M][LANE_CHUNKS], b[TILES_N][LANE_CHUNKS];
        F_UNROLL
        for (int v = 0; v < LANE_CHUNKS; ++v) {
          const int chunk = k + LANE_CHUNK(lane, v);
          F_UNROLL
          for (int i = 0; i < TILES_M; ++i) a[i][v] = of_y[chunk * BM + i * 16];
          F_UNROLL
          for (int j = 0; j < TILES_N; ++j) b[j][v] = of_x[chunk * BN + j * 16];
        }
        F_UNROLL
        for (int i = 0; i < TILES_M; ++i) {
          F_UNROLL
          for (int j = 0; j < TILES_N; ++j) sums[i][j] = multiply(a[i], b[j], sums[i][j]);
        }
      }
    }
    F_UNROLL
    for (int u = 0; u < UNITS; ++u) {
      F_UNROLL
      for (int e = 0; e < EACH; ++e) {
        tiles[to[u] + (turn & 1) * CHUNKS * row_of[u] + e * (row_of[u] / EACH)] = turned(next[u], e);
      }
    }
    F_BARRIER();
  }

  F_GLOBAL float* const out = partial + (size_t)split * z.k * z.group_c * TAPS;
  F_UNROLL
  for (int j = 0; j < TILES_N; ++j) {
    const int column = first_column + CHANNEL(wave_n + j * 16 + lane % 16, BN);
    const int tap = column / tap_columns, c = column % tap_columns;
    F_UNROLL
    for (int i = 0; i < TILES_M; ++i) {
      F_UNROLL
      for (int v = 0; v < RESULTS; ++v) {
        const int k = first_k + CHANNEL(wave_m + i * 16 + RESULT_ROW(lane, v), BM);
        if (tap < TAPS && c < z.group_c && k < z.group_k) {
          out[F_OFFSET(group * z.group_k + k, c, tap / S, tap % S, z.group_c, R, S)] = ((float*)&sums[i][j])[v];
        }
      }
    }
  }
}
