// A tensor whose elements follow each other along one dimension, written so that they do along another: TILE by TILE of
// them at a time through local memory, so that both sides move whole lines. An elementwise chain of one input may be
// computed on the way.
//
// The host defines THREADS; RANK of the other dimensions, at least 1; TILE; and either BYTES of an element that is
// copied (1, 2, 4 or 8), or INPUT_TYPE, RESULT_TYPE, CHAIN and RESULT (chain.h); and what elements.h asks for.
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

// As in src/network/device_map.cpp. Rows: along which the input is contiguous; columns: the result.
typedef struct {
  index_t rows, columns;
  index_t begin[2];
  index_t column_stride, row_stride;  // of the input from column to column, of the result from row to row
  index_t sizes[RANK];
  index_t strides[2][RANK];
} TurnSizes;

F_KERNEL(THREADS)
turn(F_INPUT(INPUT_T, from), F_OUTPUT(RESULT_T, to), TurnSizes z) {
  F_LOCAL_ARRAY(value_t, tile, TILE * (TILE + 1));
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(INPUT_T, from);
  F_OPEN_OUTPUT(RESULT_T, to);
  const index_t across = (z.columns + TILE - 1) / TILE, down = (z.rows + TILE - 1) / TILE;
  const index_t block = F_BLOCK(0), line = block / across;
  const index_t first_column = (block - line * across) * TILE, image = line / down, first_row = (line - image * down) * TILE;
  index_t here = z.begin[0], there = z.begin[1];
  F_ADD_DIGITS(image, z, here, there)
  F_UNROLL
  for (int e = 0; e < TILE * TILE / THREADS; ++e) {
    const int at = e * THREADS + F_THREAD(), row = at % TILE, column = at / TILE;
    if (first_row + row < z.rows && first_column + column < z.columns)
      tile[column * (TILE + 1) + row] = GET(from, here + (first_column + column) * z.column_stride + first_row + row);
  }
  F_BARRIER();
  F_UNROLL
  for (int e = 0; e < TILE * TILE / THREADS; ++e) {
    const int at = e * THREADS + F_THREAD(), column = at % TILE, row = at / TILE;
    if (first_row + row < z.rows && first_column + column < z.columns) {
      const value_t v0 = tile[column * (TILE + 1) + row];
      CHAIN
      PUT(to, there + (first_row + row) * z.row_stride + first_column + column, RESULT);
    }
  }
}
