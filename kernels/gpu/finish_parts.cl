// The sum of the parts of a convolution's output, always in the same order, and the epilogue.
//
// The host defines THREADS, and what correlation.h asks for.
#include "kernels/gpu/correlation.h"

#ifdef LAYOUT_nchw
#define CHANNEL(i) ((int)((i) / (OUT_H * OUT_W) % OUT_C))
#define NEXT_CHANNEL 0
#define RUN (OUT_H * OUT_W)
#else
#define CHANNEL(i) ((int)((i) % OUT_C))
#define NEXT_CHANNEL 1
#define RUN OUT_C
#endif

F_KERNEL(THREADS)
finish_parts(F_INPUT(float, parts), F_OUTPUT(element_t, out), F_INPUT(element_t, bias), F_INPUT(element_t, residual),
             F_INPUT(float, slopes), int splits, Sizes z) {
  F_OPEN_INPUT(float, parts);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  const index_t count = (index_t)z.n * OUT_C * OUT_H * OUT_W;
  const index_t start = (index_t)F_BLOCK(0) * THREADS + F_THREAD(), step = (index_t)F_BLOCKS(0) * THREADS;
  // Four neighbours at once, if none of a four has another row of channels, or plane.
  const int fours = RUN % 4 == 0 && F_IS_ALIGNED4(out);
  if (fours) {
    for (index_t i = start * 4; i < count; i += step * 4) {
      float sums[4];
      load4_f32(parts + i, sums);
      for (int split = 1; split < splits; ++split) {
        float more[4];
        load4_f32(parts + ((size_t)split * count + i), more);
        F_UNROLL
        for (int j = 0; j < 4; ++j) sums[j] += more[j];
      }
      const int channel = CHANNEL(i);
      F_UNROLL
      for (int j = 0; j < 4; ++j) sums[j] = F_FINISH(sums[j], channel + j * NEXT_CHANNEL, i + j);
      F_STORE4(out, i, sums);
    }
    return;
  }
  for (index_t i = start; i < count; i += step) {
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum += parts[(size_t)split * count + i];
    F_STORE(out, i, F_FINISH(sum, CHANNEL(i), i));
  }
}
