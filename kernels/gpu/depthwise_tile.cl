// Each input channel on its own, one output channel for each: forward and backward_data, in tiles of a thread, so
// that it uses what it reads several times. The filters' weights are floats in local memory.
//
// The host defines what depthwise_rows.h asks for: TAP_ROWS is R (then all is unrolled, and rows of `in` are read
// once) or 1; and AHEAD, the rows that are asked for before the first is used.
#include "kernels/gpu/depthwise_filter.h"

F_KERNEL(THREADS)
depthwise_tile(F_TENSORS(in, w, out), Sizes z) {
  F_LOCAL_ARRAY(float, weights, TAP_ROWS* S* LANES);
  F_FOLLOW_PREVIOUS();
  F_OPEN_DEPTHWISE
  float sums[TP][TQ * CV];
  F_UNROLL
  for (int p = 0; p < TP; ++p) {
    F_UNROLL
    for (int i = 0; i < TQ * CV; ++i) sums[p][i] = 0.0f;
  }
#if TAP_ROWS == R
  InRow rows[AHEAD];
  const int top = is_mine && is_aligned ? IN_FIRST(place.row, STRIDE_H) + ROW_LOW : -ROWS;
  F_UNROLL
  for (int i = 0; i < AHEAD; ++i) rows[i] = load_in_row(in, place.n, c, top + i, column, z);
  F_STAGE_FILTERS(weights, 0)
  F_BARRIER();
  F_UNROLL
  for (int i = 0; i < ROWS; ++i) {
    float line[SPAN * CV];
    convert_in_row(rows[i % AHEAD], line);
    if (i + AHEAD < ROWS) rows[i % AHEAD] = load_in_row(in, place.n, c, top + i + AHEAD, column, z);
    F_UNROLL
    for (int p = 0; p < TP; ++p) {
      F_UNROLL
      for (int r = 0; r < R; ++r) {
        if (IS_ROW(p, r) && ROW(p, r) == i) add_row(line, weights + r * S * LANES + lane, sums[p]);
      }
    }
  }
#else
  int r = 0;
  do {
    F_STAGE_FILTERS(weights, r * S)
    F_BARRIER();
    F_UNROLL
    for (int p = 0; p < TP; ++p) {
      const int from = IN_ROW(place.row + p, r);
      if (!is_mine || !is_aligned || (u32)from >= (u32)IN_H) continue;
      float line[SPAN * CV];
      convert_in_row(load_in_row(in, place.n, c, from, column, z), line);
      add_row(line, weights + lane, sums[p]);
    }
    F_BARRIER();
    ++r;
  } while (r != R);
#endif
  if (!is_mine) return;
  if (!is_aligned) {
    F_RESULTS_ALONE(place, c)
    return;
  }
  F_UNROLL
  for (int p = 0; p < TP; ++p)
    store_results(out, place.n, c, place.row + p, place.column, sums[p], bias, residual, slopes, z);
}
