// The tensors' elements in registers, and the activations.
#pragma once

#if F_TF32
// The nearest number with 10 bits of mantissa, and what is left, rounded too, as the matrix units would cut it. The
// largest numbers, infinities and NaN are cut, as they are there: rounding could make an infinity of a number.
__device__ __forceinline__ unsigned round_tf32(unsigned v, unsigned& rest) {
  const unsigned half = (v & 0x7fffffffu) < 0x7f7ff000u ? 0x1000u : 0u;
  const unsigned rounded = (v + half) & 0xffffe000u;
  rest = (__float_as_uint(__uint_as_float(v) - __uint_as_float(rounded)) + 0x1000u) & 0xffffe000u;
  return rounded;
}

// In one instruction, ties away from zero; the largest numbers become infinities.
__device__ __forceinline__ unsigned nearest_tf32(unsigned v) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(v)));
  return rounded;
}

__device__ __forceinline__ float load_element(const void* data, long long index) {
  return static_cast<const float*>(data)[index];
}
__device__ __forceinline__ void store_element(void* data, long long index, float value) {
  static_cast<float*>(data)[index] = value;
}
// Side by side and aligned.
template <int kCount>
__device__ __forceinline__ void store_elements(void* data, long long index, const float (&v)[kCount]) {
  float* const to = static_cast<float*>(data) + index;
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<float2*>(to) = float2{v[0], v[1]};
  } else {
    *to = v[0];
  }
}
#else

// Two floats as a pair of elements, the first in the low half; rounded to nearest even.
__device__ __forceinline__ unsigned pack(float first, float second) {
  unsigned pair;
#if F_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
  return pair;
}

__device__ __forceinline__ float to_float(unsigned short element) {
#if F_BF16
  return __uint_as_float(static_cast<unsigned>(element) << 16);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element));
  return value;
#endif
}
__device__ __forceinline__ float low(unsigned pair) { return to_float(static_cast<unsigned short>(pair)); }
__device__ __forceinline__ float high(unsigned pair) { return to_float(static_cast<unsigned short>(pair >> 16)); }

__device__ __forceinline__ float load_element(const void* data, long long index) {
  return to_float(static_cast<const unsigned short*>(data)[index]);
}
__device__ __forceinline__ void store_element(void* data, long long index, float value) {
  static_cast<unsigned short*>(data)[index] = static_cast<unsigned short>(pack(value, 0.0f));
}
// Side by side and aligned.
template <int kCount>
__device__ __forceinline__ void store_elements(void* data, long long index, const float (&v)[kCount]) {
  unsigned short* const to = static_cast<unsigned short*>(data) + index;
  if constexpr (kCount == 4) {
    *reinterpret_cast<uint2*>(to) = uint2{pack(v[0], v[1]), pack(v[2], v[3])};
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<unsigned*>(to) = pack(v[0], v[1]);
  } else {
    *to = static_cast<unsigned short>(pack(v[0], 0.0f));
  }
}

#endif

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
