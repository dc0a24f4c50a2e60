// Elements along the two middle ones of four dimensions by a table each: element i of a dimension is element table[i]; where
// either has -1, it is `fill`. The host defines THREADS, BYTES of an element (1, 2, 4, 8 or 16), TWO_AXES: 0 where the first
// of both has one element, without a table; V, how many neighbours a thread writes at once, which divides all: 1; or, where
// the innermost dimension is 1, 8 of 2 bytes or 4 of 4; and WIDE as index.h has it.
#include "kernels/gpu/index.h"
#include "kernels/gpu/raw_element.h"
#if BYTES == 16
#define AS_ELEMENT(bits) nothing  // of four words, all that is filled in is zero
#else
#define AS_ELEMENT(bits) ((element_t)(bits))
#endif
#if V > 1
#define INNER 1
#else
#define INNER inner
#endif

// rows, columns: of the input; row_results, column_results: of the result, whose elements are counted in units of V.
F_KERNEL(THREADS)
pick(F_INPUT(element_t, from), F_INPUT(int, row_table), F_INPUT(int, column_table), F_OUTPUT(element_t, to), i64 elements,
     i64 rows, i64 row_results, i64 columns, i64 column_results, i64 inner_size, i64 fill) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_INPUT(int, row_table);
  F_OPEN_INPUT(int, column_table);
  F_OPEN_OUTPUT(element_t, to);
  const index_t count = (index_t)elements, inner = (index_t)inner_size, across = (index_t)column_results;
#if BYTES == 16
#ifdef __OPENCL_VERSION__
  const element_t nothing = (uint4)(0u);
#else
  const element_t nothing = make_uint4(0u, 0u, 0u, 0u);
#endif
#endif
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t pixel = i * V / INNER;
    index_t line = pixel / across, column = pixel - line * across, begin = -1;
    F_ALIGNED16 element_t picked[V];
    F_UNROLL
    for (int j = 0; j < V; ++j) {
      if (j == 0 || column == across) {
        if (j > 0) column = 0, ++line;
#if TWO_AXES
        const index_t outer = line / (index_t)row_results;
        const int row = row_table[line - outer * (index_t)row_results];
        begin = row < 0 ? -1 : (outer * (index_t)rows + row) * (index_t)columns;
#else
        begin = line * (index_t)columns;
#endif
      }
      const int at = column_table[column];
      picked[j] = at < 0 || begin < 0 ? AS_ELEMENT(fill) : from[(begin + at) * INNER + (i * V + j - (pixel + j) * INNER)];
      ++column;
    }
#if V == 8
    store8_u16(to + i * V, picked);
#elif V == 4
    store4_u32(to + i * V, picked);
#else
    to[i] = picked[0];
#endif
  }
}
