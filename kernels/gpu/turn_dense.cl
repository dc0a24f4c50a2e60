// As turn.cl, of elements of 2 or 4 bytes that are copied, where lines are short on one side or begin anywhere, and a tile has
// all of each: there it is one piece of memory.
//
// The host defines THREADS; RANK of the other dimensions, at least 1; ROWS and COLUMNS; DENSE_INPUT, 1 where a tile has all
// ROWS of its columns, 0 where it has all COLUMNS of its rows; INPUT_TOGETHER and RESULT_TOGETHER, how many neighbours a
// thread moves at once, which divide ROWS and COLUMNS: 4 where these begin at multiples of their size, else 1; BYTES; and
// what elements.h asks for, V as 4.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/raw_element.h"
#include "kernels/gpu/turn.h"

#if BYTES == 2
#define READ_FOUR load4_u16
#define WRITE_FOUR store4_u16
#else
#define READ_FOUR load4_u32
#define WRITE_FOUR store4_u32
#endif
// As it lies in the piece.
#if DENSE_INPUT
#define PLACE(row, column) ((column)*ROWS + (row))
#else
#define PLACE(row, column) ((row)*COLUMNS + (column))
#endif
// So many times each thread moves something.
#define MOVES(pieces) (((pieces) + THREADS - 1) / THREADS)
#define INPUT_PIECES (ROWS * COLUMNS / INPUT_TOGETHER)
#define RESULT_PIECES (ROWS * COLUMNS / RESULT_TOGETHER)

F_KERNEL(THREADS)
turn_dense(F_INPUT(element_t, from), F_OUTPUT(element_t, to), TurnSizes z) {
  F_LOCAL_ARRAY(element_t, tile, ROWS* COLUMNS);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  BLOCKS_TILE(z)

  element_t v[MOVES(INPUT_PIECES)][INPUT_TOGETHER];
  F_UNROLL
  for (int i = 0; i < MOVES(INPUT_PIECES); ++i) {
    const int at = i * THREADS + F_THREAD();
#if DENSE_INPUT
    const int place = at * INPUT_TOGETHER, left = ROWS * columns - place;
    F_GLOBAL const element_t* const p = from + here + place;
#else
    const int row = INPUT_ROW(at), column = INPUT_COLUMN(at);
    const int left = column < columns ? rows - row : 0;
    F_GLOBAL const element_t* const p = from + here + column * z.column_stride + row;
#endif
    if (INPUT_TOGETHER == 4 && left >= 4) {
      READ_FOUR(p, v[i]);
    } else {
      F_UNROLL
      for (int j = 0; j < INPUT_TOGETHER; ++j) v[i][j] = j < left ? p[j] : 0;
    }
  }
  F_UNROLL
  for (int i = 0; i < MOVES(INPUT_PIECES); ++i) {
    const int at = i * THREADS + F_THREAD();
    if (INPUT_PIECES % THREADS == 0 || at < INPUT_PIECES) {
      F_UNROLL
      for (int j = 0; j < INPUT_TOGETHER; ++j) {
#if DENSE_INPUT
        tile[at * INPUT_TOGETHER + j] = v[i][j];
#else
        tile[PLACE(INPUT_ROW(at) + j, INPUT_COLUMN(at))] = v[i][j];
#endif
      }
    }
  }
  F_BARRIER();
  F_UNROLL
  for (int i = 0; i < MOVES(RESULT_PIECES); ++i) {
    const int at = i * THREADS + F_THREAD();
#if DENSE_INPUT
    const int column = RESULT_COLUMN(at), row = RESULT_ROW(at);
    const int left = row < rows ? columns - column : 0;
    F_GLOBAL element_t* const p = to + there + row * z.row_stride + column;
#else
    const int place = at * RESULT_TOGETHER, left = rows * COLUMNS - place;
    F_GLOBAL element_t* const p = to + there + place;
#endif
    if (left > 0) {
      F_ALIGNED16 element_t result[RESULT_TOGETHER];
      F_UNROLL
      for (int j = 0; j < RESULT_TOGETHER; ++j) {
#if DENSE_INPUT
        result[j] = tile[PLACE(row, column + j)];
#else
        result[j] = tile[place + j];
#endif
      }
      if (RESULT_TOGETHER == 4 && left >= 4) {
        WRITE_FOUR(p, result);
      } else {
        F_UNROLL
        for (int j = 0; j < RESULT_TOGETHER; ++j) {
          if (j < left) p[j] = result[j];
        }
      }
    }
  }
}
