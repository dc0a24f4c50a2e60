// What the kernels for depthwise convolutions by diagonal matrices share: a block's patches in local memory,
// pixels as they lie in nhwc, and how rows of them are brought. A warp has eight of the channels.
//
// The host defines what mma_patch.h asks for; THREADS is four times CHANNELS for each 16 places.
#pragma once
#include "kernels/gpu/mma_patch.h"

#define PIXEL_BYTES ((OCTETS | 1) * 16)  // eight neighbours share no bank
#define PAIRS ((S + 1) / 2)              // of taps across: a product has two of them
#define TOGETHER 2                       // rows of a patch that are waited for at a time

// A place reads column `step` times itself of the patch. Columns that are so far apart lie together, so that
// what eight places read by a tap are neighbours.
#define PATCH_ROWS ((ROWS - 1) * STRIDE_H + R)
#define PATCH_COLUMNS ((COLUMNS - 1) * STRIDE_W + S)
#define PATCH_STEPS ((PATCH_ROWS + TOGETHER - 1) / TOGETHER)
#define IS_LAST(row) ((row) % TOGETHER == TOGETHER - 1 || (row) == PATCH_ROWS - 1)
#define APART(columns, step) (((columns) + (step)-1) / (step))
#define LINE_PIXELS (STRIDE_W * APART(PATCH_COLUMNS, STRIDE_W))  // of an image
#define ROW_BYTES (IMAGES * LINE_PIXELS * PIXEL_BYTES)
#define NEXT_TAP \
  (STRIDE_W == 1 ? 1 : APART(PATCH_COLUMNS, STRIDE_W))  // pixels from an even tap to the odd one
#define NEXT_PAIR (STRIDE_W == 1 ? 2 : 1)

// What a thread brings of rows of so many pixels, kColumns of each image from the first one on: chunks that
// lie a row further each time. kRows of them are brought at once.
template <int kPixels, int kRows>
struct Rows {
  static constexpr int kAtOnce = THREADS / OCTETS, kTurns = (kPixels * kRows + kAtOnce - 1) / kAtOnce;
  const char* from[kTurns];
  u32 to[kTurns];
  int row[kTurns];   // of the image; outside for pixels that are
  int height, step;  // of bytes
};
template <int kPixels, int kRows, int kColumns, int kStep>
F_DEVICE Rows<kPixels, kRows> rows_of(u32 to, int row_bytes, const element_t* tensor, int first_image,
                                      int first_channel, int top, int left, int channels, int height,
                                      int width, int images) {
  constexpr int kApart = APART(kColumns, kStep), kOutside = -1 << 30;
  Rows<kPixels, kRows> rows;
  rows.height = height, rows.step = width * channels * kRows * (int)sizeof(element_t);
  const int chunk = F_THREAD() % OCTETS, channel = first_channel + chunk * CHUNK;
  F_UNROLL
  for (int turn = 0; turn < rows.kTurns; ++turn) {
    const int place = F_THREAD() / OCTETS + turn * rows.kAtOnce, below = place / kPixels,
              pixel = place % kPixels;
    const int column = pixel % kColumns, image = pixel / kColumns, n = first_image + image;
    const bool is_inside = channel < channels && (u32)(left + column) < (u32)width && image < IMAGES &&
                           n < images && below < kRows;
    rows.row[turn] = is_inside ? top + below : kOutside;
    rows.to[turn] = to + below * row_bytes +
                    ((image * kStep + column % kStep) * kApart + column / kStep) * PIXEL_BYTES + chunk * 16;
    rows.from[turn] =
        (const char*)(tensor + F_OFFSET(n, channel, top + below, left + column, channels, height, width));
  }
  return rows;
}
// The rows from the i-th on, zeros outside; those that lie `limit` or more behind the first are not brought.
template <int kPixels, int kRows>
F_DEVICE void bring_rows(const Rows<kPixels, kRows>& rows, int i, int row_bytes, int limit) {
  F_UNROLL
  for (int turn = 0; turn < rows.kTurns; ++turn) {
    const int place = F_THREAD() / OCTETS + turn * rows.kAtOnce;
    copy_piece_if(place < (limit - i < kRows ? limit - i : kRows) * kPixels, rows.to[turn] + i * row_bytes,
                  rows.from[turn] + (i64)rows.step * (i / kRows),
                  (u32)(rows.row[turn] + i) < (u32)rows.height);
  }
}
// Asks for kTotal of them, a thread for each 32 bytes.
template <int kTotal, int kPixels>
F_DEVICE void ask_for_rows(const Rows<kPixels, 1>& rows) {
  F_NO_UNROLL
  for (int i = 0; i < kTotal; ++i) {
    F_UNROLL
    for (int turn = 0; turn < rows.kTurns; ++turn) {
      const int place = F_THREAD() / OCTETS + turn * rows.kAtOnce;
      if (F_THREAD() % OCTETS % 2 == 0 && place < kPixels && (u32)(rows.row[turn] + i) < (u32)rows.height)
        ask_for(rows.from[turn] + (i64)rows.step * i);
    }
  }
}
