// The activations, activate_<name>(x, slope). The host writes activate(), which is one of them, behind this.
#pragma once

#define F_C(v) (v)
#define F_LT(p, q, yes, no) ((p) < (q) ? (yes) : (no))
#define F_EXP(v) expf(v)
#define F_ERF(v) erff(v)
#define F_TANH(v) tanhf(v)
#define F_MIN(p, q) ((p) < (q) ? (p) : (q))
#define F_MAX(p, q) ((p) > (q) ? (p) : (q))
#define FALTUNG_ACTIVATION(name, value) \
  __device__ __forceinline__ float activate_##name(float x, float a) { return value; }
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
