// What kernels that turn one dimension into another are told. The host defines RANK, of the other dimensions,
// at least 1.
#pragma once
#include "kernels/gpu/digits.h"

// Where in a tile a thread's neighbours begin that are number `at` of what is read: down the rows, column by
// column; and of what is written: along the columns, row by row.
#define INPUT_ROW(at) ((at) % (ROWS / INPUT_TOGETHER) * INPUT_TOGETHER)
#define INPUT_COLUMN(at) ((at) / (ROWS / INPUT_TOGETHER))
#define RESULT_ROW(at) ((at) / (COLUMNS / RESULT_TOGETHER))
#define RESULT_COLUMN(at) ((at) % (COLUMNS / RESULT_TOGETHER) * RESULT_TOGETHER)

// As in src/network/device_turn.cpp. Rows: along which the input is contiguous; columns: the result.
typedef struct {
  index_t rows, columns;
  Divisor down, across;  // tiles below and beside each other
  index_t begin[2];
  index_t column_stride, row_stride;  // of the input from column to column, of the result from row to row
  Divisor sizes[RANK];
  index_t strides[2][RANK];
} TurnSizes;

// The block's tile of ROWS by COLUMNS: how many rows and columns of it there are, and here and there, where
// it begins in the input and the result.
#define BLOCKS_TILE(z)                                                                                \
  const index_t block = F_BLOCK(0), line = quotient(block, z.across), image = quotient(line, z.down); \
  const index_t first_column = (block - line * z.across.size) * COLUMNS,                              \
                first_row = (line - image * z.down.size) * ROWS;                                      \
  const int rows = z.rows - first_row < ROWS ? (int)(z.rows - first_row) : ROWS;                      \
  const int columns = z.columns - first_column < COLUMNS ? (int)(z.columns - first_column) : COLUMNS; \
  index_t here = z.begin[0] + first_column * z.column_stride + first_row;                             \
  index_t there = z.begin[1] + first_row * z.row_stride + first_column;                               \
  F_ADD_DIGITS(image, z, here, there)
