// The convolution as a matrix product whose operands are never written out: pixels x channels, summed over taps
// and channels. Tiles of both operands go through local memory; the taps are gathered on the way there. While a
// tile is multiplied, registers bring the next one.
//
// The host defines DIRECTION_fwd or DIRECTION_bwd_d, BP and BC (pixels and channels of a tile), VECTOR_PIXELS (1:
// vectors run along pixels, 0: along channels), FLAT (1: a tile of the sum crosses taps), EXACT (1: BK
// divides the channels, so that no tile of the sum is partly empty), SPLIT (1: blocks share a sum), MIN_BLOCKS (that a
// multiprocessor should hold), for backward_data TAP_GCD, TAP_STEP and TAP_INVERSE of both dimensions (below), THREADS and what convolution.h and
// tile_product.h ask for.
#include "kernels/gpu/convolution.h"
#if VECTOR_PIXELS
#define BS BC
#define BV BP
#define PIXEL_PITCH BP
#else
#define BS BP
#define BV BC
// Quads of channels are written to four rows: one more quad a row spreads them over the banks.
#define PIXEL_PITCH (BP + 4)
#define PITCH_S PIXEL_PITCH
#endif
#include "kernels/gpu/tile_product.h"
#include "kernels/gpu/gathered_product.h"
#include "kernels/gpu/parts.h"

#ifdef LAYOUT_nchw
// Neighbouring threads bring neighbouring pixels of one channel.
#define PIXELS_EACH (BP > THREADS ? BP / THREADS : 1)
#define STEP_THREADS (THREADS > BP ? THREADS / BP : 1)
#define STEPS_EACH (BK / STEP_THREADS)
#define OWN_PIXEL(i) (thread % BP + (i)*THREADS)
#define OWN_STEP(j) (thread / BP + (j)*STEP_THREADS)
#else
// Neighbouring threads bring neighbouring quads of one pixel's channels.
#define QUADS (BK / 4)
#define PIXELS_EACH ((BP * QUADS + THREADS - 1) / THREADS)
#define STEPS_EACH 4
#define OWN_PIXEL(i) (thread / QUADS + (i) * (THREADS / QUADS))
#define OWN_STEP(j) (thread % QUADS * 4 + (j))
#endif
#define WEIGHT_QUADS ((BC * BK / 4 + THREADS - 1) / THREADS)

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

#if FLAT
#define LOOP_STEPS (TAPS * IN_GROUP)
#else
#define LOOP_STEPS IN_GROUP
#endif

// The taps that a phase's pixels have, all of them or none: each TAP_STEP-th along a dimension, from the first on.
// Those are the taps t with (at - t * dilation) % stride = 0; TAP_GCD is the greatest common divisor of both, TAP_STEP
// is stride / TAP_GCD, and TAP_INVERSE that of dilation / TAP_GCD modulo TAP_STEP.
#ifdef DIRECTION_bwd_d
#define FIRST_TAP(at, gcd, step, inverse) ((int)((i64)((at) / (gcd) % (step)) * (inverse) % (step)))
#define COUNT_TAPS(at, gcd, step, size, first) ((at) % (gcd) == 0 ? ((size) - (first) + (step)-1) / (step) : 0)
#else
#define TAP_STEP_H 1
#define TAP_STEP_W 1
#define FIRST_TAP(at, gcd, step, inverse) 0
#define COUNT_TAPS(at, gcd, step, size, first) (size)
#endif

// Stores results of channel k; four neighbours in memory, whose channels are `apart` apart. With SPLIT they are parts of
// the sum, which finish_parts.cl adds.
#if SPLIT
#define STORE_RESULT4(p, i, v) store4_f32((p) + (i), v)
#define RESULTS_ALIGNED(p) (((u32)(size_t)(p)&15) == 0)
#else
#define STORE_RESULT4(p, i, v) F_STORE4(p, i, v)
#define RESULTS_ALIGNED(p) F_IS_ALIGNED4(p)
#endif
#define RESULT(at, k, sum) STORE_RESULT(out, at, AFTER(sum, k, at));
#define RESULTS4(at, k, apart, sum0, sum1, sum2, sum3)                                 \
  {                                                                                    \
    float results[4];                                                                  \
    results[0] = AFTER(sum0, k, at);                                                   \
    results[1] = AFTER(sum1, (k) + (apart), (at) + 1);                                 \
    results[2] = AFTER(sum2, (k) + 2 * (apart), (at) + 2);                             \
    results[3] = AFTER(sum3, (k) + 3 * (apart), (at) + 3);                             \
    STORE_RESULT4(out, at, results);                                                   \
  }

F_DENSE_KERNEL(THREADS, MIN_BLOCKS)
implicit_gemm(F_INPUT(element_t, in), F_INPUT(packed_t, packed), F_OUTPUT(result_t, result),
              F_INPUT(element_t, bias), F_INPUT(element_t, residual), F_INPUT(float, slopes),
              int out_pad, int splits, Sizes z) {
  F_LOCAL_ARRAY(float, pixels, 2 * BK * PIXEL_PITCH);
  F_LOCAL_ARRAY(float, channels, 2 * BK * BC);
  F_LOCAL_ARRAY(index_t, places, BP);  // of each pixel in the result, channel 0 of the group; -1 beyond the last
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(packed_t, packed);
  F_OPEN_OUTPUT(result_t, result);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  const int thread = F_THREAD();
  F_OPEN_PRODUCT(BP, BC)
  F_GLOBAL result_t* const out = F_OWN_RESULTS(result);
  F_GLOBAL const packed_t* const weights = packed + (index_t)group * TAPS * IN_GROUP * out_pad + first_out;

  F_EACH(i, BP) {
    const Pixel p = pixel_at(first_pixel + i, row_phase, column_phase, z);
    places[i] = p.n < 0 ? -1 : F_OFFSET(p.n, group * OUT_GROUP, p.row, p.column, OUT_PITCH, OUT_H, OUT_W);
  }
  Pixel own[PIXELS_EACH];
  index_t offsets[PIXELS_EACH];  // of what the tap reads at the thread's first step; -1 in the padding
  F_UNROLL
  for (int i = 0; i < PIXELS_EACH; ++i) {
    own[i] = pixel_at(first_pixel + OWN_PIXEL(i), row_phase, column_phase, z);
  }
#ifndef LAYOUT_nchw
  const int in_is_aligned = F_IS_ALIGNED4(in) && (IN_PITCH & 3) == 0 && (IN_GROUP & 3) == 0;
#endif

  const int tap_slabs = (LOOP_STEPS + BK - 1) / BK;  // tiles of the sum in one tap, or in all
  int slabs = tap_slabs;
#if !FLAT
  const int first_r = FIRST_TAP(row_phase + z.pad_top, TAP_GCD_H, TAP_STEP_H, TAP_INVERSE_H);
  const int first_s = FIRST_TAP(column_phase + z.pad_left, TAP_GCD_W, TAP_STEP_W, TAP_INVERSE_W);
  const int taps_s = COUNT_TAPS(column_phase + z.pad_left, TAP_GCD_W, TAP_STEP_W, S, first_s);
  slabs *= COUNT_TAPS(row_phase + z.pad_top, TAP_GCD_H, TAP_STEP_H, R, first_r) * taps_s;
#endif
#if SPLIT
  const int skipped = (int)((i64)slabs * part / splits);
  slabs = (int)((i64)slabs * (part + 1) / splits) - skipped;
#else
  const int skipped = 0;
#endif
  F_VECTOR sums[TS][VN];
  clear_tile(sums);
  float next_pixels[PIXELS_EACH * STEPS_EACH];
  float next_channels[WEIGHT_QUADS * 4];
  // Of the tile that registers bring.
#if FLAT
  int tap = 0, first = (skipped - 1) * BK;
#else
  int r = first_r, s = first_s - TAP_STEP_W, tap = 0, first = LOOP_STEPS;
#if SPLIT
  // The tile before the block's first; nothing of it is used where a tap begins, nor by a block without tiles.
  if (slabs > 0) {
    r += skipped / tap_slabs / taps_s * TAP_STEP_H;
    s += skipped / tap_slabs % taps_s * TAP_STEP_W;
    if (skipped % tap_slabs > 0) {
      s += TAP_STEP_W;
      tap = r * S + s;
      first = (skipped % tap_slabs - 1) * BK;
      F_UNROLL
      for (int i = 0; i < PIXELS_EACH; ++i) offsets[i] = in_offset(own[i], tap, group * IN_GROUP, z);
    }
  }
#endif
#endif

#if COMPACT
  // What the first turn multiplies there, see F_BARRIER.
  F_EACH(i, BK * PIXEL_PITCH) pixels[BK * PIXEL_PITCH + i] = 0.0f;
  F_EACH(i, BK * BC) channels[BK * BC + i] = 0.0f;
  F_BARRIER();
#endif
  // One more turn than there are tiles: each turn multiplies what the one before brought.
  int slab = 0;
  do {
    if (slab < slabs) {
      first += BK;
#if !FLAT
      if (first >= LOOP_STEPS) {
        first = 0;
        s += TAP_STEP_W;
        if (s >= S) s = first_s, r += TAP_STEP_H;
        tap = r * S + s;
        F_UNROLL
        for (int i = 0; i < PIXELS_EACH; ++i) {
          offsets[i] = in_offset(own[i], tap, group * IN_GROUP, z);
        }
      }
#endif
      F_UNROLL
      for (int i = 0; i < PIXELS_EACH; ++i) {
#if FLAT
        F_UNROLL
        for (int j = 0; j < STEPS_EACH; ++j) {
          const int step = first + OWN_STEP(j);
          const index_t offset =
              step < LOOP_STEPS ? in_offset(own[i], step / IN_GROUP, group * IN_GROUP + step % IN_GROUP, z) : -1;
          next_pixels[i * STEPS_EACH + j] = offset >= 0 ? F_LOAD(in, offset) : 0.0f;
        }
#elif defined(LAYOUT_nchw)
        F_GLOBAL const element_t* from = in + offsets[i] + (index_t)(first + OWN_STEP(0)) * IN_CHANNEL_STRIDE;
        const int left = offsets[i] >= 0 ? (EXACT ? BK : LOOP_STEPS - first) - OWN_STEP(0) : 0;
        F_UNROLL
        for (int j = 0; j < STEPS_EACH; ++j) {
          next_pixels[i * STEPS_EACH + j] = (EXACT ? left > 0 : j * STEP_THREADS < left) ? F_LOAD(from, 0) : 0.0f;
          from += (index_t)STEP_THREADS * IN_CHANNEL_STRIDE;
        }
#else
        F_GLOBAL const element_t* const from = in + offsets[i] + first + OWN_STEP(0);
        const int left = offsets[i] >= 0 ? (EXACT ? BK : LOOP_STEPS - first) - OWN_STEP(0) : 0;
        if (in_is_aligned) {
          F_UNROLL
          for (int j = 0; j < 4; ++j) next_pixels[i * 4 + j] = 0.0f;
          if (left > 0) F_LOAD4(from, 0, next_pixels + i * 4);
        } else {
          F_UNROLL
          for (int j = 0; j < 4; ++j) next_pixels[i * 4 + j] = j < left ? F_LOAD(from, j) : 0.0f;
        }
#endif
      }
      F_UNROLL
      for (int i = 0; i < WEIGHT_QUADS; ++i) {
        const int quad = thread + i * THREADS, step = first + quad / (BC / 4);
        F_UNROLL
        for (int j = 0; j < 4; ++j) next_channels[i * 4 + j] = 0.0f;
        if ((EXACT || step < LOOP_STEPS) && (BC * BK / 4 % THREADS == 0 || quad < BC * BK / 4)) {
          F_LOAD4_PACKED(weights, ((index_t)tap * LOOP_STEPS + step) * out_pad + quad % (BC / 4) * 4,
                         next_channels + i * 4);
        }
      }
    }
    if (COMPACT || slab > 0) {
      const int from = (slab + 1) & 1;
#if VECTOR_PIXELS
      add_products(channels + from * BK * BC, (F_LOCAL const F_VECTOR*)(pixels + from * BK * PIXEL_PITCH), thread,
                   sums);
#else
      add_products(pixels + from * BK * PIXEL_PITCH, (F_LOCAL const F_VECTOR*)(channels + from * BK * BC), thread,
                   sums);
#endif
    }
    if (slab < slabs) {
      const int to = slab & 1;
      F_UNROLL
      for (int i = 0; i < PIXELS_EACH; ++i) {
#if BP * BK % (THREADS * 4) != 0
        if (OWN_PIXEL(i) >= BP) continue;
#endif
        F_UNROLL
        for (int j = 0; j < STEPS_EACH; ++j) {
          pixels[(to * BK + OWN_STEP(j)) * PIXEL_PITCH + OWN_PIXEL(i)] = next_pixels[i * STEPS_EACH + j];
        }
      }
      F_UNROLL
      for (int i = 0; i < WEIGHT_QUADS; ++i) {
        if (BC * BK / 4 % THREADS == 0 || thread + i * THREADS < BC * BK / 4) {
          store4_local(channels + to * BK * BC + (thread + i * THREADS) * 4, next_channels + i * 4);
        }
      }
    }
    F_BARRIER();
  } while (slab++ != slabs);

  const int out_is_aligned = RESULTS_ALIGNED(out);
#if VECTOR_PIXELS
  F_UNROLL_RESULTS
  for (int j = 0; j < THREAD_CHANNELS; ++j) {
    const int c = first_out + CHANNEL_POSITION(j);
    if (c >= OUT_GROUP) continue;
    F_UNROLL_RESULTS
    for (int v = 0; v < VN; ++v) {
      F_LOCAL const index_t* const place = places + PIXEL_POSITION(v * VW);
      const index_t at = place[0] + (index_t)c * OUT_CHANNEL_STRIDE;
      if (out_is_aligned && place[0] >= 0 && place[VW - 1] == place[0] + (VW - 1) && (at & 3) == 0) {
        RESULTS4(at, group * OUT_GROUP + c, 0, SUM(v * VW, j), SUM(v * VW + 1, j), SUM(v * VW + 2, j),
                 SUM(v * VW + 3, j))
      } else {
        F_UNROLL_RESULTS
        for (int i = 0; i < VW; ++i) {
          if (place[i] >= 0) {
            RESULT(place[i] + (index_t)c * OUT_CHANNEL_STRIDE, group * OUT_GROUP + c, SUM(v * VW + i, j))
          }
        }
      }
    }
  }
#else
  F_UNROLL_RESULTS
  for (int i = 0; i < THREAD_PIXELS; ++i) {
    const index_t place = places[PIXEL_POSITION(i)];
    if (place < 0) continue;
    F_UNROLL_RESULTS
    for (int v = 0; v < VN; ++v) {
      const int c = first_out + CHANNEL_POSITION(v * VW);
      const index_t at = place + (index_t)c * OUT_CHANNEL_STRIDE;
      if (out_is_aligned && c + VW <= OUT_GROUP && (at & 3) == 0) {
        RESULTS4(at, group * OUT_GROUP + c, 1, SUM(i, v * VW), SUM(i, v * VW + 1), SUM(i, v * VW + 2),
                 SUM(i, v * VW + 3))
      } else {
        F_UNROLL_RESULTS
        for (int j = 0; j < VW; ++j) {
          if (c + j < OUT_GROUP) {
            RESULT(at + (index_t)j * OUT_CHANNEL_STRIDE, group * OUT_GROUP + c + j, SUM(i, v * VW + j))
          }
        }
      }
    }
  }
#endif
}
