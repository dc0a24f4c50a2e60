// The matrices of the explicit GEMM, of some images: patches of x (or y's gradient alone, as if of a 1x1 filter), and
// the way back.
//
// A patch's rows are (tap, channel), or in FILTER_ORDER as the filter lies in memory. STEP_IS_PIXEL 0:
// [group][row][pixel], pixels up to `pitch`; 1: [group][pixel][row], rows up to `pitch`. What is beyond is zero.
//
// The host defines OF_Y (1: y's gradient), STEP_IS_PIXEL, FILTER_ORDER, THREADS, and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define TAPS (R * S)
#if OF_Y
#define ROWS z.group_k
#else
#define ROWS (TAPS * z.group_c)
#endif
#define EACH 8  // of a thread: rows of one pixel, or pixels of one row

// A row's tap and channel; the next row's are found without dividing.
typedef struct {
  int c, r, s;
} Row;

F_DEVICE Row row_at(int row, Sizes z) {
  Row at;
#if OF_Y
  at.c = row, at.r = at.s = 0;
#elif FILTER_ORDER
  at.c = row / TAPS, at.r = row % TAPS / S, at.s = row % S;
#else
  at.c = row % z.group_c, at.r = row / z.group_c / S, at.s = row / z.group_c % S;
#endif
  return at;
}

F_DEVICE Row next_row(Row at, Sizes z) {
#if OF_Y
  ++at.c;
#elif FILTER_ORDER
  if (++at.s == S) {
    at.s = 0;
    if (++at.r == R) at.r = 0, ++at.c;
  }
#else
  if (++at.c == z.group_c) {
    at.c = 0;
    if (++at.s == S) at.s = 0, ++at.r;
  }
#endif
  return at;
}

F_DEVICE element_t patch_element(F_GLOBAL const element_t* from, int group, Row row, int n, int p, int q, Sizes z) {
#if OF_Y
  return from[F_OFFSET(n, group * z.group_k + row.c, p, q, z.k, z.p, z.q)];
#else
  const int h = p * STRIDE_H - z.pad_top + row.r * DILATION_H;
  const int w = q * STRIDE_W - z.pad_left + row.s * DILATION_W;
  if (h < 0 || h >= z.h || w < 0 || w >= z.w) return 0;
  return from[F_OFFSET(n, group * z.group_c + row.c, h, w, z.c, z.h, z.w)];
#endif
}

F_KERNEL(THREADS)
im2col(F_INPUT(element_t, from), F_OUTPUT(element_t, matrix), int first_image, int images, int pitch, Sizes z) {
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, matrix);
  const int pixels = images * z.p * z.q;
#if STEP_IS_PIXEL
  const int parts = (pixels + EACH - 1) / EACH;
#else
  const int parts = (ROWS + EACH - 1) / EACH;
#endif
  // Neighbouring threads write neighbours.
  const index_t count = (index_t)z.groups * parts * pitch;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const int along = (int)(i % pitch), first = (int)(i / pitch % parts) * EACH, group = (int)(i / pitch / parts);
#if STEP_IS_PIXEL
    int q = first % z.q, p = first / z.q % z.p, n = first_image + first / z.q / z.p;
    const Row row = row_at(along, z);
    for (int pixel = first; pixel < F_MIN(first + EACH, pixels); ++pixel) {
      matrix[((index_t)group * pixels + pixel) * pitch + along] =
          along < ROWS ? patch_element(from, group, row, n, p, q, z) : 0;
      if (++q == z.q) {
        q = 0;
        if (++p == z.p) p = 0, ++n;
      }
    }
#else
    const int q = along % z.q, p = along / z.q % z.p, n = first_image + along / z.q / z.p;
    Row row = row_at(first, z);
    for (int r = first; r < F_MIN(first + EACH, ROWS); ++r) {
      matrix[((index_t)group * ROWS + r) * pitch + along] =
          along < pixels ? patch_element(from, group, row, n, p, q, z) : 0;
      row = next_row(row, z);
    }
#endif
  }
}

// The patches' gradients, [group][row][pixel], added up into x's: each element gathers from the patches it was in.
F_KERNEL(THREADS)
col2im(F_INPUT(float, matrix), F_OUTPUT(element_t, x), int first_image, int images, int pitch, Sizes z) {
  F_OPEN_INPUT(float, matrix);
  F_OPEN_OUTPUT(element_t, x);
  const index_t begin = (index_t)first_image * z.c * z.h * z.w, end = begin + (index_t)images * z.c * z.h * z.w;
  for (index_t i = begin + (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < end; i += (index_t)F_BLOCKS(0) * THREADS) {
#ifdef LAYOUT_nchw
    const int w = (int)(i % z.w), h = (int)(i / z.w % z.h), c = (int)(i / z.w / z.h % z.c);
#else
    const int c = (int)(i % z.c), w = (int)(i / z.c % z.w), h = (int)(i / z.c / z.w % z.h);
#endif
    const int image = (int)(i / z.c / z.h / z.w) - first_image, group = c / z.group_c;
    float sum = 0.0f;
    for (int r = 0; r < R; ++r) {
      const int top = h + z.pad_top - r * DILATION_H, p = top / STRIDE_H;
      if (top < 0 || top % STRIDE_H != 0 || p >= z.p) continue;
      for (int s = 0; s < S; ++s) {
        const int left = w + z.pad_left - s * DILATION_W, q = left / STRIDE_W;
        if (left < 0 || left % STRIDE_W != 0 || q >= z.q) continue;
        const int row = (r * S + s) * z.group_c + c % z.group_c;
        sum += matrix[((index_t)group * TAPS * z.group_c + row) * pitch + (image * z.p + p) * z.q + q];
      }
    }
    F_STORE(x, i, sum);
  }
}

// The weights as the other side of the product, zeros up to `pitch`: forward [group][row][out channel], backward_data
// (OF_Y) [group][out channel][row].
F_KERNEL(THREADS)
weights_matrix(F_INPUT(element_t, w), F_OUTPUT(element_t, matrix), int pitch, Sizes z) {
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(element_t, matrix);
  const int rows = TAPS * z.group_c;
  const index_t count = (index_t)z.groups * (OF_Y ? z.group_k : rows) * pitch;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const int column = (int)(i % pitch);
#if OF_Y
    const int row = column, k = (int)(i / pitch % z.group_k), group = (int)(i / pitch / z.group_k);
#else
    const int k = column, row = (int)(i / pitch % rows), group = (int)(i / pitch / rows);
#endif
    const int c = row % z.group_c, tap = row / z.group_c;
    matrix[i] = row < rows && k < z.group_k
                    ? w[F_OFFSET(group * z.group_k + k, c, tap / S, tap % S, z.group_c, R, S)]
                    : 0;
  }
}
