// Elements along the middle one of three dimensions by a table: element i is element table[i]; -1: it is `fill`. The host
// defines THREADS, BYTES of an element (1, 2, 4, 8 or 16), and WIDE as index.h has it.
#include "kernels/gpu/index.h"
#include "kernels/gpu/raw_element.h"
#if BYTES == 16
#define AS_ELEMENT(bits) nothing  // of four words, all that is filled in is zero
#else
#define AS_ELEMENT(bits) ((element_t)(bits))
#endif

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
    const index_t line = i / inner, outer = line / (index_t)results;
    const int row = table[line - outer * (index_t)results];
    to[i] = row < 0 ? AS_ELEMENT(fill) : from[(outer * (index_t)length + row) * inner + (i - line * inner)];
  }
}
