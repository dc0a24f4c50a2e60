// The tensors' elements in registers.
#pragma once
#include "kernels/sm90/constants.cuh"
#include "kernels/sm90/pair.cuh"
#include "kernels/sm90/tf32.cuh"

__device__ __forceinline__ unsigned pack(float first, float second) { return pack_pair<kBf16>(first, second); }

__device__ __forceinline__ float to_float(unsigned short element) {
  if constexpr (kBf16) {
    return __uint_as_float(static_cast<unsigned>(element) << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element));
    return value;
  }
}
__device__ __forceinline__ float low(unsigned pair) { return to_float(static_cast<unsigned short>(pair)); }
__device__ __forceinline__ float high(unsigned pair) {
  return to_float(static_cast<unsigned short>(pair >> 16));
}

__device__ __forceinline__ float load_element(const void* data, long long index) {
  if constexpr (kF32) {
    return static_cast<const float*>(data)[index];
  } else {
    return to_float(static_cast<const unsigned short*>(data)[index]);
  }
}
// Of an output channel, in fp32 also beside elements of 16 bits.
__device__ __forceinline__ float bias_at(const void* bias, int k) {
  return kF32Bias ? static_cast<const float*>(bias)[k] : load_element(bias, k);
}
__device__ __forceinline__ void store_element(void* data, long long index, float value) {
  if constexpr (kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<unsigned short*>(data)[index] = static_cast<unsigned short>(pack(value, 0.0f));
  }
}

// Side by side and aligned.
template <int kCount>
__device__ __forceinline__ void store_floats(float* to, const float (&v)[kCount]) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<float2*>(to) = float2{v[0], v[1]};
  } else {
    *to = v[0];
  }
}
template <int kCount>
__device__ __forceinline__ void store_halves(unsigned short* to, const float (&v)[kCount]) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<uint2*>(to) = uint2{pack(v[0], v[1]), pack(v[2], v[3])};
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<unsigned*>(to) = pack(v[0], v[1]);
  } else {
    *to = static_cast<unsigned short>(pack(v[0], 0.0f));
  }
}
template <int kCount>
__device__ __forceinline__ void store_elements(void* data, long long index, const float (&v)[kCount]) {
  if constexpr (kF32) {
    store_floats(static_cast<float*>(data) + index, v);
  } else {
    store_halves(static_cast<unsigned short*>(data) + index, v);
  }
}
