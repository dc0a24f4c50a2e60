// What kernels that turn one dimension into another are told. The host defines RANK, of the other dimensions,
// at least 1.
#pragma once
#include "kernels/gpu/digits.h"

// As in src/network/device_turn.cpp. Rows: along which the input is contiguous; columns: the result.
typedef struct {
  index_t rows, columns;
  Divisor down, across;  // tiles below and beside each other
  index_t begin[2];
  index_t column_stride, row_stride;  // of the input from column to column, of the result from row to row
  Divisor sizes[RANK];
  index_t strides[2][RANK];
} TurnSizes;
