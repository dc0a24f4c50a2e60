// The direct algorithm: one thread sums TILE results (neighbouring channels at one pixel), each product in
// turn. Nothing is shared and nothing is assumed, so that it serves every problem.
//
// The host defines THREADS, TILE, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

// sums[t] = the convolution's output (n, k + t, p, q), before the epilogue. Channels up to `last` exist.
F_DEVICE void convolve(F_GLOBAL const element_t* x, F_GLOBAL const element_t* w, Sizes z, int n, int k, int last,
                       int p, int q, float* sums) {
  const int top = p * STRIDE_H - z.pad_top, left = q * STRIDE_W - z.pad_left;
  const int first_c = k / z.group_k * z.group_c;
  F_UNROLL
  for (int t = 0; t < TILE; ++t) sums[t] = 0.0f;
  for (int c = 0; c < z.group_c; ++c) {
    for (int r = 0; r < R; ++r) {
      const int h = top + r * DILATION_H;
      if (h < 0 || h >= z.h) continue;
      for (int s = 0; s < S; ++s) {
        const int column = left + s * DILATION_W;
        if (column < 0 || column >= z.w) continue;
        const float a = F_LOAD(x, F_OFFSET(n, first_c + c, h, column, z.x_pitch, z.h, z.w));
        F_UNROLL
        for (int t = 0; t < TILE; ++t) {
          sums[t] += a * F_LOAD(w, F_OFFSET(F_MIN(k + t, last), c, r, s, z.group_c, R, S));
        }
      }
    }
  }
}

// Splits i into a group's tile of channels and a pixel, the fastest in memory fastest: gives n, the first and the
// last channel, and the pixel.
#ifdef LAYOUT_nchw
#define F_SPLIT(i, H, W, channels)                                                                            \
  const int column = (int)(i % (W)), row = (int)(i / (W) % (H));                                              \
  const int tile = (int)(i / (W) / (H) % (z.groups * tiles)), n = (int)(i / (W) / (H) / (z.groups * tiles)); \
  F_TILE(channels)
#else
#define F_SPLIT(i, H, W, channels)                                                                           \
  const int tile = (int)(i % (z.groups * tiles));                                                            \
  const int column = (int)(i / (z.groups * tiles) % (W)), row = (int)(i / (z.groups * tiles) / (W) % (H)),   \
            n = (int)(i / (z.groups * tiles) / (W) / (H));                                                   \
  F_TILE(channels)
#endif
#define F_TILE(channels)                                          \
  const int group = tile / tiles, first = group * (channels) + tile % tiles * TILE, \
            last = group * (channels) + (channels)-1;

F_KERNEL(THREADS)
direct_forward(F_FORWARD_TENSORS, Sizes z) {
  F_OPEN_FORWARD_TENSORS
  const int tiles = (z.group_k + TILE - 1) / TILE;
  const index_t count = (index_t)z.n * z.groups * tiles * z.y_h * z.y_w;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    F_SPLIT(i, z.y_h, z.y_w, z.group_k)
    float sums[TILE];
#ifdef POOL_none
    convolve(x, w, z, n, first, last, row, column, sums);
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
      if (first + t > last) break;
      const index_t offset = F_OFFSET(n, first + t, row, column, z.y_pitch, z.p, z.q);
      F_STORE(y, offset, F_EPILOGUE(sums[t], first + t, offset));
    }
#else
    float pooled[TILE];
    int inside = 0;
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
#ifdef POOL_maxpool
      pooled[t] = -F_INFINITY;
#else
      pooled[t] = 0.0f;
#endif
    }
    for (int v = 0; v < POOL_H; ++v) {
      const int p = row * POOL_STRIDE_H - z.pool_pad_top + v;
      if (p < 0 || p >= z.p) continue;
      for (int u = 0; u < POOL_W; ++u) {
        const int q = column * POOL_STRIDE_W - z.pool_pad_left + u;
        if (q < 0 || q >= z.q) continue;
        ++inside;
        convolve(x, w, z, n, first, last, p, q, sums);
        F_UNROLL
        for (int t = 0; t < TILE; ++t) {
          const int k = F_MIN(first + t, last);
          const float value = F_EPILOGUE(sums[t], k, F_OFFSET(n, k, p, q, z.y_pitch, z.p, z.q));
#ifdef POOL_maxpool
          pooled[t] = F_ISNAN(value) || value > pooled[t] ? value : pooled[t];
#else
          pooled[t] += value;
#endif
        }
      }
    }
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
      if (first + t > last) break;
#ifdef POOL_avgpool
      pooled[t] /= (float)inside;
#endif
      F_STORE(y, F_OFFSET(n, first + t, row, column, z.y_pitch, z.y_h, z.y_w), pooled[t]);
    }
#endif
  }
}

F_KERNEL(THREADS)
direct_backward_data(F_BACKWARD_DATA_TENSORS, Sizes z) {
  F_OPEN_BACKWARD_DATA_TENSORS
  const int tiles = (z.group_c + TILE - 1) / TILE;
  const index_t count = (index_t)z.n * z.groups * tiles * z.h * z.w;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    F_SPLIT(i, z.h, z.w, z.group_c)
    float sums[TILE];
    F_UNROLL
    for (int t = 0; t < TILE; ++t) sums[t] = 0.0f;
    for (int k = group * z.group_k; k < (group + 1) * z.group_k; ++k) {
      for (int r = 0; r < R; ++r) {
        const int p = y_place(row + z.pad_top - r * DILATION_H, STRIDE_H, z.p);
        if (p < 0) continue;
        for (int s = 0; s < S; ++s) {
          const int q = y_place(column + z.pad_left - s * DILATION_W, STRIDE_W, z.q);
          if (q < 0) continue;
          const float a = F_LOAD(y, F_OFFSET(n, k, p, q, z.k, z.p, z.q));
          F_UNROLL
          for (int t = 0; t < TILE; ++t) {
            const int c = F_MIN(first + t, last) - group * z.group_c;
            sums[t] += a * F_LOAD(w, F_OFFSET(k, c, r, s, z.group_c, R, S));
          }
        }
      }
    }
    F_UNROLL
    for (int t = 0; t < TILE; ++t) {
      if (first + t > last) break;
      F_STORE(x, F_OFFSET(n, first + t, row, column, z.c, z.h, z.w), sums[t]);
    }
  }
}

F_KERNEL(THREADS)
direct_backward_weights(F_INPUT(element_t, x), F_OUTPUT(element_t, w), F_INPUT(element_t, y), Sizes z) {
  F_OPEN_INPUT(element_t, x);
  F_OPEN_OUTPUT(element_t, w);
  F_OPEN_INPUT(element_t, y);
  const index_t count = (index_t)z.k * z.group_c * R * S;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
#ifdef LAYOUT_nchw
    const int s = (int)(i % S), r = (int)(i / S % R), c = (int)(i / (R * S) % z.group_c);
#else
    const int c = (int)(i % z.group_c), s = (int)(i / z.group_c % S), r = (int)(i / z.group_c / S % R);
#endif
    const int k = (int)(i / (R * S) / z.group_c), input_c = k / z.group_k * z.group_c + c;
    float sum = 0.0f;
    for (int n = 0; n < z.n; ++n) {
      for (int p = 0; p < z.p; ++p) {
        const int h = p * STRIDE_H - z.pad_top + r * DILATION_H;
        if (h < 0 || h >= z.h) continue;
        for (int q = 0; q < z.q; ++q) {
          const int column = q * STRIDE_W - z.pad_left + s * DILATION_W;
          if (column < 0 || column >= z.w) continue;
          sum += F_LOAD(x, F_OFFSET(n, input_c, h, column, z.c, z.h, z.w)) *
                 F_LOAD(y, F_OFFSET(n, k, p, q, z.k, z.p, z.q));
        }
      }
    }
    F_STORE(w, i, sum);
  }
}
