// Elements along the two middle ones of four dimensions (outer, rows, columns, inner) by a table each: element i of a
// dimension is element table[i]; where either has -1, it is `fill`.
//
// The host defines THREADS, BYTES of an element (1, 2, 4, 8 or 16); TWO_AXES: 0 where the first of both has one element,
// without a table; STRETCH, 1, 2, 4 or 8, where element i of the columns is element (i + shift) / STRETCH, or `fill`
// outside, without a table; else 0; V, how many neighbours a thread writes at once, which divides all and is of two
// rows at most: 1; or, where the innermost dimension is 1, 8 of 2 bytes or 4 of 4; WHOLE, 1 where V neighbours are of
// one row, and so are the elements that they repeat, which lie together at a multiple of their size; TOGETHER: so many
// times V of a thread are on their way at once; and WIDE as index.h has it.
#include "kernels/gpu/digits.h"
#include "kernels/gpu/raw_element.h"
#if BYTES == 16
#define AS_ELEMENT(bits) nothing  // of four words, all that is filled in is zero
#else
#define AS_ELEMENT(bits) ((element_t)(bits))
#endif
#if WHOLE
#define RUN (V / STRETCH)
#endif
// Whether it is one of the first so many.
#if WIDE
#define BELOW(place, limit) ((place) >= 0 && (place) < (limit))
#else
#define BELOW(place, limit) ((u32)(place) < (u32)(limit))
#endif
// Where a line of the result has its elements, counted in columns; less than 0 if it is filled.
#if TWO_AXES
#define BEGIN(line) begin_of(line, row_table, z)
#else
#define BEGIN(line) ((line)*z.columns)
#endif

// As in src/network/device_pick.cpp.
typedef struct {
  index_t count;  // of V results each
  Divisor row_results, columns_of_result, inner;
  index_t rows, columns, shift;  // of the input
} PickSizes;

#if TWO_AXES
F_DEVICE index_t begin_of(index_t line, F_GLOBAL const int* row_table, PickSizes z) {
  const index_t outer = quotient(line, z.row_results);
  const int row = row_table[line - outer * z.row_results.size];
  return row < 0 ? -1 : (outer * z.rows + row) * z.columns;
}
#endif

F_KERNEL(THREADS)
pick(F_INPUT(element_t, from), F_INPUT(int, row_table), F_INPUT(int, column_table), F_OUTPUT(element_t, to), i64 fill,
     PickSizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
#if TWO_AXES
  F_OPEN_INPUT(int, row_table);
#endif
#if STRETCH == 0
  F_OPEN_INPUT(int, column_table);
#endif
  F_OPEN_OUTPUT(element_t, to);
#if BYTES == 16
#ifdef __OPENCL_VERSION__
  const element_t nothing = (uint4)(0u);
#else
  const element_t nothing = make_uint4(0u, 0u, 0u, 0u);
#endif
#endif
  const index_t step = (index_t)F_BLOCKS(0) * THREADS;
  F_NO_UNROLL  // most threads have one turn
  for (index_t first = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); first < z.count; first += TOGETHER * step) {
    F_ALIGNED16 element_t picked[TOGETHER][V];
    F_UNROLL
    for (int t = 0; t < TOGETHER; ++t) {
      const index_t i = first + t * step < z.count ? first + t * step : first;
#if V > 1
      const index_t pixel = i * V;
#define WITHIN(place) (place)
#else
      const index_t pixel = quotient(i, z.inner), within = i - pixel * z.inner.size;
#define WITHIN(place) ((place)*z.inner.size + within)
#endif
      const index_t line = quotient(pixel, z.columns_of_result), column = pixel - line * z.columns_of_result.size;
#if WHOLE
      const index_t begin = BEGIN(line);
      element_t run[RUN];
      F_UNROLL
      for (int k = 0; k < RUN; ++k) run[k] = AS_ELEMENT(fill);
      if (begin >= 0) {
        F_GLOBAL const element_t* const p = from + begin + column / STRETCH;
#if BYTES == 2 && RUN == 4
        load4_u16(p, run);
#elif BYTES == 4 && RUN == 2
        load2_u32(p, run);
#else
        F_UNROLL
        for (int k = 0; k < RUN; ++k) run[k] = p[k];
#endif
      }
      F_UNROLL
      for (int j = 0; j < V; ++j) picked[t][j] = run[j / STRETCH];
#else
      // Of this line, and of the next.
      const index_t all = z.columns_of_result.size, begin = BEGIN(line);
      index_t next = begin;
      if (V > 1 && column + V > all) next = BEGIN(line + 1);
#if STRETCH
      const index_t limit = begin < 0 ? 0 : z.columns * STRETCH, limit_of_next = next < 0 ? 0 : z.columns * STRETCH;
#endif
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        const bool goes_on = V > 1 && column + j >= all;
        const index_t c = column + j - (goes_on ? all : 0), of_line = goes_on ? next : begin;
#if STRETCH
        const index_t place = c + z.shift, at = place / STRETCH;
        const bool there_is = BELOW(place, goes_on ? limit_of_next : limit);
#else
        const index_t at = column_table[c];
        const bool there_is = at >= 0 && of_line >= 0;
#endif
        picked[t][j] = AS_ELEMENT(fill);
        if (there_is) picked[t][j] = from[WITHIN(of_line + at)];
      }
#endif
    }
    F_UNROLL
    for (int t = 0; t < TOGETHER; ++t) {
      const index_t i = first + t * step;
      if (t == 0 || i < z.count) {
#if V == 8
        store8_u16(to + i * V, picked[t]);
#elif V == 4
        store4_u32(to + i * V, picked[t]);
#else
        to[i] = picked[t][0];
#endif
      }
    }
  }
}
