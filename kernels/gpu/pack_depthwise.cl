// The host defines THREADS, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

// The filters of a depthwise convolution, [channel][tap], as [tap][channel].
F_KERNEL(THREADS)
pack_depthwise(F_INPUT(element_t, w), F_OUTPUT(element_t, packed), Sizes z) {
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(element_t, packed);
  const int count = z.k * R * S;
  for (int i = F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += F_BLOCKS(0) * THREADS) {
    packed[i] = w[i % z.k * (R * S) + i / z.k];
  }
}
