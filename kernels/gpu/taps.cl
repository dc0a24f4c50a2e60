// Weighted sums along the middle one of three dimensions: result i is the sum over t < TAPS of weight[i * TAPS + t] times
// element table[i * TAPS + t]. A thread computes V neighbours of the inner dimension. The host defines THREADS, TAPS,
// FROM_TYPE, TO_TYPE, and what elements.h asks for.
#include "kernels/gpu/elements.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

F_KERNEL(THREADS)
taps(F_INPUT(JOINED(FROM_TYPE, _t), from), F_INPUT(int, table), F_INPUT(float, weight), F_OUTPUT(JOINED(TO_TYPE, _t), to),
     i64 units, i64 length, i64 results, i64 inner_units) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(JOINED(FROM_TYPE, _t), from);
  F_OPEN_INPUT(int, table);
  F_OPEN_INPUT(float, weight);
  F_OPEN_OUTPUT(JOINED(TO_TYPE, _t), to);
  const index_t count = (index_t)units, inner = (index_t)inner_units;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t line = i / inner, outer = line / (index_t)results;
    const int first = (int)(line - outer * (index_t)results) * TAPS;
    float sums[V];
    F_UNROLL
    for (int j = 0; j < V; ++j) sums[j] = 0.0f;
    for (int t = first; t < first + TAPS; ++t) {
      float x[V];
      JOINED(read_, FROM_TYPE)(from + ((outer * (index_t)length + table[t]) * inner + (i - line * inner)) * V, x);
      F_UNROLL
      for (int j = 0; j < V; ++j) sums[j] += weight[t] * x[j];
    }
    JOINED(write_, TO_TYPE)(to + i * V, sums);
  }
}
