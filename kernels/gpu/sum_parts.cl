// The host defines THREADS, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

// The parts' sum, always in the same order.
F_KERNEL(THREADS)
sum_parts(F_INPUT(float, partial), F_OUTPUT(element_t, w), int splits, Sizes z) {
  F_OPEN_INPUT(float, partial);
  F_OPEN_OUTPUT(element_t, w);
  const index_t count = (index_t)z.k * R * S * z.group_c;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum += partial[(index_t)split * count + i];
    F_STORE(w, i, sum);
  }
}
