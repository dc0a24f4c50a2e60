// Pooling as a step of its own, after a convolution that does not fuse it: one thread a result.
//
// The host defines THREADS, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

F_KERNEL(THREADS)
pool(F_INPUT(element_t, conv), F_OUTPUT(element_t, y), Sizes z) {
  F_OPEN_INPUT(element_t, conv);
  F_OPEN_OUTPUT(element_t, y);
  const index_t count = (index_t)z.n * z.k * z.y_h * z.y_w;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
#ifdef LAYOUT_nchw
    const int column = (int)(i % z.y_w), row = (int)(i / z.y_w % z.y_h);
    const int k = (int)(i / z.y_w / z.y_h % z.k), n = (int)(i / z.y_w / z.y_h / z.k);
#else
    const int k = (int)(i % z.k), column = (int)(i / z.k % z.y_w);
    const int row = (int)(i / z.k / z.y_w % z.y_h), n = (int)(i / z.k / z.y_w / z.y_h);
#endif
#ifdef POOL_maxpool
    float pooled = -F_INFINITY;
#else
    float pooled = 0.0f;
#endif
    int inside = 0;
    for (int v = 0; v < POOL_H; ++v) {
      const int p = row * POOL_STRIDE_H - z.pool_pad_top + v;
      if (p < 0 || p >= z.p) continue;
      for (int u = 0; u < POOL_W; ++u) {
        const int q = column * POOL_STRIDE_W - z.pool_pad_left + u;
        if (q < 0 || q >= z.q) continue;
        ++inside;
        const float value = F_LOAD(conv, F_OFFSET(n, k, p, q, z.k, z.p, z.q));
#ifdef POOL_maxpool
        pooled = F_ISNAN(value) || value > pooled ? value : pooled;
#else
        pooled += value;
#endif
      }
    }
#ifdef POOL_avgpool
    pooled /= (float)inside;
#endif
    F_STORE(y, i, pooled);
  }
}
