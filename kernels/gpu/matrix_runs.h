// Neighbouring channels of a pixel's results as they leave a lane of implicit_gemm_matrix.cl: 16 bytes at
// once.
//
// After parts.h and nvidia_matrix.h.
#pragma once

#if SPLIT || defined(DTYPE_f32)
#define RUN 4  // results
#else
#define RUN 8
#endif

#if defined(DIRECTION_fwd) && !SPLIT && HAS_BIAS
#ifdef F32_BIAS
#define BIAS_OF(channel) ((F_GLOBAL const float*)bias)[channel]
#else
#define BIAS_OF(channel) F_LOAD(bias, channel)
#endif
#else
#define BIAS_OF(channel) 0.0f
#endif

#if defined(DIRECTION_fwd) && !SPLIT && HAS_RESIDUAL
#define HAS_ADDED 1
#else
#define HAS_ADDED 0
#endif

F_DEVICE void add_run(uint4 words, float* sums) {
  const u32 w[4] = {words.x, words.y, words.z, words.w};
  F_UNROLL
  for (int i = 0; i < 4; ++i) {
#ifdef DTYPE_f32
    sums[i] += F_FROM_BITS(w[i]);
#else
    sums[2 * i] += F_FROM_PAIR_LOW(w[i]);
    sums[2 * i + 1] += F_FROM_PAIR_HIGH(w[i]);
#endif
  }
}

// The epilogue of RUN sums of output channels from k on. added: the residual's chunk.
F_DEVICE void finish_run(float* sums, int k, const float* bias, F_GLOBAL const float* slopes, uint4 added) {
#if defined(DIRECTION_fwd) && !SPLIT
  F_UNROLL
  for (int i = 0; i < RUN; ++i) sums[i] += bias[i];
#if HAS_RESIDUAL && !RESIDUAL_AFTER
  add_run(added, sums);
#endif
  F_UNROLL
  for (int i = 0; i < RUN; ++i) sums[i] = ACTIVATION(sums[i], NUMBERS(k + i));
#if HAS_RESIDUAL && RESIDUAL_AFTER
  add_run(added, sums);
#endif
#endif
}

// At a multiple of 16 bytes.
F_DEVICE void store_run(F_GLOBAL result_t* to, const float* sums) {
#if RUN == 4
  *(F_GLOBAL float4*)to = (float4)(sums[0], sums[1], sums[2], sums[3]);
#else
  *(F_GLOBAL uint4*)to = (uint4)(pair_of(sums[0], sums[1]), pair_of(sums[2], sums[3]),
                                 pair_of(sums[4], sums[5]), pair_of(sums[6], sums[7]));
#endif
}
