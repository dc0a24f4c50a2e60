// The filters' gradient of a depthwise convolution as diagonals of products on the matrix units (mma.sync), nhwc: eight
// channels of 16 pixels of x by a tap, and of the next tap, times eight channels of the output's gradient there. Of the
// 16 x 8 sums two diagonals are the two taps'; what is between channels is not stored.
//
// A block brings patches of CHANNELS channels of both to local memory, one after the other; a warp has eight of the
// channels, all of their taps, and walks down the patch with 16 pixels: a row of x meets as many rows of the gradient as
// the filter has rows. The sums of warps with the same channels are added up at the end.
//
// The host defines what depthwise_diagonal_patch.h asks for, and SPLIT: 1 where blocks share the pixels (then the result
// is [split][the whole filter] in floats).
#include "kernels/gpu/depthwise_diagonal_patch.h"
#include "kernels/gpu/parts.h"

#define Y_PIXELS (TILES * 16)
#define Y_ROW_BYTES (Y_PIXELS * PIXEL_BYTES)
#define HELD (((R + STRIDE_H - 1) / STRIDE_H + 2) / 2 * 2)  // rows of the gradient: two are read at a time
// Of the patch's rows so many are waited for at a time.
#define TOGETHER 2
#define PATCH_STEPS ((PATCH_ROWS + TOGETHER - 1) / TOGETHER)
#define IS_LAST(row) ((row) % TOGETHER == TOGETHER - 1 || (row) == PATCH_ROWS - 1)

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_diagonal_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(result_t, w), int splits, Sizes z) {
  F_LET_NEXT_BEGIN();
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(result_t, w);
  const int thread = F_THREAD(), lane = thread % 32, octet = thread / 32 % OCTETS, tile = thread / 32 / OCTETS;
  const u32 chunks = (z.k + CHANNELS - 1) / CHANNELS, strips = (z.q + COLUMNS - 1) / COLUMNS;
  const u32 bands = (z.p + ROWS - 1) / ROWS, patches = strips * bands * ((z.n + IMAGES - 1) / IMAGES);
  const u32 block = F_BLOCK(0), split = block / chunks;
  const int first_channel = block % chunks * CHANNELS;
  const u32 patch = local_address(local_memory), gradient = patch + PATCH_ROWS * ROW_BYTES;

  float sums[R][PAIRS][4];
  F_UNROLL
  for (int i = 0; i < R * PAIRS * 4; ++i) sums[i / (PAIRS * 4)][i / 4 % PAIRS][i % 4] = 0.0f;
  F_WAIT_FOR_PREVIOUS();
  F_NO_UNROLL
  for (u32 at = split; at < patches; at += splits) {
    const int first_column = at % strips * COLUMNS, first_row = at / strips % bands * ROWS;
    const int first_image = at / strips / bands * IMAGES;
    F_BARRIER();
    const auto rows = rows_of<IMAGES * PATCH_COLUMNS, 1, PATCH_COLUMNS, STRIDE_W>(
        patch, ROW_BYTES, x, first_image, first_channel, first_row * STRIDE_H - z.pad_top,
        first_column * STRIDE_W - z.pad_left, z.c, z.h, z.w, z.n);
    const auto y_rows = rows_of<Y_PIXELS, 2, COLUMNS, 1>(gradient, Y_ROW_BYTES, y, first_image, first_channel, first_row,
                                                         first_column, z.k, z.p, z.q, z.n);
    F_UNROLL
    for (int row = 0; row < PATCH_ROWS; ++row) {
      bring_rows(rows, row, ROW_BYTES, PATCH_ROWS);
      // Two rows of the gradient are read at a time.
      if (row % (2 * STRIDE_H) == 0 && row / STRIDE_H < ROWS) bring_rows(y_rows, row / STRIDE_H, Y_ROW_BYTES, ROWS);
      if (IS_LAST(row)) close_copies();
    }
    // Rows of matrices are pixels. Where eights are odd the gradient's last ones are zeros, x any.
    const u32 from_y = gradient + (tile * 16 + lane % 16) * PIXEL_BYTES + octet * 16;
    const int eight = F_MIN(tile * 2 + lane / 16, IMAGES * EIGHTS - 1);
    const u32 place = patch + (eight / EIGHTS * LINE_PIXELS + eight % EIGHTS * 8 + lane % 8) * PIXEL_BYTES + octet * 16;
    const u32 pixels = place + lane / 8 % 2 * (NEXT_TAP * PIXEL_BYTES);
    u32 factors[HELD][2];
    const auto add_row = [&](int i) {
      const int m = i / STRIDE_H;
      if (i % (2 * STRIDE_H) == 0 && m < ROWS)
        load_matrices_transposed(from_y + (m + 1 < ROWS ? m + lane / 16 : m) * Y_ROW_BYTES, factors[m % HELD]);
      F_UNROLL
      for (int pair = 0; pair < PAIRS; ++pair) {
        u32 a[4];
        load_matrices_transposed(
            (2 * pair + 1 == S ? place : pixels) + i * ROW_BYTES + pair * (NEXT_PAIR * PIXEL_BYTES), a);
        F_UNROLL
        for (int r = 0; r < R; ++r) {
          if (i < r || (i - r) % STRIDE_H != 0 || (i - r) / STRIDE_H >= ROWS) continue;
          multiply(a, factors[(i - r) / STRIDE_H % HELD], sums[r][pair]);
        }
      }
    };
    F_UNROLL
    for (int i = 0; i < PATCH_ROWS; ++i) {
      if (i % TOGETHER == 0) wait_for_rows<PATCH_STEPS>(PATCH_STEPS - 1 - i / TOGETHER);
      add_row(i);
    }
  }

  // A lane has two neighbouring sums of a row; eight lanes have one of the diagonal.
  float* const totals = (float*)local_memory;  // [tile][channel][tap]
  F_BARRIER();
  F_UNROLL
  for (int tap = 0; tap < R * S; ++tap) {
    const float* const sum = sums[tap / S][tap % S / 2] + tap % S % 2 * 2;
    if (lane / 8 == lane % 4)
      totals[(tile * CHANNELS + octet * CHUNK + lane / 4) * (R * S) + tap] = lane / 4 % 2 == 0 ? sum[0] : sum[1];
  }
  F_BARRIER();
  result_t* const part = w + ((SPLIT ? (size_t)split * z.k : 0) + first_channel) * (R * S);
  F_NO_UNROLL
  for (int i = thread; i < F_MIN(z.k - first_channel, CHANNELS) * (R * S); i += THREADS) {
    float sum = 0.0f;
    F_UNROLL
    for (int j = 0; j < TILES; ++j) sum += totals[j * (CHANNELS * R * S) + i];
    STORE_RESULT(part, i, sum);
  }
}
