// A tensor whose elements follow each other along one dimension, written so that they do along another: ROWS by COLUMNS
// of them at a time through local memory, so that both sides move whole lines. An elementwise chain of one input may be
// computed on the way.
//
// The host defines THREADS; RANK of the other dimensions, at least 1; ROWS and COLUMNS; TWO_COLUMNS, 1 where columns are
// two dimensions that follow each other in the result; INPUT_TOGETHER and RESULT_TOGETHER, how many neighbours a thread
// moves at once, which divide ROWS and COLUMNS: 4, of results of 2 bytes that are copied also 8, where these begin at
// multiples of their size, else 1; and either BYTES of an element that is copied (1, 2, 4 or 8), or INPUT_TYPE,
// RESULT_TYPE, CHAIN and RESULT (chain.h); and what elements.h asks for, V as 4. Of copies also DENSE_INPUT and
// DENSE_RESULT, at most one of them 1: a tile has all ROWS of its columns, or all COLUMNS of its rows, which lie in one
// piece.
#include "kernels/gpu/digits.h"
#include "kernels/gpu/elements.h"

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
// The tile is kept by rows, of dense input by columns. Of elements of 2 bytes neighbours in a row are one word.
#if defined(BYTES) && BYTES == 2 && !DENSE_INPUT && !DENSE_RESULT
#define BESIDE 2
typedef u32 tile_t;
#else
#define BESIDE 1
typedef value_t tile_t;
#endif
#if DENSE_INPUT
#define TILE (ROWS * COLUMNS)
#define PLACE(row, column) ((column)*ROWS + (row))
#else
#if DENSE_RESULT
#define PITCH COLUMNS
#else
#define PITCH (COLUMNS / BESIDE + 1)  // so that neighbours in a column lie in different banks
#endif
#define TILE (ROWS * PITCH)
#define PLACE(row, column) ((row)*PITCH + (column) / BESIDE)
#endif
// So many times each thread moves something.
#define MOVES(pieces) (((pieces) + THREADS - 1) / THREADS)
#define INPUT_PIECES (ROWS * COLUMNS / BESIDE / INPUT_TOGETHER)
#define RESULT_PIECES (ROWS * COLUMNS / RESULT_TOGETHER)

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
// RESULT_TOGETHER of them.
F_DEVICE void write_together(F_GLOBAL RESULT_T* p, const value_t* v) {
#ifndef BYTES
  JOINED(write_, RESULT_TYPE)(p, v);
#elif RESULT_TOGETHER == 8
  store8_u16(p, v);
#elif BYTES == 2
  store4_u16(p, v);
#elif BYTES == 4
  store4_u32(p, v);
#else
  F_UNROLL
  for (int j = 0; j < 4; ++j) p[j] = v[j];
#endif
}

// As in src/network/device_turn.cpp. Rows: along which the input is contiguous; columns: the result.
typedef struct {
  index_t rows, columns;
  Divisor down, across;  // tiles below and beside each other
  index_t begin[2];
  index_t column_stride, row_stride;  // of the input from column to column, of the result from row to row
  Divisor columns_of_one;             // of the second dimension of columns,
  index_t outer_column_stride;        // and of the input from one of the first to the next
  Divisor sizes[RANK];
  index_t strides[2][RANK];
} TurnSizes;

F_KERNEL(THREADS)
turn(F_INPUT(INPUT_T, from), F_OUTPUT(RESULT_T, to), TurnSizes z) {
  F_LOCAL_ARRAY(tile_t, tile, TILE);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(INPUT_T, from);
  F_OPEN_OUTPUT(RESULT_T, to);
  const index_t block = F_BLOCK(0), line = quotient(block, z.across), image = quotient(line, z.down);
  const index_t first_column = (block - line * z.across.size) * COLUMNS, first_row = (line - image * z.down.size) * ROWS;
  const int rows = z.rows - first_row < ROWS ? (int)(z.rows - first_row) : ROWS;
  const int columns = z.columns - first_column < COLUMNS ? (int)(z.columns - first_column) : COLUMNS;
  index_t here = z.begin[0] + first_row, there = z.begin[1] + first_row * z.row_stride + first_column;
  F_ADD_DIGITS(image, z, here, there)

  value_t v[MOVES(INPUT_PIECES)][BESIDE][INPUT_TOGETHER];
  F_UNROLL
  for (int i = 0; i < MOVES(INPUT_PIECES); ++i) {
    const u32 at = i * THREADS + (u32)F_THREAD();
#if DENSE_INPUT
    const int place = (int)at * INPUT_TOGETHER, all = ROWS * columns;
    F_GLOBAL const INPUT_T* const p = from + here + first_column * ROWS + place;
    if (INPUT_TOGETHER == 4 && place + 4 <= all) {
      read_four(p, v[i][0]);
    } else {
      F_UNROLL
      for (int j = 0; j < INPUT_TOGETHER; ++j) v[i][0][j] = place + j < all ? GET(p, j) : 0;
    }
#else
    const int row = (int)(at % (ROWS / INPUT_TOGETHER) * INPUT_TOGETHER);
    const int column = (int)(at / (ROWS / INPUT_TOGETHER) * BESIDE);
    F_UNROLL
    for (int b = 0; b < BESIDE; ++b) {
      const index_t wanted = first_column + column + b;
#if TWO_COLUMNS
      const index_t outer = quotient(wanted, z.columns_of_one);
      const index_t place =
          outer * z.outer_column_stride + (wanted - outer * z.columns_of_one.size) * z.column_stride;
#else
      const index_t place = wanted * z.column_stride;
#endif
      F_GLOBAL const INPUT_T* const p = from + here + place + row;
      const bool there_is = column + b < columns;
      if (INPUT_TOGETHER == 4 && there_is && row + 4 <= rows) {
        read_four(p, v[i][b]);
      } else {
        F_UNROLL
        for (int j = 0; j < INPUT_TOGETHER; ++j) v[i][b][j] = there_is && row + j < rows ? GET(p, j) : 0;
      }
    }
#endif
  }
  F_UNROLL
  for (int i = 0; i < MOVES(INPUT_PIECES); ++i) {
    const u32 at = i * THREADS + (u32)F_THREAD();
#if !DENSE_INPUT
    const int row = (int)(at % (ROWS / INPUT_TOGETHER) * INPUT_TOGETHER);
    const int column = (int)(at / (ROWS / INPUT_TOGETHER) * BESIDE);
#endif
    F_UNROLL
    for (int j = 0; j < INPUT_TOGETHER; ++j) {
      const value_t v0 = v[i][0][j];
      CHAIN
      if (INPUT_PIECES % THREADS == 0 || at < INPUT_PIECES) {
#if DENSE_INPUT
        tile[at * INPUT_TOGETHER + j] = RESULT;
#elif BESIDE == 2
        tile[PLACE(row + j, column)] = v0 | (u32)v[i][1][j] << 16;
#else
        tile[PLACE(row + j, column)] = RESULT;
#endif
      }
    }
  }
  F_BARRIER();
  F_UNROLL
  for (int i = 0; i < MOVES(RESULT_PIECES); ++i) {
    const u32 at = i * THREADS + (u32)F_THREAD();
    // Of this row from this column on; dense, in one piece with all others.
#if DENSE_RESULT
    const int place = (int)at * RESULT_TOGETHER, left = rows * COLUMNS - place;
    F_GLOBAL RESULT_T* const p = to + there + place;
#else
    const int column = (int)(at % (COLUMNS / RESULT_TOGETHER) * RESULT_TOGETHER);
    const int row = (int)(at / (COLUMNS / RESULT_TOGETHER));
    const int left = row < rows ? columns - column : 0;
    F_GLOBAL RESULT_T* const p = to + there + row * z.row_stride + column;
#endif
    if (left > 0) {
      F_ALIGNED16 value_t result[RESULT_TOGETHER];
#if BESIDE == 2
      u32 words[(RESULT_TOGETHER + 1) / 2];
      F_UNROLL
      for (int k = 0; k < (RESULT_TOGETHER + 1) / 2; ++k) words[k] = tile[PLACE(row, column) + k];
#endif
      F_UNROLL
      for (int j = 0; j < RESULT_TOGETHER; ++j) {
#if DENSE_RESULT
        result[j] = tile[place + j];
#elif BESIDE == 2
        result[j] = (value_t)(words[j / 2] >> (RESULT_TOGETHER == 1 ? column % 2 : j % 2) * 16);
#else
        result[j] = tile[PLACE(row, column + j)];
#endif
      }
      if (RESULT_TOGETHER > 1 && left >= RESULT_TOGETHER) {
        write_together(p, result);
      } else {
        F_UNROLL
        for (int j = 0; j < RESULT_TOGETHER; ++j) {
          if (j < left) PUT(p, j, result[j]);
        }
      }
    }
  }
}
