// A depthwise convolution as products with diagonal matrices on the matrix units (mma.sync), nhwc: forward, and
// backward_data without strides. 16 places by eight channels of a row, as they lie in memory, times a matrix that has a
// tap's weights on its diagonal, are that tap's share of 16 x 8 results: seven of eight products are with zeros, and
// still an instruction has the multiply-adds of two taps of 128 results.
//
// A block brings a halo patch of CHANNELS channels to local memory, TOGETHER rows of it after the other; a warp has eight of the
// channels, and walks down the patch with 16 places: what it reads of a row meets every row of the filter at once, each
// in the sums of another row of results. A row of results goes through local memory, so that whole lines are stored.
//
// The host defines what depthwise_diagonal_patch.h asks for, PAD_TOP and PAD_LEFT, and ASKS_AHEAD: 1 where patches are
// asked into the cache before the kernel before has ended; for backward_data strides are 1.
#include "kernels/gpu/depthwise_diagonal_patch.h"

#define SUM_ROWS ((R + STRIDE_H - 1) / STRIDE_H)  // that a row of the patch is part of
#define STORERS (THREADS / 2)                     // threads that store a row: one for each chunk of it
#define RESULT_BYTES (TILES * 16 * PIXEL_BYTES)
#define FILTER_BYTES (CHANNELS * R * S * 2)
#define RESULTS (2 * TOGETHER)  // rows of results in local memory

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_diagonal(F_TENSORS(in, w, out), Sizes z) {
  F_LET_NEXT_BEGIN();
  F_OPEN_TENSORS(in, w, out)
  const int thread = F_THREAD(), lane = thread % 32, octet = thread / 32 % OCTETS, tile = thread / 32 / OCTETS;
  const u32 chunks = (OUT_C + CHANNELS - 1) / CHANNELS;
  const u32 strips = (OUT_W + COLUMNS - 1) / COLUMNS, bands = (OUT_H + ROWS - 1) / ROWS;
  const u32 block = F_BLOCK(0);
  const int first_channel = block % chunks * CHANNELS;
  const int first_column = block / chunks % strips * COLUMNS, first_row = block / chunks / strips % bands * ROWS;
  const int first_image = block / chunks / strips / bands * IMAGES;
  const u32 patch = local_address(local_memory);

  unsigned char* const filters = local_memory + PATCH_ROWS * ROW_BYTES;
  unsigned char* const result = filters + FILTER_BYTES;
  const int top = first_row * STRIDE_H + FIRST_ROW, left = first_column * STRIDE_W + FIRST_COLUMN;
  const auto rows = rows_of<IMAGES * PATCH_COLUMNS, 1, PATCH_COLUMNS, STRIDE_W>(
      patch, ROW_BYTES, in, first_image, first_channel, top, left, IN_C, IN_H, IN_W, z.n);
  if (ASKS_AHEAD) ask_for_rows<PATCH_ROWS>(rows);
  F_WAIT_FOR_PREVIOUS();
  bring_filters<R * S>(filters, w, first_channel, OUT_C);
  F_UNROLL
  for (int row = 0; row < PATCH_ROWS; ++row) {
    bring_rows(rows, row, ROW_BYTES, PATCH_ROWS);
    if (IS_LAST(row)) close_copies();
  }

  // What the lane reads of a row: matrices are of eight places, by an even tap and by the next one. Where eights are odd
  // the last one has both halves.
  const int eight = F_MIN(tile * 2 + lane / 8 % 2, IMAGES * EIGHTS - 1);
  const u32 place = patch + (eight / EIGHTS * LINE_PIXELS + eight % EIGHTS * 8 + lane % 8) * PIXEL_BYTES + octet * 16;
  const u32 pixels = place + lane / 16 * (NEXT_TAP * PIXEL_BYTES);
  // The chunk that the thread stores of half of the rows of results: of so many rows from the first one on.
  const int stored_pixel = thread % STORERS / OCTETS, stored_chunk = thread % OCTETS;
  const int stored_image = first_image + stored_pixel / COLUMNS, stored_column = first_column + stored_pixel % COLUMNS;
  const int stored_channel = first_channel + stored_chunk * CHUNK;
  const bool is_stored =
      stored_pixel < IMAGES * COLUMNS && stored_image < z.n && stored_column < OUT_W && stored_channel < OUT_C;
  const int stored_rows = is_stored ? OUT_H - first_row : 0;
  char* const stored =
      (char*)(out + F_OFFSET(stored_image, stored_channel, first_row, stored_column, OUT_C, OUT_H, OUT_W));

  // A lane has two neighbouring elements of a matrix' column; eight lanes have one of the diagonal.
  u32 filter[R][2 * PAIRS];
  wait_for_rows<PATCH_STEPS>(PATCH_STEPS);
  F_UNROLL
  for (int r = 0; r < R; ++r) {
    F_UNROLL
    for (int s = 0; s < S; ++s) {
      const u32 weight = ((const element_t*)filters)[(octet * CHUNK + lane / 4) * (R * S) + TAP(r, s)];
      filter[r][s] = lane / 8 == lane % 4 ? weight << lane / 4 % 2 * 16 : 0;
    }
  }

  float sums[SUM_ROWS][4];
  const auto add_row = [&](int i) {
    F_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (i % STRIDE_H == 0) sums[i / STRIDE_H % SUM_ROWS][j] = 0.0f;
    }
    F_UNROLL
    for (int pair = 0; pair < PAIRS; ++pair) {
      const bool is_alone = 2 * pair + 1 == S;
      u32 a[4];
      load_matrices((is_alone ? place : pixels) + i * ROW_BYTES + pair * (NEXT_PAIR * PIXEL_BYTES), a);
      F_UNROLL
      for (int r = 0; r < R; ++r) {
        if (i < r || (i - r) % STRIDE_H != 0 || (i - r) / STRIDE_H >= ROWS) continue;
        float* const sum = sums[(i - r) / STRIDE_H % SUM_ROWS];
        if (is_alone)
          multiply_eight(a, &filter[r][2 * pair], sum);
        else
          multiply(a, &filter[r][2 * pair], sum);
      }
    }
  };
  const auto put_row = [&](int m) {
    F_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = tile * 16 + half * 8 + lane / 4;
      const float* const sum = sums[m % SUM_ROWS] + half * 2;
      float v[2] = {sum[0], sum[1]};
#ifdef DIRECTION_fwd
      const int n = first_image + own / COLUMNS, row = first_row + m, to = first_column + own % COLUMNS;
      const int channel = first_channel + octet * CHUNK + lane % 4 * 2;
      if (own < IMAGES * COLUMNS && n < z.n && row < OUT_H && to < OUT_W && channel < OUT_C) {
        const index_t offset = F_OFFSET(n, channel, row, to, OUT_C, OUT_H, OUT_W);
        v[0] = F_EPILOGUE(v[0], channel, offset), v[1] = F_EPILOGUE(v[1], channel + 1, offset + 1);
      }
#endif
      *(u32*)(result + m % RESULTS * RESULT_BYTES + own * PIXEL_BYTES + octet * 16 + lane % 4 * 4) = F_PAIR(v[0], v[1]);
    }
  };
  // Half of the threads store a row, the others the next one.
  const auto store_row = [&](int m) {
    if (thread / STORERS != m % 2 || m >= stored_rows) return;
    *(uint4*)(stored + (i64)(OUT_W * OUT_C * (int)sizeof(element_t)) * m) =
        *(const uint4*)(result + m % RESULTS * RESULT_BYTES + stored_pixel * PIXEL_BYTES + stored_chunk * 16);
  };
  walk_down<PATCH_ROWS, R, STRIDE_H, TOGETHER>(add_row, put_row, store_row);
}
