// Each input channel on its own: a group has one input channel and z.group_k output channels. Threads run along
// what lies together in memory; a thread has TILE neighbouring results of a row, so that they share what they read.
//
// The host defines DIRECTION_fwd, DIRECTION_bwd_d or DIRECTION_bwd_w, THREADS, TILE, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

// Splits i into a channel, a row and TILE columns from `first` on; the fastest in memory is the fastest.
#ifdef LAYOUT_nchw
#define F_SPLIT(i, C, H, W)                                                                          \
  const int tiles = ((W) + TILE - 1) / TILE;                                                         \
  const int first = (int)(i % tiles) * TILE, row = (int)(i / tiles % (H)), c = (int)(i / tiles / (H) % (C)), \
            n = (int)(i / tiles / (H) / (C));
#else
#define F_SPLIT(i, C, H, W)                                                                          \
  const int tiles = ((W) + TILE - 1) / TILE;                                                         \
  const int c = (int)(i % (C)), first = (int)(i / (C) % tiles) * TILE, row = (int)(i / (C) / tiles % (H)), \
            n = (int)(i / (C) / tiles / (H));
#endif

#ifdef DIRECTION_fwd
// The columns of x that TILE neighbouring results read.
#define SPAN ((TILE - 1) * STRIDE_W + (S - 1) * DILATION_W + 1)
F_KERNEL(THREADS)
depthwise(F_FORWARD_TENSORS, Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_FORWARD_TENSORS
  const index_t count = (index_t)z.n * z.k * z.p * ((z.q + TILE - 1) / TILE);
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    F_SPLIT(i, z.k, z.p, z.q)
    const int in_c = c / z.group_k, left = first * STRIDE_W - z.pad_left;
    float sums[TILE];
    F_UNROLL
    for (int t = 0; t < TILE; ++t) sums[t] = 0.0f;
    for (int r = 0; r < R; ++r) {
      const int h = row * STRIDE_H - z.pad_top + r * DILATION_H;
      if (h < 0 || h >= z.h) continue;
#if SPAN <= 24
      float line[SPAN];
      F_UNROLL
      for (int j = 0; j < SPAN; ++j) {
        const int column = left + j;
        line[j] = column >= 0 && column < z.w ? F_LOAD(x, F_OFFSET(n, in_c, h, column, z.c, z.h, z.w)) : 0.0f;
      }
      F_UNROLL
      for (int s = 0; s < S; ++s) {
        const float b = F_LOAD(w, F_OFFSET(c, 0, r, s, 1, R, S));
        F_UNROLL
        for (int t = 0; t < TILE; ++t) sums[t] += line[t * STRIDE_W + s * DILATION_W] * b;
      }
#else
      for (int s = 0; s < S; ++s) {
        const float b = F_LOAD(w, F_OFFSET(c, 0, r, s, 1, R, S));
        F_UNROLL
        for (int t = 0; t < TILE; ++t) {
          const int column = left + t * STRIDE_W + s * DILATION_W;
          if (column >= 0 && column < z.w) sums[t] += F_LOAD(x, F_OFFSET(n, in_c, h, column, z.c, z.h, z.w)) * b;
        }
      }
#endif
    }
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
      if (first + t < z.q) {
        const index_t offset = F_OFFSET(n, c, row, first + t, z.k, z.p, z.q);
        F_STORE(y, offset, F_EPILOGUE(sums[t], c, offset));
      }
    }
  }
}
#endif

#ifdef DIRECTION_bwd_d
F_KERNEL(THREADS)
depthwise(F_BACKWARD_DATA_TENSORS, Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_BACKWARD_DATA_TENSORS
  const index_t count = (index_t)z.n * z.c * z.h * ((z.w + TILE - 1) / TILE);
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    F_SPLIT(i, z.c, z.h, z.w)
    float sums[TILE];
    F_UNROLL
    for (int t = 0; t < TILE; ++t) sums[t] = 0.0f;
    for (int k = c * z.group_k; k < (c + 1) * z.group_k; ++k) {
      for (int r = 0; r < R; ++r) {
        const int p = y_place(row + z.pad_top - r * DILATION_H, STRIDE_H, z.p);
        if (p < 0) continue;
        for (int s = 0; s < S; ++s) {
          const float b = F_LOAD(w, F_OFFSET(k, 0, r, s, 1, R, S));
          F_UNROLL
          for (int t = 0; t < TILE; ++t) {
            const int q = y_place(first + t + z.pad_left - s * DILATION_W, STRIDE_W, z.q);
            if (q >= 0) sums[t] += F_LOAD(y, F_OFFSET(n, k, p, q, z.k, z.p, z.q)) * b;
          }
        }
      }
    }
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
      if (first + t < z.w) F_STORE(x, F_OFFSET(n, c, row, first + t, z.c, z.h, z.w), sums[t]);
    }
  }
}
#endif

#ifdef DIRECTION_bwd_w
// A block sums one element of the filter: each thread some of the rows, then all of them in a fixed order.
F_KERNEL(THREADS)
depthwise(F_INPUT(element_t, x), F_OUTPUT(element_t, w), F_INPUT(element_t, y), Sizes z) {
  F_LOCAL_ARRAY(float, parts, THREADS);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, x);
  F_OPEN_OUTPUT(element_t, w);
  F_OPEN_INPUT(element_t, y);
  const int thread = F_THREAD();
  // Neighbouring blocks read the same planes.
  index_t i = F_BLOCK(0);  // there are no more blocks than elements
  do {
    const int k = (int)(i / (R * S)), r = (int)(i / S % R), s = (int)(i % S), c = k / z.group_k;
    float sum = 0.0f;
    for (index_t first = 0; first < (index_t)z.n * z.p; first += THREADS) {
      const index_t row = first + thread;
      if (row >= (index_t)z.n * z.p) continue;
      const int n = (int)(row / z.p), p = (int)(row % z.p);
      const int h = p * STRIDE_H - z.pad_top + r * DILATION_H;
      if (h < 0 || h >= z.h) continue;
      for (int q = 0; q < z.q; ++q) {
        const int column = q * STRIDE_W - z.pad_left + s * DILATION_W;
        if (column < 0 || column >= z.w) continue;
        sum += F_LOAD(x, F_OFFSET(n, c, h, column, z.c, z.h, z.w)) * F_LOAD(y, F_OFFSET(n, k, p, q, z.k, z.p, z.q));
      }
    }
    parts[thread] = sum;
    F_BARRIER();
    for (int width = THREADS / 2; width > 0; width /= 2) {
      if (thread < width) parts[thread] += parts[thread + width];
      F_BARRIER();
    }
    if (thread == 0) F_STORE(w, F_OFFSET(k, 0, r, s, 1, R, S), parts[0]);
    F_BARRIER();
    i += F_BLOCKS(0);
  } while (i < (index_t)z.k * R * S);
}
#endif
