// Elements along the middle one of three dimensions by a table: element i is element table[i]; -1: it is `fill`. The host
// defines THREADS, BYTES of an element (1, 2, 4, 8 or 16), V, how many neighbours a thread writes at once (1; or 8 of 2
// bytes, where the inner dimension is 1 and so many divide the results), and WIDE as index.h has it.
#include "kernels/gpu/index.h"
#include "kernels/gpu/raw_element.h"
#if BYTES == 16
#define AS_ELEMENT(bits) nothing  // of four words, all that is filled in is zero
#else
#define AS_ELEMENT(bits) ((element_t)(bits))
#endif

// elements: in units of V.
F_KERNEL(THREADS)
pick(F_INPUT(element_t, from), F_INPUT(int, table), F_OUTPUT(element_t, to), i64 elements, i64 length, i64 results,
     i64 inner_size, i64 fill) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_INPUT(int, table);
  F_OPEN_OUTPUT(element_t, to);
  const index_t count = (index_t)elements, inner = (index_t)inner_size;
#if BYTES == 16
#ifdef __OPENCL_VERSION__
  const element_t nothing = (uint4)(0u);
#else
  const element_t nothing = make_uint4(0u, 0u, 0u, 0u);
#endif
#endif
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
#if V == 8
    const index_t units = (index_t)results / V, outer = i / units, first = (i - outer * units) * V;
    F_ALIGNED16 element_t picked[V];
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      const int row = table[first + j];
      picked[j] = row < 0 ? AS_ELEMENT(fill) : from[outer * (index_t)length + row];
    }
    store8_u16(to + i * V, picked);
#else
    const index_t line = i / inner, outer = line / (index_t)results;
    const int row = table[line - outer * (index_t)results];
    to[i] = row < 0 ? AS_ELEMENT(fill) : from[(outer * (index_t)length + row) * inner + (i - line * inner)];
#endif
  }
}
