// The convolution as a matrix product whose operands are never written out: pixels x channels, summed over taps
// and channels. Tiles of both operands go through local memory; the taps are gathered on the way there.
//
// The host defines DIRECTION_fwd, DIRECTION_bwd_d or DIRECTION_bwd_w, BP and BC (pixels and channels of a tile),
// VECTOR_PIXELS (1: vectors run along pixels, 0: along channels), FLAT (1: a tile of the sum crosses taps), THREADS
// and what convolution.h and tile_product.h ask for.
#include "kernels/gpu/convolution.h"
#if VECTOR_PIXELS
#define BS BC
#define BV BP
#else
#define BS BP
#define BV BC
#endif
#include "kernels/gpu/tile_product.h"

#ifndef DIRECTION_bwd_w
#include "kernels/gpu/gathered_product.h"

// The sum: each tap's channels, or all of it at once.
#if FLAT
#define TAP_LOOPS 1
#define LOOP_STEPS (TAPS * IN_GROUP)
#else
#define TAP_LOOPS TAPS
#define LOOP_STEPS IN_GROUP
#endif
#ifdef LAYOUT_nchw
#define IN_CHANNEL_STRIDE (IN_H * IN_W)
#else
#define IN_CHANNEL_STRIDE 1
#endif

// A thread's results.
#if VECTOR_PIXELS
#define THREAD_PIXELS (VN * VW)
#define THREAD_CHANNELS TS
#define PIXEL_POSITION(i) (F_VECTOR_POSITION(thread, (i) / VW) + (i) % VW)
#define CHANNEL_POSITION(j) (F_SCALAR_BEGIN(thread) + (j))
#define SUM(i, j) F_LANE(sums[j][(i) / VW], (i) % VW)
#else
#define THREAD_PIXELS TS
#define THREAD_CHANNELS (VN * VW)
#define PIXEL_POSITION(i) (F_SCALAR_BEGIN(thread) + (i))
#define CHANNEL_POSITION(j) (F_VECTOR_POSITION(thread, (j) / VW) + (j) % VW)
#define SUM(i, j) F_LANE(sums[i][(j) / VW], (j) % VW)
#endif

// Threads run along what lies together in memory.
#ifdef LAYOUT_nchw
#define ELEMENT_PIXEL(e) ((e) % BP)
#define ELEMENT_STEP(e) ((e) / BP)
#else
#define ELEMENT_PIXEL(e) ((e) / BK)
#define ELEMENT_STEP(e) ((e) % BK)
#endif

F_KERNEL(THREADS)
implicit_gemm(F_INPUT(element_t, in), F_INPUT(packed_t, packed), F_OUTPUT(element_t, out),
              F_INPUT(element_t, bias), F_INPUT(element_t, residual), int out_pad, Sizes z) {
  F_LOCAL_ARRAY(float, scalars, BK * BS);
  F_LOCAL_ARRAY(F_VECTOR, vectors, BK * BV / VW);
  F_LOCAL_ARRAY(Pixel, places, BP);
#if !FLAT
  F_LOCAL_ARRAY(index_t, offsets, BP);  // of what the tap reads, channel 0 of the group; -1 in the padding
#endif
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(packed_t, packed);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
#if VECTOR_PIXELS
  F_LOCAL float* const pixels = (F_LOCAL float*)vectors;
  F_LOCAL float* const channels = scalars;
#else
  F_LOCAL float* const pixels = scalars;
  F_LOCAL float* const channels = (F_LOCAL float*)vectors;
#endif
  const int thread = F_THREAD();
  const index_t first_pixel = (index_t)F_BLOCK(0) * BP;
  const int first_out = F_BLOCK(1) * BC;
  const int group = F_BLOCK(2) / (PHASES_H * PHASES_W);
  const int row_phase = F_BLOCK(2) / PHASES_W % PHASES_H, column_phase = F_BLOCK(2) % PHASES_W;
  F_GLOBAL const packed_t* const weights = packed + (index_t)group * TAPS * IN_GROUP * out_pad + first_out;

  for (int i = thread; i < BP; i += THREADS) {
    places[i] = pixel_at(first_pixel + i, row_phase, column_phase, z);
  }
  F_VECTOR sums[TS][VN];
  clear_tile(sums);
  F_BARRIER();

  for (int tap = 0; tap < TAP_LOOPS; ++tap) {
#if !FLAT
#ifdef DIRECTION_bwd_d
    // All of the block's pixels have this tap, or none.
    if ((row_phase + z.pad_top - tap / S * DILATION_H) % STRIDE_H != 0 ||
        (column_phase + z.pad_left - tap % S * DILATION_W) % STRIDE_W != 0) {
      continue;
    }
#endif
    for (int i = thread; i < BP; i += THREADS) offsets[i] = in_offset(places[i], tap, group * IN_GROUP, z);
    F_BARRIER();
#endif
    for (int first = 0; first < LOOP_STEPS; first += BK) {
      for (int e = thread; e < BP * BK; e += THREADS) {
        const int step = first + ELEMENT_STEP(e), i = ELEMENT_PIXEL(e);
#if FLAT
        const index_t offset =
            step < LOOP_STEPS ? in_offset(places[i], step / IN_GROUP, group * IN_GROUP + step % IN_GROUP, z) : -1;
        pixels[ELEMENT_STEP(e) * BP + i] = offset >= 0 ? F_LOAD(in, offset) : 0.0f;
#else
        const index_t offset = offsets[i];
        pixels[ELEMENT_STEP(e) * BP + i] =
            offset >= 0 && step < LOOP_STEPS ? F_LOAD(in, offset + (index_t)step * IN_CHANNEL_STRIDE) : 0.0f;
#endif
      }
      for (int e = thread; e < BC * BK; e += THREADS) {
        const int step = first + e / BC;
        channels[e] =
            step < LOOP_STEPS ? F_LOAD_PACKED(weights, ((index_t)tap * LOOP_STEPS + step) * out_pad + e % BC) : 0.0f;
      }
      F_BARRIER();
      add_products(scalars, vectors, thread, sums);
      F_BARRIER();
    }
  }

  F_UNROLL_RESULTS
  for (int i = 0; i < THREAD_PIXELS; ++i) {
    const Pixel pixel = places[PIXEL_POSITION(i)];
    F_UNROLL_RESULTS
    for (int j = 0; j < THREAD_CHANNELS; ++j) {
      const int c = first_out + CHANNEL_POSITION(j);
      if (pixel.n >= 0 && c < OUT_GROUP) {
        const int channel = group * OUT_GROUP + c;
        const index_t offset = F_OFFSET(pixel.n, channel, pixel.row, pixel.column, OUT_C, OUT_H, OUT_W);
#ifdef DIRECTION_fwd
        F_STORE(out, offset, F_EPILOGUE(SUM(i, j), channel, offset));
#else
        F_STORE(out, offset, SUM(i, j));
#endif
      }
    }
  }
}

#else  // DIRECTION_bwd_w

#define TAPS (R * S)

// One block: BS output channels x BV columns of a filter (in the filter's memory order), summed over the pixels of
// one of `splits` parts. partial: [split][the whole filter tensor].
F_KERNEL(THREADS)
implicit_gemm_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(float, partial), int splits, Sizes z) {
  F_LOCAL_ARRAY(float, scalars, BK * BS);
  F_LOCAL_ARRAY(F_VECTOR, vectors, BK * BV / VW);
  F_LOCAL_ARRAY(int, places, BK * 5);  // of each pixel of the tile: n, p, q, and what its first tap reads
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(float, partial);
  const int thread = F_THREAD();
  const int filter = TAPS * z.group_c;
  const int first_column = F_BLOCK(0) * BV, first_k = F_BLOCK(1) * BS;
  const int group = F_BLOCK(2) / splits, split = F_BLOCK(2) % splits;
  const index_t count = (index_t)z.n * z.p * z.q;
  const index_t part = (count + splits - 1) / splits;
  const index_t begin = part * split, end = F_MIN(count, begin + part);
  F_VECTOR sums[TS][VN];
  clear_tile(sums);
  for (index_t first = begin; first < end; first += BK) {
    for (int i = thread; i < BK; i += THREADS) {
      const index_t pixel = first + i;
      const int q = (int)(pixel % z.q), p = (int)(pixel / z.q % z.p);
      places[i * 5] = pixel < end ? (int)(pixel / z.q / z.p) : -1;
      places[i * 5 + 1] = p;
      places[i * 5 + 2] = q;
      places[i * 5 + 3] = p * STRIDE_H - z.pad_top;
      places[i * 5 + 4] = q * STRIDE_W - z.pad_left;
    }
    F_BARRIER();
    for (int e = thread; e < BS * BK; e += THREADS) {
#ifdef LAYOUT_nchw
      const int step = e % BK, k = e / BK;
#else
      const int step = e / BS, k = e % BS;
#endif
      const int n = places[step * 5];
      float value = 0.0f;
      if (n >= 0 && first_k + k < z.group_k) {
        value = F_LOAD(y, F_OFFSET(n, group * z.group_k + first_k + k, places[step * 5 + 1], places[step * 5 + 2], z.k,
                                   z.p, z.q));
      }
      scalars[step * BS + k] = value;
    }
    for (int e = thread; e < BV * BK; e += THREADS) {
#ifdef LAYOUT_nchw
      const int step = e % BK, column = first_column + e / BK;
      const int c = column / TAPS, r = column / S % R, s = column % S;
#else
      const int step = e / BV, column = first_column + e % BV;
      const int c = column % z.group_c, r = column / z.group_c / S, s = column / z.group_c % S;
#endif
      const int n = places[step * 5];
      const int h = places[step * 5 + 3] + r * DILATION_H, w = places[step * 5 + 4] + s * DILATION_W;
      float value = 0.0f;
      if (n >= 0 && column < filter && h >= 0 && h < z.h && w >= 0 && w < z.w) {
        value = F_LOAD(x, F_OFFSET(n, group * z.group_c + c, h, w, z.c, z.h, z.w));
      }
      ((F_LOCAL float*)vectors)[step * BV + column - first_column] = value;
    }
    F_BARRIER();
    add_products(scalars, vectors, thread, sums);
    F_BARRIER();
  }
  F_UNROLL_RESULTS
  for (int i = 0; i < TS; ++i) {
    const int k = first_k + F_SCALAR_BEGIN(thread) + i;
    F_UNROLL_RESULTS
    for (int v = 0; v < VN; ++v) {
      F_UNROLL_RESULTS
      for (int lane = 0; lane < VW; ++lane) {
        const int column = first_column + F_VECTOR_POSITION(thread, v) + lane;
        if (k < z.group_k && column < filter) {
          partial[((index_t)split * z.k + group * z.group_k + k) * filter + column] = F_LANE(sums[i][v], lane);
        }
      }
    }
  }
}

#endif
