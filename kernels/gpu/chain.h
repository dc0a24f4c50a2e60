// The words of elementwise chains, and CHAIN: what the host defines of them, from the floats v0, v1, ... to
// RESULT; and RESULT_HAS_16_BITS, where it will have so many.
#pragma once

#ifdef __OPENCL_VERSION__
#define F_LOG(x) log(x)
#define F_SIN(x) sin(x)
#define F_COS(x) cos(x)
#define F_SQRT(x) sqrt(x)
#define F_ABS(x) fabs(x)
#define F_FLOOR(x) floor(x)
#define F_CEIL(x) ceil(x)
#define F_ROUND(x) rint(x)
#define F_POW(x, y) pow(x, y)
#define F_FMOD(x, y) fmod(x, y)
#else
#define F_LOG(x) logf(x)
#define F_SIN(x) sinf(x)
#define F_COS(x) cosf(x)
#define F_SQRT(x) sqrtf(x)
#define F_ABS(x) fabsf(x)
#define F_FLOOR(x) floorf(x)
#define F_CEIL(x) ceilf(x)
#define F_ROUND(x) rintf(x)
#define F_POW(x, y) powf(x, y)
#define F_FMOD(x, y) fmodf(x, y)
#endif
#define F_C(v) v
#define F_LT(p, q, yes, no) ((p) < (q) ? (yes) : (no))
#define F_EQ(p, q, yes, no) ((p) == (q) ? (yes) : (no))
#define F_MIN(p, q) ((p) < (q) ? (p) : (q))
#define F_MAX(p, q) ((p) > (q) ? (p) : (q))
#define FALTUNG_MAP(name, inputs, value) \
  F_DEVICE float map_##name(float x, float y, float z, float a, float b) { return value; }
#include "kernels/common/map_ops.inc"
// As in convolution.h: the exact functions take several times as long as moving 16 bits.
#if defined(F_QUICK_LOGISTIC) && defined(RESULT_HAS_16_BITS)
#define map_sigmoid(x, y, z, a, b) F_QUICK_LOGISTIC(x)
#define map_silu(x, y, z, a, b) ((x)*F_QUICK_LOGISTIC(x))
#endif
