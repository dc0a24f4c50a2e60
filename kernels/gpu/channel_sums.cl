// The sums of a tensor's channels, and of their squares: a block of threads has LANES channels, side by side of NHWC, one
// of NCHW, and one of `parts` shares of their pixels. A second kernel adds up the parts, always in the same order.
//
// The host defines THREADS, LANES, SUMS (1, or 2 with the squares), and what convolution.h asks for; the sizes are of a
// row of z.q pixels.
#include "kernels/gpu/convolution.h"

#define ROWS (THREADS / LANES)
#define COLUMNS 32

// parts: [parts][SUMS][channels]
F_KERNEL(THREADS)
channel_sums(F_INPUT(element_t, y), F_OUTPUT(float, sums), int parts, Sizes z) {
  F_LOCAL_ARRAY(float, shared, SUMS* THREADS);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(float, sums);
  const int thread = F_THREAD(), lane = thread % LANES, row = thread / LANES;
  const int part = F_BLOCK(0) % parts, k = F_BLOCK(0) / parts * LANES + lane;
  const index_t terms = (index_t)z.n * z.q, share = (terms + parts - 1) / parts;
  const index_t from = part * share, to = from + share < terms ? from + share : terms;
  float sum = 0.0f, squares = 0.0f;
  if (k < z.k) {
    for (index_t i = from + row; i < to; i += ROWS) {
#ifdef LAYOUT_nchw
      const index_t at = (i / z.q * z.k + k) * z.q + i % z.q;
#else
      const index_t at = i * z.k + k;
#endif
      const float value = F_LOAD(y, at);
      sum += value;
      squares = F_FMA(value, value, squares);
    }
  }
  shared[thread] = sum;
#if SUMS > 1
  shared[THREADS + thread] = squares;
#endif
  for (int rows = ROWS / 2; rows > 0; rows /= 2) {
    F_BARRIER();
    if (row < rows) {
      for (int i = 0; i < SUMS; ++i) shared[i * THREADS + thread] += shared[i * THREADS + thread + rows * LANES];
    }
  }
  if (row == 0 && k < z.k) {
    for (int i = 0; i < SUMS; ++i) sums[(size_t)(part * SUMS + i) * z.k + k] = shared[i * THREADS + thread];
  }
}

// A block of threads has COLUMNS of the sums, and each row of its threads every so many parts of them.
F_KERNEL(THREADS)
sums_of_parts(F_INPUT(float, partial), F_OUTPUT(float, sums), int parts, Sizes z) {
  F_LOCAL_ARRAY(float, shared, THREADS);
  F_OPEN_INPUT(float, partial);
  F_OPEN_OUTPUT(float, sums);
  const int count = SUMS * z.k, thread = F_THREAD(), row = thread / COLUMNS;
  const int i = F_BLOCK(0) * COLUMNS + thread % COLUMNS;
  float sum = 0.0f;
  if (i < count) {
    for (int part = row; part < parts; part += THREADS / COLUMNS) sum += partial[(size_t)part * count + i];
  }
  shared[thread] = sum;
  for (int rows = THREADS / COLUMNS / 2; rows > 0; rows /= 2) {
    F_BARRIER();
    if (row < rows) shared[thread] += shared[thread + rows * COLUMNS];
  }
  if (row == 0 && i < count) sums[i] = shared[thread];
}
