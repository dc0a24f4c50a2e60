// Pooling as a step of its own, after a convolution that does not fuse it: a thread takes several results that lie
// together, so that neighbours are read by few loads.
//
// NHWC: V channels of a pixel, by one load each, of slices of tensors of so many channels as the pitches say. NCHW: V results
// of a row. Where the stride is 2 and the rows are aligned (F_WIDE_ROWS: 1, or 2 where there is padding before them), what
// they read is an aligned run of 2 V pixels and one beside it; else (0) each pixel by itself.
// The host defines THREADS, V (1, 4; 8 of NHWC's 16-bit channels), F_WIDE_ROWS, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/v_elements.h"

#ifdef POOL_maxpool
#define NOTHING (-F_INFINITY)
#define JOIN(pooled, value) ((pooled) = F_ISNAN(value) || (value) > (pooled) ? (value) : (pooled))
#else
#define NOTHING 0.0f
#define JOIN(pooled, value) ((pooled) += (value))
#endif

// Of `size` neighbours from `first` on, how many there are among `count`.
F_DEVICE int among(int first, int size, int count) {
  const int from = first < 0 ? 0 : first, to = first + size < count ? first + size : count;
  return to - from;
}

F_KERNEL(THREADS)
pool(F_INPUT(element_t, conv), F_OUTPUT(element_t, y), int from_pitch, int to_pitch, Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, conv);
  F_OPEN_OUTPUT(element_t, y);
#ifdef LAYOUT_nchw
  const int across = (z.y_w + V - 1) / V;  // threads a row
  const index_t rows = (index_t)z.n * z.k * z.y_h;
#else
  const int across = z.k / V * z.y_w;
  const index_t rows = (index_t)z.n * z.y_h;
#endif
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < rows * across; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t line = i / across, plane = line / z.y_h;  // of results; an image, with NCHW of one channel
    const int at = (int)(i - line * across), top = (int)(line - plane * z.y_h) * POOL_STRIDE_H - z.pool_pad_top;
    float pooled[V];
    F_UNROLL
    for (int j = 0; j < V; ++j) pooled[j] = NOTHING;
#ifdef LAYOUT_nchw
    const int first = at * V, left = first * POOL_STRIDE_W - z.pool_pad_left;
    for (int v = 0; v < POOL_H; ++v) {
      if (top + v < 0 || top + v >= z.p) continue;
      const index_t row = (plane * z.p + top + v) * z.q;
#if F_WIDE_ROWS
      // The run, and the pixel before it or behind it.
      float pixels[2 * V + 2];
      F_UNROLL
      for (int j = 0; j < 2 * V; j += 4) F_LOAD4(conv, row + first * 2 + j, pixels + 1 + j);
      const bool before = first > 0, behind = first * 2 + 2 * V < z.q;
      pixels[0] = before && F_WIDE_ROWS == 2 ? F_LOAD(conv, row + first * 2 - 1) : NOTHING;
      pixels[2 * V + 1] = behind && F_WIDE_ROWS == 1 && POOL_W == 3 ? F_LOAD(conv, row + first * 2 + 2 * V) : NOTHING;
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        F_UNROLL
        for (int u = 0; u < POOL_W; ++u) {
          const float value = pixels[2 * j + u + 2 - F_WIDE_ROWS];  // places that compilers know stay in registers
          JOIN(pooled[j], value);
        }
      }
#else
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        for (int u = 0; u < POOL_W; ++u) {
          const int q = left + j * POOL_STRIDE_W + u;
          if (q < 0 || q >= z.q) continue;
          const float value = F_LOAD(conv, row + q);
          JOIN(pooled[j], value);
        }
      }
#endif
    }
    const index_t to = line * z.y_w + first;
    const int results = z.y_w - first < V ? z.y_w - first : V;
#else
    const int column = at / (z.k / V), k = (at - column * (z.k / V)) * V, left = column * POOL_STRIDE_W - z.pool_pad_left;
    for (int v = 0; v < POOL_H; ++v) {
      if (top + v < 0 || top + v >= z.p) continue;
      for (int u = 0; u < POOL_W; ++u) {
        if (left + u < 0 || left + u >= z.q) continue;
        const index_t from = ((plane * z.p + top + v) * z.q + left + u) * from_pitch + k;
        float values[V];
        LOAD_V(conv, from, values);
        F_UNROLL
        for (int j = 0; j < V; ++j) JOIN(pooled[j], values[j]);
      }
    }
    const index_t to = (line * z.y_w + column) * to_pitch + k;
    const int results = V;
#endif
#ifdef POOL_avgpool
    const int in_height = among(top, POOL_H, z.p);
    F_UNROLL
    for (int j = 0; j < V; ++j) {
#ifdef LAYOUT_nchw
      const int in_width = among(left + j * POOL_STRIDE_W, POOL_W, z.q);
#else
      const int in_width = among(left, POOL_W, z.q);
#endif
      pooled[j] /= (float)(in_height * in_width);
    }
#endif
    if (results == V && F_IS_ALIGNED(y + to, V)) {
      STORE_V(y, to, pooled);
      continue;
    }
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      if (j < results) F_STORE(y, to + j, pooled[j]);
    }
  }
}
