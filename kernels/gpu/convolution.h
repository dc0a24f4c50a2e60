// What every portable kernel needs: the sizes, elements of each dtype, tensors of each layout, the epilogue.
//
// The host defines, before this:
//   DTYPE_f32, DTYPE_f16 or DTYPE_bf16; LAYOUT_nchw or LAYOUT_nhwc
//   WIDE      1 where a tensor has 2^31 elements or more, 0 otherwise
//   R S, STRIDE_H STRIDE_W, DILATION_H DILATION_W
//   HAS_BIAS HAS_RESIDUAL RESIDUAL_AFTER (the activation) ACTIVATION(x, a, b) NUMBERS(k): its a and b,
//   of output channel k
//   F32_BIAS where the bias is of fp32 beside elements of 16 bits
//   POOL_none, POOL_maxpool or POOL_avgpool, and POOL_H POOL_W POOL_STRIDE_H POOL_STRIDE_W
#pragma once

typedef struct {
#define FALTUNG_SIZE(name, value) int name;
#include "kernels/common/sizes.inc"
} Sizes;

#if WIDE
typedef i64 index_t;
#else
typedef int index_t;
#endif

#ifdef DTYPE_f32
typedef float element_t;
#define F_LOAD(p, i) ((p)[i])
#define F_STORE(p, i, v) ((p)[i] = (v))
#define F_LOAD4(p, i, v) load4_f32((p) + (i), v)
#define F_STORE4(p, i, v) store4_f32((p) + (i), v)
#endif
#ifdef DTYPE_f16
typedef u16 element_t;
#define F_LOAD(p, i) load_f16(p, i)
#define F_STORE(p, i, v) store_f16(p, i, v)
#define F_LOAD4(p, i, v) load4_f16((p) + (i), v)
#define F_STORE4(p, i, v) store4_f16((p) + (i), v)
#define F_LOAD8(p, i, v) load8_f16((p) + (i), v)
#define F_STORE8(p, i, v) store8_f16((p) + (i), v)
#define F_FROM_PAIR_LOW(word) low_f16(word)
#define F_FROM_PAIR_HIGH(word) high_f16(word)
#define F_PAIR(low, high) pair_f16(low, high)
#endif
#ifdef DTYPE_bf16
typedef u16 element_t;
#define F_LOAD(p, i) F_FROM_BITS((u32)(p)[i] << 16)
#define F_STORE(p, i, v) ((p)[i] = bf16_bits(v))
// Round to nearest, ties to even; NaN stays NaN.
F_DEVICE u16 bf16_bits(float v) {
  const u32 bits = F_BITS(v);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (u16)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}
#define F_LOAD4(p, i, v) load4_bf16((p) + (i), v)
#define F_STORE4(p, i, v) store4_bf16((p) + (i), v)
#define F_LOAD8(p, i, v) load8_bf16((p) + (i), v)
#define F_STORE8(p, i, v) store8_bf16((p) + (i), v)
#define F_FROM_PAIR_LOW(word) F_FROM_BITS((word) << 16)
#define F_FROM_PAIR_HIGH(word) F_FROM_BITS((word)&0xffff0000u)
#ifdef F_PAIR_BF16
#define F_PAIR(low, high) F_PAIR_BF16(low, high)
#else
#define F_PAIR(low, high) (bf16_bits(low) | (u32)bf16_bits(high) << 16)
#endif
F_DEVICE void load4_bf16(F_GLOBAL const u16* p, float* v) {
  u16 bits[4];
  load4_u16(p, bits);
  F_UNROLL
  for (int i = 0; i < 4; ++i) v[i] = F_FROM_BITS((u32)bits[i] << 16);
}
F_DEVICE void store4_bf16(F_GLOBAL u16* p, const float* v) {
  u16 bits[4];
  F_UNROLL
  for (int i = 0; i < 4; ++i) bits[i] = bf16_bits(v[i]);
  store4_u16(p, bits);
}
F_DEVICE void load8_bf16(F_GLOBAL const u16* p, float* v) {
  F_ALIGNED16 u16 bits[8];
  load8_u16(p, bits);
  F_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = F_FROM_BITS((u32)bits[i] << 16);
}
F_DEVICE void store8_bf16(F_GLOBAL u16* p, const float* v) {
  F_ALIGNED16 u16 bits[8];
  F_UNROLL
  for (int i = 0; i < 8; ++i) bits[i] = bf16_bits(v[i]);
  store8_u16(p, bits);
}
#endif
// Whether F_LOAD4 and F_STORE4, or those of `count` elements, may be used on an address.
#define F_IS_ALIGNED(p, count) (((u32)(size_t)(p) & ((count) * sizeof(element_t) - 1)) == 0)
#define F_IS_ALIGNED4(p) F_IS_ALIGNED(p, 4)

// Offset of (n, c, h, w) in a tensor of C channels and H x W pixels; of a filter's (k, c, r, s) as well.
#ifdef LAYOUT_nchw
#define F_OFFSET(n, c, h, w, C, H, W) ((((index_t)(n) * (C) + (c)) * (H) + (h)) * (W) + (w))
#else
#define F_OFFSET(n, c, h, w, C, H, W) ((((index_t)(n) * (H) + (h)) * (W) + (w)) * (C) + (c))
#endif

// The tensors of a kernel, as its parameters and as pointers at its top: those with an
// epilogue, forward's, and backward_data's.
#define F_TENSORS(in, w, out)                                                                        \
  F_INPUT(element_t, in), F_INPUT(element_t, w), F_OUTPUT(element_t, out), F_INPUT(element_t, bias), \
      F_INPUT(element_t, residual), F_INPUT(float, slopes)
#define F_OPEN_TENSORS(in, w, out)   \
  F_OPEN_INPUT(element_t, in);       \
  F_OPEN_INPUT(element_t, w);        \
  F_OPEN_OUTPUT(element_t, out);     \
  F_OPEN_INPUT(element_t, bias);     \
  F_OPEN_INPUT(element_t, residual); \
  F_OPEN_INPUT(float, slopes);
#define F_FORWARD_TENSORS F_TENSORS(x, w, y)
#define F_OPEN_FORWARD_TENSORS F_OPEN_TENSORS(x, w, y)
#define F_BACKWARD_DATA_TENSORS F_OUTPUT(element_t, x), F_INPUT(element_t, w), F_INPUT(element_t, y)
#define F_OPEN_BACKWARD_DATA_TENSORS \
  F_OPEN_OUTPUT(element_t, x);       \
  F_OPEN_INPUT(element_t, w);        \
  F_OPEN_INPUT(element_t, y);

// The row (or column) of y that is `at` steps of x from where y's first begins; -1 where there is none.
F_DEVICE int y_place(int at, int stride, int size) {
  return at < 0 || at % stride != 0 || at / stride >= size ? -1 : at / stride;
}

// For each i below `count`, a constant: a block's threads share them out, all with as many turns (see
// F_BARRIER).
#define F_TURNS(count) (((count) + THREADS - 1) / THREADS)
#define F_EACH(i, count)                                                                      \
  for (int i##_turn = 0, i = F_THREAD(); i##_turn < F_TURNS(count); ++i##_turn, i += THREADS) \
    if ((count) % THREADS == 0 || i < (count))

#define F_C(v) v
#define F_LT(p, q, yes, no) ((p) < (q) ? (yes) : (no))
#define F_MIN(p, q) ((p) < (q) ? (p) : (q))
#define F_MAX(p, q) ((p) > (q) ? (p) : (q))
#define FALTUNG_ACTIVATION(name, value) \
  F_DEVICE float activate_##name(float x, float a, float b) { return value; }
#include "kernels/common/epilogue_ops.inc"
// The exact functions take several times as long as storing a result of 16 bits.
#if defined(F_QUICK_LOGISTIC) && !defined(DTYPE_f32)
#define activate_sigmoid(x, numbers) F_QUICK_LOGISTIC(x)
#define activate_silu(x, numbers) ((x)*F_QUICK_LOGISTIC(x))
#endif

// The epilogue without the pool, of the accumulator of output channel k; offset is the element's in the
// convolution's output.
#define F_EPILOGUE(sum, k, offset) activate_bias_residual(sum, k, offset, bias, residual, slopes)
F_DEVICE float activate_bias_residual(float sum, int k, index_t offset, F_GLOBAL const element_t* bias,
                                      F_GLOBAL const element_t* residual, F_GLOBAL const float* slopes) {
#if HAS_BIAS && defined(F32_BIAS)
  sum += ((F_GLOBAL const float*)bias)[k];
#elif HAS_BIAS
  sum += F_LOAD(bias, k);
#endif
#if HAS_RESIDUAL && !RESIDUAL_AFTER
  sum += F_LOAD(residual, offset);
#endif
  sum = ACTIVATION(sum, NUMBERS(k));
#if HAS_RESIDUAL && RESIDUAL_AFTER
  sum += F_LOAD(residual, offset);
#endif
  return sum;
}
