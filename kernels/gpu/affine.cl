// x through a scale and a shift of its channels, and a ReLU, stored for a convolution that reads x as it is: the pass
// before it. A thread takes V elements that lie together and have, in NCHW, one channel.
//
// The host defines THREADS, V (1, 4; 8 of 16-bit elements), of which the channels, or in NCHW the pixels of a plane, are a
// multiple, HAS_RELU, and what convolution.h asks for; the sizes are of a row of z.q pixels, z.k channels of a tensor of
// z.y_pitch.
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/v_elements.h"

// One rounding everywhere, so that what is stored is the same: F_FMA is two where fusing takes long, which a pass over
// memory hides.
#ifdef __OPENCL_VERSION__
#define SCALED(x, scale, shift) fma(x, scale, shift)
#else
#define SCALED(x, scale, shift) F_FMA(x, scale, shift)
#endif

F_KERNEL(THREADS)
affine(F_INPUT(element_t, x), F_INPUT(float, scale), F_INPUT(float, shift), F_OUTPUT(element_t, to), Sizes z) {
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(float, scale);
  F_OPEN_INPUT(float, shift);
  F_OPEN_OUTPUT(element_t, to);
  const int whole = F_IS_ALIGNED(x, V);  // a slice need not be
  const index_t count = (index_t)z.n * z.k * z.q;
  for (index_t i = ((index_t)F_BLOCK(0) * THREADS + F_THREAD()) * V; i < count; i += (index_t)F_BLOCKS(0) * THREADS * V) {
#ifdef LAYOUT_nchw
    const index_t plane = i / z.q, image = plane / z.k;
    const int c = (int)(plane - image * z.k);
    const index_t from = (image * z.y_pitch + c) * z.q + (i - plane * z.q);
#else
    const index_t pixel = i / z.k;
    const int c = (int)(i - pixel * z.k);
    const index_t from = pixel * z.y_pitch + c;
#endif
    float v[V];
    if (whole) {
      LOAD_V(x, from, v);
    } else {
      F_UNROLL
      for (int j = 0; j < V; ++j) v[j] = F_LOAD(x, from + j);
    }
    F_UNROLL
    for (int j = 0; j < V; ++j) {
#ifdef LAYOUT_nchw
      v[j] = SCALED(v[j], scale[c], shift[c]);
#else
      v[j] = SCALED(v[j], scale[c + j], shift[c + j]);
#endif
#if HAS_RELU
      v[j] = v[j] < 0.0f ? 0.0f : v[j];
#endif
    }
    STORE_V(to, i, v);
  }
}
