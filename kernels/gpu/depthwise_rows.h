// Tiles of a depthwise convolution with one output channel an input channel. A thread has TP x TQ pixels of
// one tensor ("out"), of CV channels in nhwc and of one in nchw, and the rows of the other ("in") that belong
// to them, as they lie in memory. backward_weights sees both as forward does, and reads them.
//
// The host defines one DIRECTION_, THREADS, TP, TQ, CV, PAD_TOP, PAD_LEFT; VB: so many threads side by side
// have neighbouring vectors of channels (1 in nchw), each has its own pixels; TAP_ROWS: rows of the filter
// that are summed at a time; in nchw VM, VL and VR, the columns that are read at once of those below (above)
// a tile and to its left and right, and VO, those of out; and what convolution.h asks for. backward_data: TP
// and TQ are multiples of the strides.
#pragma once
#include "kernels/gpu/sides.h"

#define LANES (VB * CV)        // channels of a block
#define SLICES (THREADS / VB)  // tiles of a block
#define CHUNKS ((OUT_C + LANES - 1) / LANES)

// Where of `in` the pixel `t` of a tile reads by a tap, counted from where the tile lies in `in`; whether it
// does.
#define FLOOR_DIVIDE(a, b) ((a) >= 0 ? (a) / (b) : -((-(a) + (b)-1) / (b)))
#ifdef DIRECTION_bwd_d
#define IS_PLACE(t, tap, stride, dilation, pad) (((t) + (pad) - (tap) * (dilation)) % (stride) == 0)
#define PLACE(t, tap, stride, dilation, pad) FLOOR_DIVIDE((t) + (pad) - (tap) * (dilation), stride)
#define PLACE_LOW(tile, taps, stride, dilation, pad) PLACE(0, (taps)-1, stride, dilation, pad)
#define PLACE_HIGH(tile, taps, stride, dilation, pad) PLACE((tile)-1, 0, stride, dilation, pad)
#define IN_FIRST(first, stride) ((first) / (stride))
#define IN_TILE(tile, stride) ((tile) / (stride))
#else
#define IS_PLACE(t, tap, stride, dilation, pad) 1
#define PLACE(t, tap, stride, dilation, pad) ((t) * (stride) + (tap) * (dilation) - (pad))
#define PLACE_LOW(tile, taps, stride, dilation, pad) (-(pad))
#define PLACE_HIGH(tile, taps, stride, dilation, pad) PLACE((tile)-1, (taps)-1, stride, dilation, pad)
#define IN_FIRST(first, stride) ((first) * (stride))
#define IN_TILE(tile, stride) ((tile) * (stride))
#endif
#define IS_ROW(p, r) IS_PLACE(p, r, STRIDE_H, DILATION_H, PAD_TOP)
#define IS_COLUMN(q, s) IS_PLACE(q, s, STRIDE_W, DILATION_W, PAD_LEFT)
// Rows from the first that the taps below TAP_ROWS read.
#define ROW_LOW PLACE_LOW(TP, TAP_ROWS, STRIDE_H, DILATION_H, PAD_TOP)
#define ROWS (PLACE_HIGH(TP, TAP_ROWS, STRIDE_H, DILATION_H, PAD_TOP) - ROW_LOW + 1)
#define ROW(p, r) (PLACE(p, r, STRIDE_H, DILATION_H, PAD_TOP) - ROW_LOW)
#define COLUMN_LOW PLACE_LOW(TQ, S, STRIDE_W, DILATION_W, PAD_LEFT)
#define COLUMN_HIGH PLACE_HIGH(TQ, S, STRIDE_W, DILATION_W, PAD_LEFT)
#define COLUMN(q, s) (PLACE(q, s, STRIDE_W, DILATION_W, PAD_LEFT) + LEFT)

// Words of `count` neighbours.
#ifdef DTYPE_f32
#define WORDS(count) (count)
#else
#define WORDS(count) (((count) + 1) / 2)
#endif

#ifdef LAYOUT_nchw
// Columns to the left of a tile, above or below it, and to its right, in whole vectors of each.
#define ABOVE_ZERO(a) ((a) > 0 ? (a) : 0)
#define MIDDLE IN_TILE(TQ, STRIDE_W)
#define LEFT ((ABOVE_ZERO(-(COLUMN_LOW)) + VL - 1) / VL * VL)
#define RIGHT ((ABOVE_ZERO(COLUMN_HIGH + 1 - MIDDLE) + VR - 1) / VR * VR)
#define SPAN (LEFT + MIDDLE + RIGHT)
#define ROW_WORDS (LEFT / VL * WORDS(VL) + MIDDLE / VM * WORDS(VM) + RIGHT / VR * WORDS(VR))
#define OUT_ROW_WORDS (TQ / VO * WORDS(VO))
#define IN_VECTOR ((VM) > (VL) ? ((VM) > (VR) ? VM : VR) : (VL) > (VR) ? VL : VR)
#define OUT_VECTOR VO
#else
#define LEFT (-(COLUMN_LOW))
#define SPAN (COLUMN_HIGH - COLUMN_LOW + 1)
#define ROW_WORDS (SPAN * WORDS(CV))
#define OUT_ROW_WORDS (TQ * WORDS(CV))
#define IN_VECTOR CV
#define OUT_VECTOR CV
#endif

// A row of `in` and one of `out`, as they lie in memory. Loads that may be outside the image are a choice
// between what is there and zeros, and a compiler puts what is done with the loaded value into that choice:
// converted there, a row of 16-bit elements is waited for before the next row's loads begin.
typedef struct {
  u32 words[ROW_WORDS];
} InRow;
typedef struct {
  u32 words[OUT_ROW_WORDS];
} OutRow;

F_DEVICE void load_vector(F_GLOBAL const element_t* p, int count, int inside, u32* words) {
  F_UNROLL
  for (int i = 0; i < WORDS(count); ++i) words[i] = 0;
  if (!inside) return;
#ifdef DTYPE_f32
  if (count == 1) words[0] = F_BITS(*p);
#else
  if (count == 1) words[0] = *p;
#endif
  if (count > 1 && WORDS(count) == 1) words[0] = *(F_GLOBAL const u32*)p;
  if (WORDS(count) == 2) load2_u32((F_GLOBAL const u32*)p, words);
  if (WORDS(count) == 4) load4_u32((F_GLOBAL const u32*)p, words);
}
F_DEVICE void convert_vector(const u32* words, int count, float* out) {
#ifdef DTYPE_f32
  F_UNROLL
  for (int i = 0; i < count; ++i) out[i] = F_FROM_BITS(words[i]);
#else
  F_UNROLL
  for (int i = 0; i < WORDS(count); ++i) {
    out[2 * i] = F_FROM_PAIR_LOW(words[i]);
    if (2 * i + 1 < count) out[2 * i + 1] = F_FROM_PAIR_HIGH(words[i]);
  }
#endif
}
F_DEVICE void store_vector(F_GLOBAL element_t* p, int count, const float* v) {
  u32 words[8];
  if (count == 1) {
    F_STORE(p, 0, v[0]);
    return;
  }
  F_UNROLL
  for (int i = 0; i < WORDS(count); ++i) {
#ifdef DTYPE_f32
    words[i] = F_BITS(v[i]);
#else
    words[i] = F_PAIR(v[2 * i], v[2 * i + 1]);
#endif
  }
  if (WORDS(count) == 1) *(F_GLOBAL u32*)p = words[0];
  if (WORDS(count) == 2) store2_u32((F_GLOBAL u32*)p, words);
  if (WORDS(count) == 4) store4_u32((F_GLOBAL u32*)p, words);
}

// The row of `in` of channels from c on, where a tile that begins at `column` of `in` reads it; zeros
// outside.
F_DEVICE InRow load_in_row(F_GLOBAL const element_t* in, int n, int c, int row, int column, Sizes z) {
  InRow out;
  // A place before the image is a large unsigned number.
  const int inside = (u32)row < (u32)IN_H;
#ifdef LAYOUT_nchw
  F_GLOBAL const element_t* const from = in + F_OFFSET(n, c, row, column, IN_C, IN_H, IN_W);
  u32* words = out.words;
  F_UNROLL
  for (int at = -(LEFT); at < 0; at += VL, words += WORDS(VL))
    load_vector(from + at, VL, inside && (u32)(column + at) < (u32)IN_W, words);
  F_UNROLL
  for (int at = 0; at < MIDDLE; at += VM, words += WORDS(VM))
    load_vector(from + at, VM, inside && (u32)(column + at) < (u32)IN_W, words);
  F_UNROLL
  for (int at = MIDDLE; at < MIDDLE + RIGHT; at += VR, words += WORDS(VR))
    load_vector(from + at, VR, inside && (u32)(column + at) < (u32)IN_W, words);
#else
  const int first = column + COLUMN_LOW;
  const index_t from = F_OFFSET(n, c, row, first, IN_C, IN_H, IN_W);
  F_UNROLL
  for (int i = 0; i < SPAN; ++i)
    load_vector(in + (from + (index_t)i * IN_C), CV, inside && (u32)(first + i) < (u32)IN_W,
                out.words + i * WORDS(CV));
#endif
  return out;
}
// [column][channel], the first of them LEFT before the tile.
F_DEVICE void convert_in_row(InRow row, float* line) {
  const u32* words = row.words;
#ifdef LAYOUT_nchw
  F_UNROLL
  for (int at = 0; at < LEFT; at += VL, words += WORDS(VL)) convert_vector(words, VL, line + at);
  F_UNROLL
  for (int at = LEFT; at < LEFT + MIDDLE; at += VM, words += WORDS(VM)) convert_vector(words, VM, line + at);
  F_UNROLL
  for (int at = LEFT + MIDDLE; at < SPAN; at += VR, words += WORDS(VR)) convert_vector(words, VR, line + at);
#else
  F_UNROLL
  for (int i = 0; i < SPAN; ++i) convert_vector(words + i * WORDS(CV), CV, line + i * CV);
#endif
}

// Columns of `out` that lie together in memory, and the step to the next ones.
#ifdef LAYOUT_nchw
#define OUT_STEP VO
#else
#define OUT_STEP 1
#endif
F_DEVICE OutRow load_out_row(F_GLOBAL const element_t* out, int n, int c, int row, int column, Sizes z) {
  OutRow loaded;
  const int inside = (u32)row < (u32)OUT_H;
  F_UNROLL
  for (int q = 0; q < TQ; q += OUT_STEP)
    load_vector(out + F_OFFSET(n, c, row, column + q, OUT_C, OUT_H, OUT_W), OUT_VECTOR,
                inside && column + q < OUT_W, loaded.words + q / OUT_STEP * WORDS(OUT_VECTOR));
  return loaded;
}
F_DEVICE void convert_out_row(OutRow row, float* line) {
  F_UNROLL
  for (int q = 0; q < TQ; q += OUT_STEP)
    convert_vector(row.words + q / OUT_STEP * WORDS(OUT_VECTOR), OUT_VECTOR, line + q * CV);
}

// Where a thread's tile of `out` begins. Tiles follow each other along rows, then down, then from image to
// image; beyond the last one n is no image.
typedef struct {
  int n, row, column;
} Place;
F_DEVICE Place place_of(int tile, Sizes z) {
  const int across = (OUT_W + TQ - 1) / TQ, down = (OUT_H + TP - 1) / TP;
  Place place;
  place.column = tile % across * TQ;
  place.row = tile / across % down * TP;
  place.n = tile / across / down;
  return place;
}

// Whether both tensors begin where their vectors may.
#define ARE_ALIGNED(in, out) (F_IS_ALIGNED(in, IN_VECTOR) && F_IS_ALIGNED(out, OUT_VECTOR))
