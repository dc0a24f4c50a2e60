// The two sides of the product that forward and backward_data are: what is gathered, and the packed weights.
//
// Backward_data with a stride falls into STRIDE_H * STRIDE_W phases, the pixels whose taps coincide.
//
// The host defines COMPACT, THREADS, SPLIT where blocks may share a sum, and what sides.h asks for.
#pragma once
#include "kernels/gpu/sides.h"

#define TAPS (R * S)

#ifdef LAYOUT_nchw
#define IN_CHANNEL_STRIDE (IN_H * IN_W)
#define OUT_CHANNEL_STRIDE (OUT_H * OUT_W)
#else
#define IN_CHANNEL_STRIDE 1
#define OUT_CHANNEL_STRIDE 1
#endif

#ifdef DIRECTION_fwd
#define PHASES_H 1
#define PHASES_W 1
// The row that tap r of output row `row` reads; out of the image where it is none.
#define IN_ROW(row, r) ((row)*STRIDE_H - z.pad_top + (r)*DILATION_H)
#define IN_COLUMN(column, s) ((column)*STRIDE_W - z.pad_left + (s)*DILATION_W)
// The same in two: where an output's first tap reads, in the image or not, and how far from there another
// does.
#define FIRST_ROW(row) ((row)*STRIDE_H - z.pad_top)
#define FIRST_COLUMN(column) ((column)*STRIDE_W - z.pad_left)
#define TAP_ROW(tap) ((tap) / S * DILATION_H)
#define TAP_COLUMN(tap) ((tap) % S * DILATION_W)
#endif

#ifdef DIRECTION_bwd_d
#define PHASES_H STRIDE_H
#define PHASES_W STRIDE_W
#define IN_ROW(row, r) divide_exactly((row) + z.pad_top - (r)*DILATION_H, STRIDE_H)
#define IN_COLUMN(column, s) divide_exactly((column) + z.pad_left - (s)*DILATION_W, STRIDE_W)
F_DEVICE int divide_exactly(int a, int b) { return a % b == 0 ? a / b : -1; }
// The rows of a phase follow each other in steps of the stride; a tap that the phase has is a whole number of
// rows off.
#define FIRST_ROW(row) ((row) / STRIDE_H)
#define FIRST_COLUMN(column) ((column) / STRIDE_W)
#define TAP_ROW(tap) ((row_phase + z.pad_top - (tap) / S * DILATION_H) / STRIDE_H)
#define TAP_COLUMN(tap) ((column_phase + z.pad_left - (tap) % S * DILATION_W) / STRIDE_W)
#endif

// Packed weights are floats on devices that convert slowly (COMPACT).
#if COMPACT
typedef float packed_t;
#define F_PACK(p, i) F_LOAD(p, i)
#define F_LOAD_PACKED(p, i) ((p)[i])
#define F_LOAD4_PACKED(p, i, v) load4_f32((p) + (i), v)
#else
typedef element_t packed_t;
#define F_PACK(p, i) ((p)[i])
#define F_LOAD_PACKED(p, i) F_LOAD(p, i)
#define F_LOAD4_PACKED(p, i, v) F_LOAD4(p, i, v)
#endif

// A block's part of the work: its first pixel of a phase, its first channel of a group, and with SPLIT (1:
// blocks share a sum) which part of the sum; and the block's group and phase.
#define F_OPEN_PRODUCT(pixels, channels)                      \
  const index_t first_pixel = (index_t)F_BLOCK(0) * (pixels); \
  const int first_out = F_BLOCK(1) * (channels);              \
  F_OPEN_PART                                                 \
  const int group = product / (PHASES_H * PHASES_W);          \
  const int row_phase = product / PHASES_W % PHASES_H, column_phase = product % PHASES_W;
#if SPLIT
#define F_OPEN_PART const int part = F_BLOCK(2) % splits, product = F_BLOCK(2) / splits;
// Where the part's results are: behind those of the parts before.
#define F_OWN_RESULTS(all) ((all) + (size_t)part * z.n * OUT_C * OUT_H * OUT_W)
#else
#define F_OPEN_PART const int product = F_BLOCK(2);
#define F_OWN_RESULTS(all) (all)
#endif

// A pixel of the output: which image, row and column; n is -1 beyond the last.
typedef struct {
  int n, row, column;
} Pixel;

// Pixel i of the phase: rows row_phase, row_phase + PHASES_H, ... of the output.
F_DEVICE Pixel pixel_at(index_t i, int row_phase, int column_phase, Sizes z) {
  const int rows = (OUT_H - row_phase + PHASES_H - 1) / PHASES_H;
  const int columns = (OUT_W - column_phase + PHASES_W - 1) / PHASES_W;
  Pixel pixel;
  pixel.column = (int)(i % columns) * PHASES_W + column_phase;
  pixel.row = (int)(i / columns % rows) * PHASES_H + row_phase;
  // Without a branch: PoCL 5 takes what comes out of one for the same in all threads.
  const int n = (int)(i / columns / rows), exists = (n < z.n) & (rows > 0) & (columns > 0);
  pixel.n = exists ? n : -1;
  return pixel;
}

// The offset of a channel of what the pixel's tap reads; -1 in the padding.
F_DEVICE index_t in_offset(Pixel pixel, int tap, int channel, Sizes z) {
  const int h = IN_ROW(pixel.row, tap / S), w = IN_COLUMN(pixel.column, tap % S);
  if (pixel.n < 0 || h < 0 || h >= IN_H || w < 0 || w >= IN_W) return -1;
  return F_OFFSET(pixel.n, channel, h, w, IN_PITCH, IN_H, IN_W);
}
