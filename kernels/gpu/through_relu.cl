// The gradient of a ReLU, in place: zero where what the ReLU gave is not above zero. A NaN lets it pass.
//
// The host defines THREADS, and what convolution.h asks for; the sizes are of a row of z.q pixels.
#include "kernels/gpu/convolution.h"

F_KERNEL(THREADS)
through_relu(F_INPUT(element_t, relu), F_OUTPUT(element_t, x), Sizes z) {
  F_OPEN_INPUT(element_t, relu);
  F_OPEN_OUTPUT(element_t, x);
  const index_t count = (index_t)z.n * z.k * z.q;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    if (F_LOAD(relu, i) <= 0.0f) F_STORE(x, i, 0.0f);
  }
}
