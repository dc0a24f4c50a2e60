// The host defines THREADS, REORDERS (1: the parts' order is k, r, s, c in either layout; else it is the filter's own),
// and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define AT_ONCE 8  // so many loads are under way

// The parts' sum, always in the same order.
F_KERNEL(THREADS)
sum_parts(F_INPUT(float, partial), F_OUTPUT(element_t, w), int splits, Sizes z) {
  F_OPEN_INPUT(float, partial);
  F_OPEN_OUTPUT(element_t, w);
  const index_t count = (index_t)z.k * R * S * z.group_c;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    float sum = 0.0f;
    int split = 0;
    for (; split + AT_ONCE <= splits; split += AT_ONCE) {
      float parts[AT_ONCE];
      F_UNROLL
      for (int j = 0; j < AT_ONCE; ++j) parts[j] = partial[(size_t)(split + j) * count + i];
      F_UNROLL
      for (int j = 0; j < AT_ONCE; ++j) sum += parts[j];
    }
    for (; split < splits; ++split) sum += partial[(size_t)split * count + i];
#if REORDERS && defined(LAYOUT_nchw)
    const index_t c = i % z.group_c, tap = i / z.group_c % (R * S), k = i / z.group_c / (R * S);
    F_STORE(w, (k * z.group_c + c) * (R * S) + tap, sum);
#else
    F_STORE(w, i, sum);
#endif
  }
}
