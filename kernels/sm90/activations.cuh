// The activations, activate_<name>(x, a, b). The host writes activate(x, slope), which is one of them, behind this.
#pragma once

#define F_C(v) (v)
#define F_LT(p, q, yes, no) ((p) < (q) ? (yes) : (no))
#define F_EXP(v) expf(v)
#define F_ERF(v) erff(v)
#define F_TANH(v) tanhf(v)
#define F_MIN(p, q) ((p) < (q) ? (p) : (q))
#define F_MAX(p, q) ((p) > (q) ? (p) : (q))
#define FALTUNG_ACTIVATION(name, value) \
  __device__ __forceinline__ float activate_##name(float x, float a, float b) { return value; }
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION

// In one instruction: a NaN stays one, a zero has no sign.
__device__ __forceinline__ float quick_relu(float x, float) {
  asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));
  return x;
}

// Of results of 16 bits, by the chip's own exponential and reciprocal, whose errors (docs/accuracy.md) are far below the
// result's rounding: the exact functions and divisions took several times as long as storing the result.
// As instructions: the compiler's __expf and __fdividef see to the smallest numbers, which takes as long again.
__device__ __forceinline__ float quick_sigmoid(float x, float) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
}
__device__ __forceinline__ float quick_silu(float x, float) { return x * quick_sigmoid(x, 0.0f); }
