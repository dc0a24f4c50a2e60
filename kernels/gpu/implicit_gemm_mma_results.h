// How the sums of implicit_gemm_mma.cu, whose definitions this uses, leave a block.
#pragma once
#include "kernels/gpu/parts.h"

#ifdef LAYOUT_nchw
#define ROW_PITCH (BP + 8)  // of results in local memory: a row of pixels a channel
#define RESULT_AT(pixel, c) ((c)*ROW_PITCH + (pixel))
#else
#define ROW_PITCH (BC + 8)
#define RESULT_AT(pixel, c) ((pixel)*ROW_PITCH + (c))
#endif

// Of a block: where each pixel lies in the result, channel 0 of the group, or -1 beyond the last; and its
// first channel. Of a thread: its warp's first pixel and channel in the block.
typedef struct {
  const index_t* places;
  int group, first_out, warp_p, warp_c, thread;
} ResultPlace;

#if SPLIT
// The part of the sum, in the result's order; finish_parts.cl adds them.
F_DEVICE void store_part(const float sums[TILES_P][TILES_C][4], const ResultPlace& at, result_t* part,
                         Sizes z) {
  const int lane = at.thread % 32;
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) {
    F_UNROLL
    for (int half = 0; half < 2; ++half) {
      const index_t place = at.places[at.warp_p + i * 16 + lane / 4 + half * 8];
      F_UNROLL
      for (int j = 0; j < TILES_C; ++j) {
        const int c = at.first_out + at.warp_c + j * 8 + lane % 4 * 2;
        if (place < 0 || c >= OUT_GROUP) continue;
        result_t* const to = part + (place + (index_t)c * OUT_CHANNEL_STRIDE);
        const float* const pair = &sums[i][j][half * 2];
#ifndef LAYOUT_nchw
        if (OUT_C % 2 == 0 && OUT_GROUP % 2 == 0) {
          *(float2*)to = make_float2(pair[0], pair[1]);
          continue;
        }
#endif
        to[0] = pair[0];
        if (c + 1 < OUT_GROUP) to[OUT_CHANNEL_STRIDE] = pair[1];
      }
    }
  }
}
#else
// The sums become results in local memory, then leave along what lies together in the tensor.
F_DEVICE void store_results(const float sums[TILES_P][TILES_C][4], const ResultPlace& at, element_t* results,
                            result_t* out, const element_t* bias, const element_t* residual,
                            const float* slopes, Sizes z) {
  const int lane = at.thread % 32;
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_C; ++j) {
      F_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pixel = at.warp_p + i * 16 + lane / 4 + half * 8, c = at.warp_c + j * 8 + lane % 4 * 2;
        __align__(8) element_t pair[2];
        F_UNROLL
        for (int v = 0; v < 2; ++v) {
          float sum = sums[i][j][half * 2 + v];
#ifdef DIRECTION_fwd
          const index_t place = at.places[pixel];
          if (place >= 0 && at.first_out + c + v < OUT_GROUP) {
            sum = F_EPILOGUE(sum, at.group * OUT_GROUP + at.first_out + c + v,
                             place + (index_t)(at.first_out + c + v) * OUT_CHANNEL_STRIDE);
          }
#endif
          F_STORE(pair, v, sum);
        }
#ifdef LAYOUT_nchw
        results[RESULT_AT(pixel, c)] = pair[0];
        results[RESULT_AT(pixel, c + 1)] = pair[1];
#elif defined(DTYPE_f32)
        *(uint2*)(results + RESULT_AT(pixel, c)) = *(const uint2*)pair;
#else
        *(u32*)(results + RESULT_AT(pixel, c)) = *(const u32*)pair;
#endif
      }
    }
  }
  F_BARRIER();
#ifdef LAYOUT_nchw
  for (int e = at.thread; e < BP * BC; e += THREADS) {
    const int pixel = e % BP, c = e / BP;
    if (at.places[pixel] >= 0 && at.first_out + c < OUT_GROUP) {
      out[at.places[pixel] + (index_t)(at.first_out + c) * OUT_CHANNEL_STRIDE] = results[RESULT_AT(pixel, c)];
    }
  }
#else
  const bool out_is_aligned = (size_t)out % 16 == 0 && OUT_C % CHUNK == 0 && OUT_GROUP % CHUNK == 0;
  for (int e = at.thread; e < BP * CHUNKS_C; e += THREADS) {
    const int pixel = e / CHUNKS_C, c = e % CHUNKS_C * CHUNK;
    if (at.places[pixel] < 0 || at.first_out + c >= OUT_GROUP) continue;
    element_t* const to = out + at.places[pixel] + at.first_out + c;
    if (out_is_aligned) {
      *(uint4*)to = *(const uint4*)(results + RESULT_AT(pixel, c));
    } else {
      for (int j = 0; j < CHUNK && at.first_out + c + j < OUT_GROUP; ++j)
        to[j] = results[RESULT_AT(pixel, c) + j];
    }
  }
#endif
}
#endif
