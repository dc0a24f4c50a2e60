// Each input channel on its own, one output channel for each: forward and backward_data, in tiles of a thread, so
// that it uses what it reads several times. The filters' weights are floats in local memory.
//
// The host defines what depthwise_rows.h asks for: TAP_ROWS is R (then all is unrolled, and rows of `in` are read
// once) or 1; and AHEAD, the rows that are asked for before the first is used.
#include "kernels/gpu/depthwise_rows.h"

// The row or column of `in` that one of `out` reads by a tap, or one outside.
#ifdef DIRECTION_bwd_d
#define IN_PLACE(at, tap, stride, dilation, pad, size) y_place((at) + (pad) - (tap) * (dilation), stride, size)
#else
#define IN_PLACE(at, tap, stride, dilation, pad, size) ((at) * (stride) + (tap) * (dilation) - (pad))
#endif
#define IN_ROW(row, r) IN_PLACE(row, r, STRIDE_H, DILATION_H, PAD_TOP, IN_H)
#define IN_COLUMN(column, s) IN_PLACE(column, s, STRIDE_W, DILATION_W, PAD_LEFT, IN_W)

// The products of a row of `in` with row r of the filters, whose weights are [tap][channel].
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

F_KERNEL(THREADS)
depthwise_tile(F_INPUT(element_t, in), F_INPUT(element_t, w), F_OUTPUT(element_t, out), F_INPUT(element_t, bias),
               F_INPUT(element_t, residual), Sizes z) {
  F_LOCAL_ARRAY(float, weights, TAP_ROWS * S * LANES);
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  const int first_channel = F_BLOCK(0) % CHUNKS * LANES, lane = F_THREAD() % VB * CV, c = first_channel + lane;
  const int across = (OUT_W + TQ - 1) / TQ, down = (OUT_H + TP - 1) / TP;
  const int tile = F_BLOCK(0) / CHUNKS * SLICES + F_THREAD() / VB;
  const int column = tile % across * TQ, row = tile / across % down * TP, n = tile / across / down;
  const int is_mine = c < OUT_C && n < z.n, is_aligned = ARE_ALIGNED(in, out);
  const int in_row = IN_FIRST(row, STRIDE_H), in_column = IN_FIRST(column, STRIDE_W);
  float sums[TP][TQ * CV];
  F_UNROLL
  for (int p = 0; p < TP; ++p) {
    F_UNROLL
    for (int i = 0; i < TQ * CV; ++i) sums[p][i] = 0.0f;
  }
#define STAGE(first_tap)                                                                                 \
  F_EACH(e, TAP_ROWS * S * LANES) {                                                                      \
    const int channel = e / (TAP_ROWS * S), tap = e % (TAP_ROWS * S);                                    \
    weights[tap * LANES + channel] =                                                                     \
        first_channel + channel < OUT_C ? F_LOAD(w, (first_channel + channel) * (R * S) + (first_tap) + tap) : 0.0f; \
  }
#if TAP_ROWS == R
  InRow rows[AHEAD];
  const int top = is_mine && is_aligned ? in_row + ROW_LOW : -ROWS;
  F_UNROLL
  for (int i = 0; i < AHEAD; ++i) rows[i] = load_in_row(in, n, c, top + i, in_column, z);
  STAGE(0)
  F_BARRIER();
  F_UNROLL
  for (int i = 0; i < ROWS; ++i) {
    float line[SPAN * CV];
    convert_in_row(rows[i % AHEAD], line);
    if (i + AHEAD < ROWS) rows[i % AHEAD] = load_in_row(in, n, c, top + i + AHEAD, in_column, z);
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
    STAGE(r * S)
    F_BARRIER();
    F_UNROLL
    for (int p = 0; p < TP; ++p) {
      const int from = IN_ROW(row + p, r);
      if (!is_mine || !is_aligned || (u32)from >= (u32)IN_H) continue;
      float line[SPAN * CV];
      convert_in_row(load_in_row(in, n, c, from, in_column, z), line);
      add_row(line, weights + lane, sums[p]);
    }
    F_BARRIER();
    ++r;
  } while (r != R);
#endif
  if (!is_mine) return;
  if (!is_aligned) {
    // Tensors that do not begin on a vector: one result after the other.
    F_NO_UNROLL
    for (int i = 0; i < TP * TQ * CV; ++i) {
      const int p = row + i / (TQ * CV), q = column + i / CV % TQ, k = c + i % CV;
      if (p >= OUT_H || q >= OUT_W) continue;
      float sum = 0.0f;
      F_NO_UNROLL
      for (int tap = 0; tap < R * S; ++tap) {
        const int h = IN_ROW(p, tap / S), v = IN_COLUMN(q, tap % S);
        if ((u32)h >= (u32)IN_H || (u32)v >= (u32)IN_W) continue;
        sum += F_LOAD(in, F_OFFSET(n, k, h, v, IN_C, IN_H, IN_W)) * F_LOAD(w, k * (R * S) + tap);
      }
      const index_t at = F_OFFSET(n, k, p, q, OUT_C, OUT_H, OUT_W);
      F_STORE(out, at, F_EPILOGUE(sum, k, at));
    }
    return;
  }
  F_UNROLL
  for (int p = 0; p < TP; ++p) {
    if (row + p >= OUT_H) continue;
    F_UNROLL
    for (int q = 0; q < TQ; q += OUT_STEP) {
      if (column + q >= OUT_W) continue;
      const index_t at = F_OFFSET(n, c, row + p, column + q, OUT_C, OUT_H, OUT_W);
      F_UNROLL
      for (int j = 0; j < OUT_VECTOR; ++j) {
#ifdef LAYOUT_nchw
        const int k = c;
#else
        const int k = c + j;
#endif
        sums[p][q * CV + j] = F_EPILOGUE(sums[p][q * CV + j], k, at + j);
      }
      store_vector(out + at, OUT_VECTOR, sums[p] + q * CV);
    }
  }
}
