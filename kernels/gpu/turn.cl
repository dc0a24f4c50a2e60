// A tensor whose elements follow each other along one dimension, written so that they do along another: ROWS by COLUMNS
// of them at a time through local memory, so that both sides move whole lines. An elementwise chain of one input may be
// computed on the way.
//
// The host defines THREADS; RANK of the other dimensions, at least 1; ROWS and COLUMNS, which THREADS * 4 divides the
// product of; INPUT_TOGETHER and RESULT_TOGETHER, how many neighbours a thread moves at once: 4 where these begin at
// multiples of their size, else 1; and either BYTES of an element that is copied (1, 2, 4 or 8), or INPUT_TYPE, RESULT_TYPE,
// CHAIN and RESULT (chain.h); and what elements.h asks for, V as 4.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/turn.h"

#ifdef BYTES
#include "kernels/gpu/raw_element.h"
typedef element_t value_t;
#define INPUT_T value_t
#define RESULT_T value_t
#define GET(p, i) (p)[i]
#define PUT(p, i, v) (p)[i] = (v)
#define CHAIN
#define RESULT v0
#else
#include "kernels/gpu/chain.h"
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
typedef float value_t;
#define INPUT_T JOINED(INPUT_TYPE, _t)
#define RESULT_T JOINED(RESULT_TYPE, _t)
#define GET JOINED(get_, INPUT_TYPE)
#define PUT JOINED(put_, RESULT_TYPE)
#endif
#define PITCH (COLUMNS + 1)  // so that neighbours in a column lie in different banks
#define INPUT_MOVES (ROWS * COLUMNS / INPUT_TOGETHER / THREADS)
#define RESULT_MOVES (ROWS * COLUMNS / RESULT_TOGETHER / THREADS)

F_DEVICE void read_four(F_GLOBAL const INPUT_T* p, value_t* v) {
#ifndef BYTES
  JOINED(read_, INPUT_TYPE)(p, v);
#elif BYTES == 2
  load4_u16(p, v);
#elif BYTES == 4
  load4_u32(p, v);
#else
  F_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = p[j];
#endif
}
F_DEVICE void write_four(F_GLOBAL RESULT_T* p, const value_t* v) {
#ifndef BYTES
  JOINED(write_, RESULT_TYPE)(p, v);
#elif BYTES == 2
  store4_u16(p, v);
#elif BYTES == 4
  store4_u32(p, v);
#else
  F_UNROLL
  for (int j = 0; j < 4; ++j) p[j] = v[j];
#endif
}

F_KERNEL(THREADS)
turn(F_INPUT(INPUT_T, from), F_OUTPUT(RESULT_T, to), TurnSizes z) {
  F_LOCAL_ARRAY(value_t, tile, ROWS* PITCH);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(INPUT_T, from);
  F_OPEN_OUTPUT(RESULT_T, to);
  BLOCKS_TILE(z)
  value_t v[INPUT_MOVES][INPUT_TOGETHER];
  F_UNROLL
  for (int i = 0; i < INPUT_MOVES; ++i) {
    const int at = i * THREADS + F_THREAD(), row = INPUT_ROW(at), column = INPUT_COLUMN(at);
    F_GLOBAL const INPUT_T* const p = from + here + column * z.column_stride + row;
    if (INPUT_TOGETHER == 4 && column < columns && row + 4 <= rows) {
      read_four(p, v[i]);
    } else {
      F_UNROLL
      for (int j = 0; j < INPUT_TOGETHER; ++j) v[i][j] = column < columns && row + j < rows ? GET(p, j) : 0;
    }
  }
  F_UNROLL
  for (int i = 0; i < INPUT_MOVES; ++i) {
    const int at = i * THREADS + F_THREAD(), row = INPUT_ROW(at), column = INPUT_COLUMN(at);
    F_UNROLL
    for (int j = 0; j < INPUT_TOGETHER; ++j) {
      const value_t v0 = v[i][j];
      CHAIN
      tile[(row + j) * PITCH + column] = RESULT;
    }
  }
  F_BARRIER();
  F_UNROLL
  for (int i = 0; i < RESULT_MOVES; ++i) {
    const int at = i * THREADS + F_THREAD(), column = RESULT_COLUMN(at), row = RESULT_ROW(at);
    F_GLOBAL RESULT_T* const p = to + there + row * z.row_stride + column;
    value_t result[RESULT_TOGETHER];
    F_UNROLL
    for (int j = 0; j < RESULT_TOGETHER; ++j) result[j] = tile[row * PITCH + column + j];
    if (RESULT_TOGETHER == 4 && row < rows && column + 4 <= columns) {
      write_four(p, result);
    } else {
      F_UNROLL
      for (int j = 0; j < RESULT_TOGETHER; ++j) {
        if (row < rows && column + j < columns) PUT(p, j, result[j]);
      }
    }
  }
}
