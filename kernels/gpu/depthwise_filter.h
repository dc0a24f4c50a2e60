// What forward and backward_data do with the rows of depthwise_rows.h: the filters in local memory, the
// products of a row, results one by one where tensors do not begin on a vector, and their stores.
#pragma once
#include "kernels/gpu/depthwise_rows.h"

// At the top of a kernel, behind F_FOLLOW_PREVIOUS: the block's first channel, the thread's place among the
// block's channels and its first one, the tile that it computes, whether there is one, whether vectors may be
// used, and the first column of `in` that is read for it.
#define F_OPEN_DEPTHWISE                                                              \
  F_OPEN_TENSORS(in, w, out)                                                          \
  const int first_channel = F_BLOCK(0) % CHUNKS * LANES, lane = F_THREAD() % VB * CV; \
  const int c = first_channel + lane;                                                 \
  const Place place = place_of(F_BLOCK(0) / CHUNKS * SLICES + F_THREAD() / VB, z);    \
  const int is_mine = c < OUT_C && place.n < z.n, is_aligned = ARE_ALIGNED(in, out);  \
  const int column = IN_FIRST(place.column, STRIDE_W);

// TAP_ROWS rows of the block's filters from the tap first_tap on, as floats: [tap][channel].
#define F_STAGE_FILTERS(weights, first_tap)                                                         \
  F_EACH(e, TAP_ROWS* S* LANES) {                                                                   \
    const int channel = e / (TAP_ROWS * S), tap = e % (TAP_ROWS * S);                               \
    const int k = first_channel + channel;                                                          \
    weights[tap * LANES + channel] = k < OUT_C ? F_LOAD(w, k * (R * S) + (first_tap) + tap) : 0.0f; \
  }

// The products of a row of `in` with a row of the filters.
F_DEVICE void add_row(const float* line, F_LOCAL const float* weights, float* sums) {
  F_UNROLL
  for (int s = 0; s < S; ++s) {
    float weight[CV];
    F_UNROLL
    for (int j = 0; j < CV; ++j) weight[j] = weights[s * LANES + j];
    F_UNROLL
    for (int q = 0; q < TQ; ++q) {
      if (!IS_COLUMN(q, s)) continue;
      F_UNROLL
      for (int j = 0; j < CV; ++j) sums[q * CV + j] += line[COLUMN(q, s) * CV + j] * weight[j];
    }
  }
}

F_DEVICE void store_results(F_GLOBAL element_t* out, int n, int c, int row, int column, float* sums,
                            F_GLOBAL const element_t* bias, F_GLOBAL const element_t* residual,
                            F_GLOBAL const float* slopes, Sizes z) {
  if (row >= OUT_H) return;
  F_UNROLL
  for (int q = 0; q < TQ; q += OUT_STEP) {
    if (column + q >= OUT_W) continue;
    const index_t at = F_OFFSET(n, c, row, column + q, OUT_C, OUT_H, OUT_W);
    F_UNROLL
    for (int j = 0; j < OUT_VECTOR; ++j) sums[q * CV + j] = F_EPILOGUE(sums[q * CV + j], c + j % CV, at + j);
    store_vector(out + at, OUT_VECTOR, sums + q * CV);
  }
}

// The row or column of `in` that one of `out` reads by a tap, or one outside.
#ifdef DIRECTION_bwd_d
#define IN_PLACE(at, tap, stride, dilation, pad, size) \
  y_place((at) + (pad) - (tap) * (dilation), stride, size)
#else
#define IN_PLACE(at, tap, stride, dilation, pad, size) ((at) * (stride) + (tap) * (dilation) - (pad))
#endif
#define IN_ROW(row, r) IN_PLACE(row, r, STRIDE_H, DILATION_H, PAD_TOP, IN_H)
#define IN_COLUMN(column, s) IN_PLACE(column, s, STRIDE_W, DILATION_W, PAD_LEFT, IN_W)

// Result i of the thread whose tile is `place` and whose channels begin at c, element by element.
#define F_RESULT_ALONE(place, c, i)                                                                     \
  {                                                                                                     \
    const int p = place.row + (i) / (TQ * CV), q = place.column + (i) / CV % TQ, k = (c) + (i) % CV;    \
    if (p < OUT_H && q < OUT_W) {                                                                       \
      float sum = 0.0f;                                                                                 \
      F_NO_UNROLL                                                                                       \
      for (int tap = 0; tap < R * S; ++tap) {                                                           \
        const int h = IN_ROW(p, tap / S), v = IN_COLUMN(q, tap % S);                                    \
        if ((u32)h >= (u32)IN_H || (u32)v >= (u32)IN_W) continue;                                       \
        sum += F_LOAD(in, F_OFFSET(place.n, k, h, v, IN_C, IN_H, IN_W)) * F_LOAD(w, k * (R * S) + tap); \
      }                                                                                                 \
      const index_t at = F_OFFSET(place.n, k, p, q, OUT_C, OUT_H, OUT_W);                               \
      F_STORE(out, at, F_EPILOGUE(sum, k, at));                                                         \
    }                                                                                                   \
  }
// All of them.
#define F_RESULTS_ALONE(place, c) \
  F_NO_UNROLL                     \
  for (int i = 0; i < TP * TQ * CV; ++i) F_RESULT_ALONE(place, c, i)
