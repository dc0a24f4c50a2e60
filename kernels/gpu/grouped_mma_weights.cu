// The filters' gradient of groups of 2 to 32 channels on the matrix units (mma.sync), nhwc. A block brings patches of 64
// channels of x and of the output's gradient to local memory, one after the other; a warp has 16 of the filters, all of
// their taps, and walks down the patch with 16 pixels: a row of x meets as many rows of the gradient as the filter has
// rows. What is between groups is multiplied, too, and not stored.
//
// The host defines what grouped_mma_patch.h asks for, THREADS 128, and SPLIT: 1 where blocks share the pixels (then the
// result is [split][the whole filter] in floats).
#include "kernels/gpu/grouped_mma_patch.h"
#include "kernels/gpu/parts.h"

#define PATCH_ROWS ((ROWS - 1) * STRIDE_H + R)
#define PATCH_COLUMNS ((COLUMNS - 1) * STRIDE_W + S)
#define ROW_PIXELS (IMAGES * PATCH_COLUMNS)
#define Y_PIXELS (TILES * 16)
#define HELD ((R + STRIDE_H - 1) / STRIDE_H)  // rows of the gradient that a row of x meets
#define SIDES (STEPS / 8 > 2 ? STEPS / 8 : 2)  // eights of channels that a warp's filters have or are beside

F_DENSE_KERNEL(THREADS, BLOCKS)
grouped_mma_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(result_t, w), int splits, Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(result_t, w);
  const int thread = F_THREAD(), lane = thread % 32, warp_channel = thread / 32 * 16;
  const int chunks = (z.k + CHANNELS - 1) / CHANNELS, strips = (z.q + COLUMNS - 1) / COLUMNS;
  const int bands = (z.p + ROWS - 1) / ROWS, patches = strips * bands * ((z.n + IMAGES - 1) / IMAGES);
  const int first_channel = F_BLOCK(0) % chunks * CHANNELS, split = F_BLOCK(0) / chunks;
  const int read_channel = warp_channel / STEPS * STEPS;
  const u32 patch = local_address(local_memory), gradient = patch + PATCH_ROWS * ROW_PIXELS * PIXEL_BYTES;

  float sums[R * S][SIDES][4];
  F_UNROLL
  for (int i = 0; i < R * S * SIDES * 4; ++i) sums[i / (SIDES * 4)][i / 4 % SIDES][i % 4] = 0.0f;
  F_NO_UNROLL
  for (int at = split; at < patches; at += splits) {
    const int first_column = at % strips * COLUMNS, first_row = at / strips % bands * ROWS;
    const int first_image = at / strips / bands * IMAGES;
    F_BARRIER();
    F_NO_UNROLL
    for (int row = 0; row < PATCH_ROWS; ++row) {
      bring_row<ROW_PIXELS, PATCH_COLUMNS, STRIDE_W>(patch + row * ROW_PIXELS * PIXEL_BYTES, x, first_image, first_channel,
                                                     first_row * STRIDE_H - z.pad_top + row,
                                                     first_column * STRIDE_W - z.pad_left, z.c, z.h, z.w, z.n);
      const int m = row / STRIDE_H;
      if (row % STRIDE_H == 0 && m < ROWS)
        bring_row<Y_PIXELS, COLUMNS, 1>(gradient + m * Y_PIXELS * PIXEL_BYTES, y, first_image, first_channel,
                                        first_row + m, first_column, z.k, z.p, z.q, z.n);
      close_copies();
    }
    F_NO_UNROLL
    for (int tile = 0; tile < TILES; ++tile) {
      // Rows of matrices are pixels. Where eights are odd the gradient's last ones are zeros, x any.
      const int pixel = tile * 16 + lane / 16 * 8 + lane % 8;
      const u32 from_y = gradient + pixel * PIXEL_BYTES + CHUNK_PLACE(warp_channel / CHUNK + lane / 8 % 2, pixel, 1);
      const int eight = F_MIN(tile * 2 + lane / 8 % 2, IMAGES * EIGHTS - 1);
      const int column = (eight % EIGHTS * 8 + lane % 8) * STRIDE_W, chunk = read_channel / CHUNK + lane / 16;
      const u32 from_x = patch + (eight / EIGHTS * PATCH_COLUMNS + column) * PIXEL_BYTES;
      u32 factors[HELD][4];
      const auto add_row = [&](int i) {
        if (i % STRIDE_H == 0 && i / STRIDE_H < ROWS)
          load_matrices_transposed(from_y + i / STRIDE_H * Y_PIXELS * PIXEL_BYTES, factors[i / STRIDE_H % HELD]);
        F_UNROLL
        for (int s = 0; s < S; ++s) {
          u32 pixels[SIDES][2];
          F_UNROLL
          for (int two = 0; two < SIDES; two += 2)
            load_matrices_transposed(from_x + (i * ROW_PIXELS + s) * PIXEL_BYTES +
                                         CHUNK_PLACE(chunk + two, column + s, STRIDE_W),
                                     pixels[two]);
          F_UNROLL
          for (int r = 0; r < R; ++r) {
            if (i < r || (i - r) % STRIDE_H != 0 || (i - r) / STRIDE_H >= ROWS) continue;
            F_UNROLL
            for (int side = 0; side < SIDES; ++side)
              multiply(factors[(i - r) / STRIDE_H % HELD], pixels[side], sums[r * S + s][side]);
          }
        }
      };
      F_UNROLL
      for (int i = 0; i < PATCH_ROWS; ++i) {
        if (tile == 0) wait_for_rows<PATCH_ROWS>(PATCH_ROWS - 1 - i);
        add_row(i);
      }
    }
  }

  result_t* const part = w + (SPLIT ? (size_t)split * z.k * (R * S * GROUP) : 0);
  F_UNROLL
  for (int side = 0; side < SIDES; ++side) {
    F_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int k = first_channel + warp_channel + half * 8 + lane / 4;
      const int c = first_channel + read_channel + side * 8 + lane % 4 * 2;
      if (k >= z.k || k / GROUP != c / GROUP) continue;
      F_UNROLL
      for (int tap = 0; tap < R * S; ++tap) {
        const index_t to = ((index_t)k * R * S + tap) * GROUP + c % GROUP;
        STORE_RESULT(part, to, sums[tap][side][half * 2]);
        STORE_RESULT(part, to + 1, sums[tap][side][half * 2 + 1]);
      }
    }
  }
}
