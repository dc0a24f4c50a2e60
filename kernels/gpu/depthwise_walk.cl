// Each input channel on its own, one output channel for each: forward and backward_data without strides down. A thread
// walks down TP rows of its columns, with the sums of the R rows that a row of `in` is part of: that is read and
// converted once, and the next AHEAD are on their way meanwhile. The filters' weights are floats in local memory.
//
// The host defines what depthwise_rows.h asks for; TAP_ROWS is R.
#include "kernels/gpu/depthwise_filter.h"

// The row of the filter that the m-th row of `in` below a result's first one meets.
#ifdef DIRECTION_bwd_d
#define FILTER_ROW(m) (R - 1 - (m))
#else
#define FILTER_ROW(m) (m)
#endif

F_KERNEL(THREADS)
depthwise_walk(F_TENSORS(in, w, out), Sizes z) {
  F_LOCAL_ARRAY(float, weights, R* S* LANES);
  F_FOLLOW_PREVIOUS();
  F_OPEN_DEPTHWISE
  const int top = place.row + ROW_LOW;
  // sums[m]: of the row m above the one whose first row of `in` is the current one.
  float sums[R][TQ * CV];
  F_UNROLL
  for (int m = 0; m < R; ++m) {
    F_UNROLL
    for (int i = 0; i < TQ * CV; ++i) sums[m][i] = 0.0f;
  }
  InRow next[AHEAD];
  F_UNROLL
  for (int i = 0; i < AHEAD; ++i)
    next[i] = load_in_row(in, place.n, c, is_mine && is_aligned ? top + i : -1, column, z);
  F_STAGE_FILTERS(weights, 0)
  F_BARRIER();
  if (!is_mine) return;
  if (!is_aligned) {
    F_RESULTS_ALONE(place, c)
    return;
  }
  F_NO_UNROLL
  for (int j = 0; j < TP + R - 1; ++j) {
    float line[SPAN * CV];
    convert_in_row(next[0], line);
    F_UNROLL
    for (int i = 1; i < AHEAD; ++i) next[i - 1] = next[i];
    next[AHEAD - 1] = load_in_row(in, place.n, c, top + j + AHEAD, column, z);
    F_UNROLL
    for (int m = R - 1; m >= 0; --m) {
      F_UNROLL
      for (int i = 0; i < TQ * CV; ++i) sums[m][i] = m > 0 ? sums[m > 0 ? m - 1 : 0][i] : 0.0f;
      add_row(line, weights + FILTER_ROW(m) * S * LANES + lane, sums[m]);
    }
    const int done = j - (R - 1);
    if (done >= 0)
      store_results(out, place.n, c, place.row + done, place.column, sums[R - 1], bias, residual, slopes, z);
  }
}
