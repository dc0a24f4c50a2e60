// The filters' gradient of a depthwise convolution as diagonals of products on the matrix units (mma.sync), nhwc: eight
// channels of 16 pixels of x by a tap, and of the next tap, times eight channels of the output's gradient there. Of the
// 16 x 8 sums two diagonals are the two taps'; what is between channels is not stored.
//
// A block brings patches of CHANNELS channels of both to local memory, one after the other; a warp has eight of the
// channels, all of their taps, and walks down the patch with 16 pixels: a row of x meets as many rows of the gradient as
// the filter has rows. The sums of warps with the same channels are added up at the end.
//
// Blocks share the pixels. Either each stores its sums as a part, or they are a cluster and each adds up a share of all
// their sums, which the others send.
//
// The host defines what depthwise_diagonal_patch.h asks for; SPLIT: 1 where the result is [split][the whole filter] in
// floats; CLUSTER: how many blocks of the same channels are a cluster, all of them, or 1.
#include "kernels/gpu/depthwise_diagonal_patch.h"
#include "kernels/gpu/parts.h"
#if CLUSTER > 1
#include "kernels/gpu/cluster_units.h"
#endif

#define Y_PIXELS (TILES * 16)
#define Y_ROW_BYTES (Y_PIXELS * PIXEL_BYTES)
#define HELD (((R + STRIDE_H - 1) / STRIDE_H + 2) / 2 * 2)  // rows of the gradient: two are read at a time
// A row's last tap that has no next one is paired with the one below.
#define DOWN (S % 2 == 1 && R > 1)
#define ACROSS (DOWN ? PAIRS - 1 : PAIRS)
#define TOTALS (CHANNELS * R * S)
#define SHARE ((TOTALS + CLUSTER * 4 - 1) / (CLUSTER * 4) * 4)  // that a block of a cluster adds up
#define BRING_BYTES (PATCH_ROWS * ROW_BYTES + ROWS * Y_ROW_BYTES)
#define TOTALS_BYTES (TILES * TOTALS * 4)

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_diagonal_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(result_t, w), int splits, Sizes z) {
  F_LET_NEXT_BEGIN();
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(result_t, w);
  const int thread = F_THREAD(), lane = thread % 32, octet = thread / 32 % OCTETS, tile = thread / 32 / OCTETS;
  const u32 chunks = (z.k + CHANNELS - 1) / CHANNELS, strips = (z.q + COLUMNS - 1) / COLUMNS;
  const u32 bands = (z.p + ROWS - 1) / ROWS, patches = strips * bands * ((z.n + IMAGES - 1) / IMAGES);
  const u32 block = F_BLOCK(0) / CLUSTER, rank = F_BLOCK(0) % CLUSTER, split = block / chunks * CLUSTER + rank;
  const int first_channel = block % chunks * CHANNELS;
  const u32 patch = local_address(local_memory), gradient = patch + PATCH_ROWS * ROW_BYTES;
#if CLUSTER > 1
  // What is sent, behind all else.
  const u32 received = patch + (F_MAX(BRING_BYTES, TOTALS_BYTES) + 127) / 128 * 128, sent = received + CLUSTER * SHARE * 4;
  if (thread == 0) expect_sent(sent, CLUSTER * SHARE * 4);
  greet_cluster();
#endif

  float sums[R][PAIRS][4], down[(R + 1) / 2][4];
  F_UNROLL
  for (int i = 0; i < R * PAIRS * 4; ++i) sums[i / (PAIRS * 4)][i / 4 % PAIRS][i % 4] = 0.0f;
  F_UNROLL
  for (int i = 0; i < (R + 1) / 2 * 4; ++i) down[i / 4][i % 4] = 0.0f;
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
    const u32 pixels = place + lane / 8 % 2 * (NEXT_TAP * PIXEL_BYTES), below = place + lane / 8 % 2 * ROW_BYTES;
    u32 factors[HELD][2];
    // By the last column, the row i and the one below; what is below the last one goes to sums that nobody reads.
    const auto add_down = [&](int i) {
      if (!DOWN || i % STRIDE_H != 0) return;
      u32 a[4];
      load_matrices_transposed(below + i * ROW_BYTES + (PAIRS - 1) * (NEXT_PAIR * PIXEL_BYTES), a);
      F_UNROLL
      for (int r = 0; r < R; r += 2) {
        if (i < r || (i - r) % STRIDE_H != 0 || (i - r) / STRIDE_H >= ROWS) continue;
        multiply(a, factors[(i - r) / STRIDE_H % HELD], down[r / 2]);
      }
    };
    const auto add_row = [&](int i) {
      const int m = i / STRIDE_H;
      if (i > 0) add_down(i - 1);  // before the gradient's rows that it meets are overwritten
      if (i % (2 * STRIDE_H) == 0 && m < ROWS)
        load_matrices_transposed(from_y + (m + 1 < ROWS ? m + lane / 16 : m) * Y_ROW_BYTES, factors[m % HELD]);
      F_UNROLL
      for (int pair = 0; pair < ACROSS; ++pair) {
        u32 a[4];
        load_matrices_transposed(
            (2 * pair + 1 == S ? place : pixels) + i * ROW_BYTES + pair * (NEXT_PAIR * PIXEL_BYTES), a);
        F_UNROLL
        for (int r = 0; r < R; ++r) {
          if (i < r || (i - r) % STRIDE_H != 0 || (i - r) / STRIDE_H >= ROWS) continue;
          multiply(a, factors[(i - r) / STRIDE_H % HELD], sums[r][pair]);
        }
      }
      if (i == PATCH_ROWS - 1 && R % 2 == 1) add_down(i);
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
    const int r = tap / S, s = tap % S;
    const float* const sum = DOWN && s == S - 1 ? down[r / 2] + r % 2 * 2 : sums[r][s / 2] + s % 2 * 2;
    if (lane / 8 == lane % 4)
      totals[(tile * CHANNELS + octet * CHUNK + lane / 4) * (R * S) + tap] = lane / 4 % 2 == 0 ? sum[0] : sum[1];
  }
  F_BARRIER();
  result_t* const part = w + ((SPLIT ? (size_t)split * z.k : 0) + first_channel) * (R * S);
  const int count = F_MIN(z.k - first_channel, CHANNELS) * (R * S);
  const auto total = [&](int i) {
    float sum = 0.0f;
    F_UNROLL
    for (int j = 0; j < TILES; ++j) sum += totals[j * TOTALS + i];
    return sum;
  };
#if CLUSTER > 1
  meet_cluster();
  F_NO_UNROLL
  for (int i = thread * 4; i < CLUSTER * SHARE; i += THREADS * 4) {
    float four[4];
    F_UNROLL
    for (int j = 0; j < 4; ++j) four[j] = i + j < TOTALS ? total(i + j) : 0.0f;
    send_four(four, received + (rank * SHARE + i % SHARE) * 4, sent, i / SHARE);
  }
  wait_for_sent(sent);
  const float* const all = (const float*)(local_memory + (received - patch));
  F_NO_UNROLL
  for (int i = thread; i < SHARE && (int)rank * SHARE + i < count; i += THREADS) {
    float sum = 0.0f;
    F_UNROLL
    for (int j = 0; j < CLUSTER; ++j) sum += all[j * SHARE + i];
    STORE_RESULT(part, rank * SHARE + i, sum);
  }
#else
  F_NO_UNROLL
  for (int i = thread; i < count; i += THREADS) STORE_RESULT(part, i, total(i));
#endif
}
