// Each input channel on its own, one output channel for each: forward, in tiles of TP rows x TQ columns a thread,
// so that a thread uses what it reads several times. Threads run along what lies together in memory: vectors of
// CV channels in nhwc, columns in nchw (where CV and TQ are 1).
//
// nhwc reads packed weights, [tap][channel]; nchw the filters as they are.
//
// The host defines DIRECTION_fwd, THREADS, TP, TQ, CV and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define ROWS ((TP - 1) * STRIDE_H + (R - 1) * DILATION_H + 1)  // of x that a tile reads
#define SPAN ((TQ - 1) * STRIDE_W + (S - 1) * DILATION_W + 1)
#if CV == 1
#define STORE_VECTOR(p, at, v) F_STORE(p, at, (v)[0])
#elif CV == 4
#define STORE_VECTOR(p, at, v) F_STORE4(p, at, v)
#else
#define STORE_VECTOR(p, at, v) F_STORE8(p, at, v)
#endif

// A vector as it lies in memory. Loads that may be outside the image are a choice between a vector and zeros, and
// a compiler puts what is done with the loaded value into that choice: converted there, a row of 16-bit elements is
// waited for before the next row's loads begin.
#if CV == 1
typedef struct {
  element_t bits;
} Vector;
#else
#ifdef DTYPE_f32
#define WORDS CV
#else
#define WORDS (CV / 2)
#endif
typedef struct {
  u32 words[WORDS];
} Vector;
#endif

F_DEVICE Vector load_vector(F_GLOBAL const element_t* p) {
  Vector v;
#if CV == 1
  v.bits = *p;
#elif WORDS == 2
  load2_u32((F_GLOBAL const u32*)p, v.words);
#else
  load4_u32((F_GLOBAL const u32*)p, v.words);
#endif
  return v;
}
F_DEVICE Vector no_vector(void) {
  Vector v;
#if CV == 1
  v.bits = (element_t)0;
#else
  F_UNROLL
  for (int i = 0; i < WORDS; ++i) v.words[i] = 0;
#endif
  return v;
}
F_DEVICE void convert_vector(Vector v, float* out) {
#if CV == 1
#ifdef DTYPE_f32
  out[0] = v.bits;
#else
  out[0] = F_FROM_PAIR_LOW((u32)v.bits);
#endif
#else
  F_UNROLL
  for (int i = 0; i < WORDS; ++i) {
#ifdef DTYPE_f32
    out[i] = F_FROM_BITS(v.words[i]);
#else
    out[2 * i] = F_FROM_PAIR_LOW(v.words[i]);
    out[2 * i + 1] = F_FROM_PAIR_HIGH(v.words[i]);
#endif
  }
#endif
}

F_KERNEL(THREADS)
depthwise_tile(F_FORWARD_TENSORS, Sizes z) {
  F_OPEN_FORWARD_TENSORS
  const int i = F_BLOCK(0) * THREADS + F_THREAD(), n = F_BLOCK(2);
#ifdef LAYOUT_nchw
  const int row_tiles = (z.p + TP - 1) / TP;
  const int first_column = i % z.q, first_row = i / z.q % row_tiles * TP, c = i / z.q / row_tiles;
  if (c >= z.k) return;
#define WEIGHT(tap) (w + c * (R * S) + (tap))
#else
  const int vectors = z.k / CV;
  const int c = i % vectors * CV, first_column = i / vectors * TQ, first_row = F_BLOCK(1) * TP;
  if (first_column >= z.q) return;
#define WEIGHT(tap) (w + (tap)*z.k + c)
#endif
  const int top = first_row * STRIDE_H - z.pad_top, left = first_column * STRIDE_W - z.pad_left;
#if CV > 1
  if (!F_IS_ALIGNED(x, CV) || !F_IS_ALIGNED(y, CV)) {
    // Tensors that do not begin on a vector: one result after the other.
    F_NO_UNROLL
    for (int i = 0; i < TP * TQ * CV; ++i) {
      const int row = i / (TQ * CV), column = i / CV % TQ, j = i % CV;
      if (first_row + row >= z.p || first_column + column >= z.q) continue;
      float sum = 0.0f;
      F_NO_UNROLL
      for (int tap = 0; tap < R * S; ++tap) {
        const int h = top + row * STRIDE_H + tap / S * DILATION_H;
        const int v = left + column * STRIDE_W + tap % S * DILATION_W;
        if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
        sum += F_LOAD(x, F_OFFSET(n, c + j, h, v, z.c, z.h, z.w)) * F_LOAD(WEIGHT(tap), j);
      }
      const index_t at = F_OFFSET(n, c + j, first_row + row, first_column + column, z.k, z.p, z.q);
      F_STORE(y, at, F_EPILOGUE(sum, c + j, at));
    }
    return;
  }
#endif
  float sums[TP][TQ][CV];
  F_UNROLL
  for (int p = 0; p < TP; ++p) {
    F_UNROLL
    for (int q = 0; q < TQ; ++q) {
      F_UNROLL
      for (int j = 0; j < CV; ++j) sums[p][q][j] = 0.0f;
    }
  }
  // All of x that the tile reads is asked for before any of it is used.
  Vector tile[ROWS][SPAN];
  F_UNROLL
  for (int row = 0; row < ROWS; ++row) {
    // A place before the image is a large unsigned number.
    const int inside = (u32)(top + row) < (u32)z.h;
    const index_t from = F_OFFSET(n, c, top + row, left, z.c, z.h, z.w);
    F_UNROLL
    for (int column = 0; column < SPAN; ++column) {
      tile[row][column] = no_vector();
#ifdef LAYOUT_nchw
      const index_t at = from + column;
#else
      const index_t at = from + (index_t)column * z.c;
#endif
      if (inside && (u32)(left + column) < (u32)z.w) tile[row][column] = load_vector(x + at);
    }
  }
  F_UNROLL
  for (int row = 0; row < ROWS; ++row) {
    float line[SPAN][CV];
    F_UNROLL
    for (int column = 0; column < SPAN; ++column) convert_vector(tile[row][column], line[column]);
    F_UNROLL
    for (int p = 0; p < TP; ++p) {
      // The filter's row that makes this row of x part of the tile's row p, if there is one.
      const int r = (row - p * STRIDE_H) / DILATION_H;
      if (row < p * STRIDE_H || r >= R || r * DILATION_H + p * STRIDE_H != row) continue;
      F_UNROLL
      for (int s = 0; s < S; ++s) {
        float weight[CV];
        convert_vector(load_vector(WEIGHT(r * S + s)), weight);
        F_UNROLL
        for (int q = 0; q < TQ; ++q) {
          F_UNROLL
          for (int j = 0; j < CV; ++j) sums[p][q][j] += line[q * STRIDE_W + s * DILATION_W][j] * weight[j];
        }
      }
    }
  }
  F_UNROLL
  for (int p = 0; p < TP; ++p) {
    if (first_row + p >= z.p) continue;
    F_UNROLL
    for (int q = 0; q < TQ; ++q) {
      if (first_column + q >= z.q) continue;
      const index_t at = F_OFFSET(n, c, first_row + p, first_column + q, z.k, z.p, z.q);
      F_UNROLL
      for (int j = 0; j < CV; ++j) sums[p][q][j] = F_EPILOGUE(sums[p][q][j], c + j, at + j);
      STORE_VECTOR(y, at, sums[p][q]);
    }
  }
}
