// Elements of every type that a network has, as floats and back. (convolution.h has those of the one type
// that a convolution is of.)
//
// The host defines V, how many lie together in what read_ and write_ move (1, 2, 4 or 8), and WIDE as index.h
// has it.
#pragma once
#include "kernels/gpu/index.h"

#ifdef __OPENCL_VERSION__
typedef uchar boolean_t;
#else
typedef unsigned char boolean_t;
#endif
typedef float f32_t;
typedef u16 f16_t;
typedef u16 bf16_t;
typedef int i32_t;
typedef i64 i64_t;

F_DEVICE float widen_bf16(u16 bits) { return F_FROM_BITS((u32)bits << 16); }
// Round to nearest, ties to even; NaN stays NaN.
F_DEVICE u16 narrow_bf16(float v) {
  const u32 bits = F_BITS(v), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (u16)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

F_DEVICE float get_f32(F_GLOBAL const f32_t* p, index_t i) { return p[i]; }
F_DEVICE float get_f16(F_GLOBAL const f16_t* p, index_t i) { return load_f16(p, i); }
F_DEVICE float get_bf16(F_GLOBAL const bf16_t* p, index_t i) { return widen_bf16(p[i]); }
F_DEVICE float get_boolean(F_GLOBAL const boolean_t* p, index_t i) { return p[i] != 0 ? 1.0f : 0.0f; }
F_DEVICE float get_i32(F_GLOBAL const i32_t* p, index_t i) { return (float)p[i]; }
F_DEVICE float get_i64(F_GLOBAL const i64_t* p, index_t i) { return (float)p[i]; }

// The largest floats that the whole numbers hold.
F_DEVICE float into_range(float v, float least, float most) {
  return v < least ? least : v > most ? most : v;
}
F_DEVICE void put_f32(F_GLOBAL f32_t* p, index_t i, float v) { p[i] = v; }
F_DEVICE void put_f16(F_GLOBAL f16_t* p, index_t i, float v) { store_f16(p, i, v); }
F_DEVICE void put_bf16(F_GLOBAL bf16_t* p, index_t i, float v) { p[i] = narrow_bf16(v); }
F_DEVICE void put_boolean(F_GLOBAL boolean_t* p, index_t i, float v) { p[i] = (boolean_t)(v != 0.0f); }
F_DEVICE void put_i32(F_GLOBAL i32_t* p, index_t i, float v) {
  p[i] = (int)into_range(v, -2147483648.0f, 2147483520.0f);
}
F_DEVICE void put_i64(F_GLOBAL i64_t* p, index_t i, float v) {
  p[i] = (i64)into_range(v, -9.2233715e18f, 9.2233715e18f);
}

// V neighbours. Those of 16 and 32 bits lie at a multiple of their size together, or of 16 bytes.
#define EACH_BY_ITSELF(type)                                         \
  F_DEVICE void read_##type(F_GLOBAL const type##_t* p, float* v) {  \
    F_UNROLL                                                         \
    for (int i = 0; i < V; ++i) v[i] = get_##type(p, i);             \
  }                                                                  \
  F_DEVICE void write_##type(F_GLOBAL type##_t* p, const float* v) { \
    F_UNROLL                                                         \
    for (int i = 0; i < V; ++i) put_##type(p, i, v[i]);              \
  }
EACH_BY_ITSELF(boolean)
EACH_BY_ITSELF(i32)
EACH_BY_ITSELF(i64)
#if V < 4
EACH_BY_ITSELF(f32)
EACH_BY_ITSELF(f16)
EACH_BY_ITSELF(bf16)
#else
#if V == 8
#define F_MOVE_(what, type) what##8_##type
#else
#define F_MOVE_(what, type) what##4_##type
#endif
F_DEVICE void read_f32(F_GLOBAL const f32_t* p, float* v) {
  F_UNROLL
  for (int i = 0; i < V; i += 4) load4_f32(p + i, v + i);
}
F_DEVICE void write_f32(F_GLOBAL f32_t* p, const float* v) {
  F_UNROLL
  for (int i = 0; i < V; i += 4) store4_f32(p + i, v + i);
}
F_DEVICE void read_f16(F_GLOBAL const f16_t* p, float* v) { F_MOVE_(load, f16)(p, v); }
F_DEVICE void write_f16(F_GLOBAL f16_t* p, const float* v) { F_MOVE_(store, f16)(p, v); }
F_DEVICE void read_bf16(F_GLOBAL const bf16_t* p, float* v) {
  F_ALIGNED16 u16 bits[V];
  F_MOVE_(load, u16)(p, bits);
  F_UNROLL
  for (int i = 0; i < V; ++i) v[i] = widen_bf16(bits[i]);
}
F_DEVICE void write_bf16(F_GLOBAL bf16_t* p, const float* v) {
  F_ALIGNED16 u16 bits[V];
#ifdef F_PAIR_BF16
  F_UNROLL
  for (int i = 0; i < V; i += 2) {
    const u32 pair = F_PAIR_BF16(v[i], v[i + 1]);
    bits[i] = (u16)pair, bits[i + 1] = (u16)(pair >> 16);
  }
#else
  F_UNROLL
  for (int i = 0; i < V; ++i) bits[i] = narrow_bf16(v[i]);
#endif
  F_MOVE_(store, u16)(p, bits);
}
#endif
