// Convolution by Fourier transforms of overlapping T x T tiles: a block transforms TILES of them (or of filters), a row
// and then a column a thread, through local memory. matrix_product.cl multiplies, for each frequency, with complex
// numbers as pairs of real ones:
//   input   [frequency][real, then imaginary parts of the in channels][tile]
//   filter  [frequency][the same][real, then imaginary parts of the out channels], of the conjugates
//   result  [frequency][real, then imaginary parts of the out channels][tile]
//
// The host defines LOG_T, TILES, THREADS = TILES * T, COMPACT, and what correlation.h asks for.
#include "kernels/gpu/correlation.h"
#include "kernels/gpu/fft_tile.h"

#define STEP_H (T - R + 1)  // outputs of a tile
#define STEP_W (T - S + 1)

// A thread's row in `re` (its imaginary part is zero) and then its column, the frequencies of all rows of column `row`.
F_DEVICE void transform_tile(float* re, float* im, int tile, int row, F_LOCAL float* local_re, F_LOCAL float* local_im) {
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) im[i] = 0.0f;
  transform(re, im, -1.0f);
  F_UNROLL_FFT
  for (int i = 0; i < HALF; ++i) {
    local_re[(row * HALF + i) * TILES + tile] = re[i];
    local_im[(row * HALF + i) * TILES + tile] = im[i];
  }
  F_BARRIER();
  if (row < HALF) {
    F_UNROLL_FFT
    for (int i = 0; i < T; ++i) {
      re[i] = local_re[(i * HALF + row) * TILES + tile];
      im[i] = local_im[(i * HALF + row) * TILES + tile];
    }
    transform(re, im, -1.0f);
  }
}

// Tiles from first_tile on, `tiles` of them; a block has TILES of one channel. out: rows of `pitch` tiles.
F_KERNEL(THREADS)
fft_input(F_INPUT(element_t, in), F_OUTPUT(float, out), int first_tile, int tiles, int pitch, Sizes z) {
  F_LOCAL_ARRAY(float, local_re, TILES* T* HALF);
  F_LOCAL_ARRAY(float, local_im, TILES* T* HALF);
  F_OPEN_INPUT(element_t, in);
  F_OPEN_OUTPUT(float, out);
  const int tile = F_THREAD() % TILES, row = F_THREAD() / TILES, c = F_BLOCK(1);
  const int place = F_BLOCK(0) * TILES + tile;
  const int tiles_h = (OUT_H + STEP_H - 1) / STEP_H, tiles_w = (OUT_W + STEP_W - 1) / STEP_W;
  const int t = first_tile + place, n = t / tiles_w / tiles_h;
  const int h = t / tiles_w % tiles_h * STEP_H - PAD_TOP + row, left = t % tiles_w * STEP_W - PAD_LEFT;
  float re[T], im[T];
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    const int exists = place < tiles && h >= 0 && h < IN_H && left + i >= 0 && left + i < IN_W;
    re[i] = exists ? F_LOAD(in, F_OFFSET(n, c, h, left + i, IN_C, IN_H, IN_W)) : 0.0f;
  }
  transform_tile(re, im, tile, row, local_re, local_im);
  if (row >= HALF || place >= tiles) return;
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    const index_t at = (index_t)(i * HALF + row) * 2 * IN_C;
    out[(at + c) * pitch + place] = re[i];
    out[(at + IN_C + c) * pitch + place] = im[i];
  }
}

// A block has the filters of TILES out channels and one in channel. filter: rows of `pitch` values.
F_KERNEL(THREADS)
fft_filter(F_INPUT(element_t, w), F_OUTPUT(float, filter), int pitch, Sizes z) {
  F_LOCAL_ARRAY(float, local_re, TILES* T* HALF);
  F_LOCAL_ARRAY(float, local_im, TILES* T* HALF);
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(float, filter);
  const int tile = F_THREAD() % TILES, row = F_THREAD() / TILES, c = F_BLOCK(1), k = F_BLOCK(0) * TILES + tile;
  float re[T], im[T];
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    re[i] = i < S && row < R && k < OUT_C ? F_LOAD(w, FILTER_OFFSET(0, k, c, row, i)) : 0.0f;
  }
  transform_tile(re, im, tile, row, local_re, local_im);
  if (row >= HALF || k >= OUT_C) return;
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    F_GLOBAL float* const real = filter + ((index_t)(i * HALF + row) * 2 * IN_C + c) * pitch;
    F_GLOBAL float* const imaginary = real + (index_t)IN_C * pitch;
    real[k] = imaginary[OUT_C + k] = re[i];
    real[OUT_C + k] = -im[i];
    imaginary[k] = im[i];
  }
}

// The way back, with the epilogue.
F_KERNEL(THREADS)
fft_output(F_INPUT(float, sums), F_OUTPUT(element_t, out), F_INPUT(element_t, bias), F_INPUT(element_t, residual),
           F_INPUT(float, slopes), int first_tile, int tiles, int pitch, Sizes z) {
  F_LOCAL_ARRAY(float, local_re, TILES* T* HALF);
  F_LOCAL_ARRAY(float, local_im, TILES* T* HALF);
  F_OPEN_INPUT(float, sums);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  const int tile = F_THREAD() % TILES, row = F_THREAD() / TILES, k = F_BLOCK(1);
  const int place = F_BLOCK(0) * TILES + tile;
  float re[T], im[T];
  if (row < HALF && place < tiles) {
    F_UNROLL_FFT
    for (int i = 0; i < T; ++i) {
      const index_t at = (index_t)(i * HALF + row) * 2 * OUT_C;
      re[i] = sums[(at + k) * pitch + place];
      im[i] = sums[(at + OUT_C + k) * pitch + place];
    }
    transform(re, im, 1.0f);
    F_UNROLL_FFT
    for (int i = 0; i < T; ++i) {
      local_re[(i * HALF + row) * TILES + tile] = re[i];
      local_im[(i * HALF + row) * TILES + tile] = im[i];
    }
  }
  F_BARRIER();
  const int tiles_h = (OUT_H + STEP_H - 1) / STEP_H, tiles_w = (OUT_W + STEP_W - 1) / STEP_W;
  const int t = first_tile + place, n = t / tiles_w / tiles_h;
  const int p = t / tiles_w % tiles_h * STEP_H + row, left = t % tiles_w * STEP_W;
  if (place >= tiles || row >= STEP_H || p >= OUT_H) return;
  F_UNROLL_FFT
  for (int i = 0; i < T; ++i) {
    const int j = i < HALF ? i : T - i;  // the rest are conjugates
    re[i] = local_re[(row * HALF + j) * TILES + tile];
    im[i] = i < HALF ? local_im[(row * HALF + j) * TILES + tile] : -local_im[(row * HALF + j) * TILES + tile];
  }
  transform(re, im, 1.0f);
  F_UNROLL_FFT
  for (int i = 0; i < STEP_W; ++i) {
    if (left + i >= OUT_W) continue;
    const index_t offset = F_OFFSET(n, k, p, left + i, OUT_C, OUT_H, OUT_W);
    F_STORE(out, offset, F_FINISH(re[i] * (1.0f / (T * T)), k, offset));
  }
}
