// Pixels of a few channels out of planes, with an elementwise chain of one input on the way: a thread reads V pixels of
// each plane, and writes them as one piece.
//
// The host defines THREADS; RANK of the other dimensions, at least 1; CHANNELS; INPUT_TYPE and RESULT_TYPE, the latter of
// 16 bits; V as 8; CHAIN and RESULT (chain.h); and WIDE as index.h has it.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/chain.h"
#include "kernels/gpu/digits.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

// As in src/network/device_map.cpp.
typedef struct {
  index_t count;   // of V pixels
  Divisor groups;  // of V, in a plane
  index_t plane;   // elements from plane to plane
  index_t begin[2];
  Divisor sizes[RANK];
  index_t strides[2][RANK];
} FewSizes;

F_KERNEL(THREADS)
few_channels(F_INPUT(JOINED(INPUT_TYPE, _t), from), F_OUTPUT(JOINED(RESULT_TYPE, _t), to), FewSizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(JOINED(INPUT_TYPE, _t), from);
  F_OPEN_OUTPUT(JOINED(RESULT_TYPE, _t), to);
  F_NO_UNROLL  // most threads have one turn
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < z.count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t image = quotient(i, z.groups), group = i - image * z.groups.size;
    index_t here = z.begin[0] + group * V, there = z.begin[1] + group * (V * CHANNELS);
    F_ADD_DIGITS(image, z, here, there)
    float pixels[V * CHANNELS];
    F_UNROLL
    for (int c = 0; c < CHANNELS; ++c) {
      float plane[V];
      JOINED(read_, INPUT_TYPE)(from + here + c * z.plane, plane);
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        const float v0 = plane[j];
        CHAIN
        pixels[j * CHANNELS + c] = RESULT;
      }
    }
    F_UNROLL
    for (int c = 0; c < CHANNELS; ++c) JOINED(write_, RESULT_TYPE)(to + there + c * V, pixels + c * V);
  }
}
