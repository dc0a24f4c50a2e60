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
#define LOAD_VECTOR(p, v) ((v)[0] = F_LOAD(p, 0))
#define STORE_VECTOR(p, at, v) F_STORE(p, at, (v)[0])
#elif CV == 4
#define LOAD_VECTOR(p, v) F_LOAD4(p, 0, v)
#define STORE_VECTOR(p, at, v) F_STORE4(p, at, v)
#else
#define LOAD_VECTOR(p, v) F_LOAD8(p, 0, v)
#define STORE_VECTOR(p, at, v) F_STORE8(p, at, v)
#endif

F_KERNEL(THREADS)
depthwise_tile(F_INPUT(element_t, x), F_INPUT(element_t, w), F_OUTPUT(element_t, y), F_INPUT(element_t, bias),
               F_INPUT(element_t, residual), Sizes z) {
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(element_t, y);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
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
#if TP == 1 && R > 3
  F_NO_UNROLL
  for (int row = 0; row < ROWS; row += DILATION_H) {
#else
  F_UNROLL
  for (int row = 0; row < ROWS; ++row) {
#endif
    float line[SPAN][CV];
    const int inside = top + row >= 0 && top + row < z.h;
    F_GLOBAL const element_t* const from = x + F_OFFSET(n, c, top + row, left, z.c, z.h, z.w);
    F_UNROLL
    for (int column = 0; column < SPAN; ++column) {
      F_UNROLL
      for (int j = 0; j < CV; ++j) line[column][j] = 0.0f;
      if (inside && left + column >= 0 && left + column < z.w) {
#ifdef LAYOUT_nchw
        LOAD_VECTOR(from + column, line[column]);
#else
        LOAD_VECTOR(from + (index_t)column * z.c, line[column]);
#endif
      }
    }
    F_UNROLL
    for (int p = 0; p < TP; ++p) {
      // The filter's row that makes this row of x part of the tile's row p, if there is one.
      const int r = (row - p * STRIDE_H) / DILATION_H;
      if (row < p * STRIDE_H || r >= R || r * DILATION_H + p * STRIDE_H != row) continue;
      F_UNROLL
      for (int s = 0; s < S; ++s) {
        float weight[CV];
        LOAD_VECTOR(WEIGHT(r * S + s), weight);
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
