// The sum of the parts of a convolution's output, always in the same order, and the epilogue.
//
// The host defines THREADS, and what correlation.h asks for.
#include "kernels/gpu/correlation.h"

F_KERNEL(THREADS)
finish_parts(F_INPUT(float, parts), F_OUTPUT(element_t, out), F_INPUT(element_t, bias), F_INPUT(element_t, residual),
             int splits, Sizes z) {
  F_OPEN_INPUT(float, parts);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  const index_t count = (index_t)z.n * OUT_C * OUT_H * OUT_W;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
#ifdef LAYOUT_nchw
    const int channel = (int)(i / OUT_W / OUT_H % OUT_C);
#else
    const int channel = (int)(i % OUT_C);
#endif
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum += parts[(index_t)split * count + i];
    F_STORE(out, i, F_FINISH(sum, channel, i));
  }
}
