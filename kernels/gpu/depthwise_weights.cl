// backward_weights of a depthwise convolution with one output channel an input channel: a thread has the sums of
// TAP_ROWS rows of its channels' filters over tiles of pixels, from which it reads x and y's gradient once; a block
// adds its threads' sums up in a fixed order.
//
// The host defines what depthwise_rows.h asks for; SPLIT: 1 where blocks share the pixels (then the result is
// [split][the whole filter] in floats), EXACT: 1 where the image has whole tiles; WALKS: 1 where a thread
// reads the rows of its tiles one after the other, the next AHEAD on their way meanwhile, as without strides down.
#include "kernels/gpu/depthwise_rows.h"
#include "kernels/gpu/parts.h"

#define SUMS (TAP_ROWS * S * CV)  // of a thread: [tap][channel]
#define AT_ONCE (SUMS < 24 ? SUMS : 24)
#define PITCH (THREADS + VB)  // of one sum of all threads: those that are added up side by side lie in other banks
#define TOGETHER (SLICES < 8 ? SLICES : 8)

// The products of a row of x with one of the gradient, for the taps of a row of the filter; is_beyond: whether
// there is no such row of results.
F_DEVICE void add_products(const float* line, const u32* gradient, int is_beyond, int column, float* sums, Sizes z) {
  float factors[TQ * CV];
  F_UNROLL
  for (int q = 0; q < TQ; q += OUT_STEP)
    convert_vector(gradient + q / OUT_STEP * WORDS(OUT_VECTOR), OUT_VECTOR, factors + q * CV);
  F_UNROLL
  for (int q = 0; q < TQ; ++q) {
    // Where there is no result, the image may be Inf.
    if (!EXACT && (is_beyond || column + q >= z.q)) continue;
    F_UNROLL
    for (int s = 0; s < S; ++s) {
      F_UNROLL
      for (int j = 0; j < CV; ++j) sums[s * CV + j] += line[COLUMN(q, s) * CV + j] * factors[q * CV + j];
    }
  }
}

F_KERNEL(THREADS)
depthwise_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(result_t, w), int splits, Sizes z) {
  F_LOCAL_ARRAY(float, parts, AT_ONCE* PITCH);
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(result_t, w);
  const int thread = F_THREAD(), first_channel = F_BLOCK(0) * LANES, c = first_channel + thread % VB * CV;
  const int split = F_BLOCK(1), first_r = F_BLOCK(2) * TAP_ROWS;
  const int across = (z.q + TQ - 1) / TQ, down = (z.p + TP - 1) / TP;
  const int is_aligned = ARE_ALIGNED(x, y);
#if SPLIT && WALKS
  F_LET_NEXT_BEGIN();
#endif
  float sums[SUMS];
  F_UNROLL
  for (int i = 0; i < SUMS; ++i) sums[i] = 0.0f;
  // Every `step`-th tile is this thread's; its place moves by as many columns, rows and images.
  const int tile = split * SLICES + thread / VB, step = splits * SLICES;
  const int right = step % across, below = step / across % down, beyond = step / across / down;
  int tile_column = tile % across, tile_row = tile / across % down, n = tile / across / down;
  if (c >= z.k || !is_aligned) n = z.n;
  while (n < z.n) {
    const int column = tile_column * TQ, row = tile_row * TP;
#if WALKS
    // A row of x meets TAP_ROWS rows of the gradient, of which the last ones stay in registers: words, since of an array of
    // two structs NVIDIA's OpenCL compiler (driver 580) takes the second one for undefined.
    const int top = row + first_r + ROW_LOW, rows = z.p - row < TP ? z.p - row : TP;
    u32 gradient[TAP_ROWS * OUT_ROW_WORDS];
    F_UNROLL
    for (int i = 0; i < TAP_ROWS * OUT_ROW_WORDS; ++i) gradient[i] = 0;
    InRow next[AHEAD];
    OutRow next_gradient[AHEAD];
    F_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      next[i] = load_in_row(x, n, c, top + i, IN_FIRST(column, STRIDE_W), z);
      next_gradient[i] = load_out_row(y, n, c, row + i, column, z);
    }
    F_NO_UNROLL
    for (int j = 0; j < rows + TAP_ROWS - 1; ++j) {
      F_UNROLL
      for (int i = TAP_ROWS * OUT_ROW_WORDS - 1; i >= OUT_ROW_WORDS; --i) gradient[i] = gradient[i - OUT_ROW_WORDS];
      F_UNROLL
      for (int i = 0; i < OUT_ROW_WORDS; ++i) gradient[i] = next_gradient[0].words[i];
      float line[SPAN * CV];
      convert_in_row(next[0], line);
      F_UNROLL
      for (int i = 1; i < AHEAD; ++i) next[i - 1] = next[i], next_gradient[i - 1] = next_gradient[i];
      next[AHEAD - 1] = load_in_row(x, n, c, top + j + AHEAD, IN_FIRST(column, STRIDE_W), z);
      next_gradient[AHEAD - 1] = load_out_row(y, n, c, row + j + AHEAD, column, z);
      F_UNROLL
      for (int r = 0; r < TAP_ROWS; ++r) {
        if (j >= r && j - r < rows) add_products(line, gradient + r * OUT_ROW_WORDS, 0, column, sums + r * S * CV, z);
      }
    }
#else
    InRow rows[ROWS];
    OutRow gradient[TP];
    F_UNROLL
    for (int i = 0; i < ROWS; ++i)
      rows[i] = load_in_row(x, n, c, IN_FIRST(row, STRIDE_H) + first_r * DILATION_H + ROW_LOW + i,
                            IN_FIRST(column, STRIDE_W), z);
    F_UNROLL
    for (int p = 0; p < TP; ++p) gradient[p] = load_out_row(y, n, c, row + p, column, z);
    F_UNROLL
    for (int i = 0; i < ROWS; ++i) {
      float line[SPAN * CV];
      convert_in_row(rows[i], line);
      F_UNROLL
      for (int p = 0; p < TP; ++p) {
        F_UNROLL
        for (int r = 0; r < TAP_ROWS; ++r) {
          if (ROW(p, r) == i) add_products(line, gradient[p].words, row + p >= z.p, column, sums + r * S * CV, z);
        }
      }
    }
#endif
    tile_column += right;
    tile_row += below;
    n += beyond;
    if (tile_column >= across) tile_column -= across, ++tile_row;
    if (tile_row >= down) tile_row -= down, ++n;
  }
  F_UNROLL
  for (int first = 0; first < SUMS; first += AT_ONCE) {
    F_UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      if (first + i < SUMS) parts[i * PITCH + thread] = sums[first + i];
    }
    F_BARRIER();
    F_EACH(e, AT_ONCE * VB) {
      const int i = first + e / VB, k = first_channel + e % VB * CV + i % CV, tap = first_r * S + i / CV;
      float sum = 0.0f;
      F_NO_UNROLL
      for (int slice = 0; slice < SLICES; slice += TOGETHER) {
        F_UNROLL
        for (int j = 0; j < TOGETHER; ++j) sum += parts[e / VB * PITCH + (slice + j) * VB + e % VB];
      }
      if (is_aligned && i < SUMS && k < z.k && tap < R * S)
        STORE_RESULT(w, ((index_t)split * z.k + k) * (R * S) + tap, sum);
    }
    F_BARRIER();
  }
  if (is_aligned) return;
  // Tensors that do not begin on a vector: a thread sums all of the block's pixels for a weight.
  F_NO_UNROLL
  for (int e = thread; e < SUMS * VB; e += THREADS) {
    const int i = e / VB, k = first_channel + e % VB * CV + i % CV, r = first_r + i / CV / S, s = i / CV % S;
    if (k >= z.k || r >= R) continue;
    float sum = 0.0f;
    F_NO_UNROLL
    for (int first = split * SLICES; first < across * down * z.n; first += step) {
      F_NO_UNROLL
      for (int j = 0; j < SLICES * TP * TQ; ++j) {
        const int at = first + j / (TP * TQ), m = at / across / down;
        const int p = at / across % down * TP + j / TQ % TP, q = at % across * TQ + j % TQ;
        const int h = PLACE(p, r, STRIDE_H, DILATION_H, PAD_TOP), v = PLACE(q, s, STRIDE_W, DILATION_W, PAD_LEFT);
        if (m >= z.n || p >= z.p || q >= z.q || (u32)h >= (u32)z.h || (u32)v >= (u32)z.w) continue;
        sum += F_LOAD(x, F_OFFSET(m, k, h, v, z.c, z.h, z.w)) * F_LOAD(y, F_OFFSET(m, k, p, q, z.k, z.p, z.q));
      }
    }
    STORE_RESULT(w, ((index_t)split * z.k + k) * (R * S) + r * S + s, sum);
  }
}
