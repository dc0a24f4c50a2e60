// The words of the portable kernels, in HIP as AMD's run-time compiler and clang by itself take it: no header
// of ROCm's is needed. kernels/gpu/opencl.h says them in OpenCL C, kernels/gpu/cuda.h in CUDA.
#pragma once

typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef __SIZE_TYPE__ size_t;
// The compiler's own vectors. hipRTC has types of these names, clang by itself has none.
typedef float hip_float2 __attribute__((ext_vector_type(2)));
typedef float hip_float4 __attribute__((ext_vector_type(4)));
typedef u32 hip_uint2 __attribute__((ext_vector_type(2)));
typedef u32 hip_uint4 __attribute__((ext_vector_type(4)));
typedef u16 hip_ushort4 __attribute__((ext_vector_type(4)));
typedef u16 hip_ushort8 __attribute__((ext_vector_type(8)));
#define float2 hip_float2
#define float4 hip_float4
#define uint2 hip_uint2
#define uint4 hip_uint4
#define ushort4 hip_ushort4
#define make_float2(a, b) (hip_float2{a, b})
#define make_float4(a, b, c, d) (hip_float4{a, b, c, d})
#define make_uint2(a, b) (hip_uint2{a, b})
#define make_uint4(a, b, c, d) (hip_uint4{a, b, c, d})
#define make_ushort4(a, b, c, d) (hip_ushort4{a, b, c, d})

#ifndef __align__
#define __align__(bytes) __attribute__((aligned(bytes)))
#endif
#define F_GLOBAL
#define F_LOCAL
#define F_DEVICE [[maybe_unused]] static inline __attribute__((device, always_inline))
// A kernel with so many threads a block.
#define F_KERNEL(threads) \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#define F_DENSE_KERNEL(threads, blocks) F_KERNEL(threads)
#define F_INPUT(type, name) const type* __restrict__ name##_buffer
#define F_OUTPUT(type, name) type* __restrict__ name##_buffer
#define F_OPEN_INPUT(type, name) const type* const name = name##_buffer
#define F_OPEN_OUTPUT(type, name) type* const name = name##_buffer
// At the top of a kernel only.
#define F_LOCAL_ARRAY(type, name, count) static __attribute__((shared, aligned(64))) type name[count]
// At the top of a file.
#define F_TABLE(type, name, count) static __attribute__((device)) constexpr type name[count]
// Of local memory alone, as OpenCL's: loads from tensors may still be under way.
#if __clang_major__ >= 19
#define F_FENCE(order) __builtin_amdgcn_fence(order, "workgroup", "local")
#else
#define F_FENCE(order) __builtin_amdgcn_fence(order, "workgroup")
#endif
#define F_BARRIER()               \
  do {                            \
    F_FENCE(__ATOMIC_RELEASE);    \
    __builtin_amdgcn_s_barrier(); \
    F_FENCE(__ATOMIC_ACQUIRE);    \
  } while (0)
// A kernel begins when the one before it in the stream has ended.
#define F_WAIT_FOR_PREVIOUS()
#define F_LET_NEXT_BEGIN()
#define F_FOLLOW_PREVIOUS()
#define F_BLOCK(axis) F_BLOCK_##axis
#define F_BLOCK_0 ((int)__builtin_amdgcn_workgroup_id_x())
#define F_BLOCK_1 ((int)__builtin_amdgcn_workgroup_id_y())
#define F_BLOCK_2 ((int)__builtin_amdgcn_workgroup_id_z())
// Of ROCm's device libraries, which every compiler for these chips links.
extern "C" {
__attribute__((device, const)) size_t __ockl_get_num_groups(u32);
__attribute__((device, const)) float __ocml_exp_f32(float);
__attribute__((device, pure)) float __ocml_erf_f32(float);
__attribute__((device, const)) float __ocml_tanh_f32(float);
__attribute__((device, pure)) float __ocml_log_f32(float);
__attribute__((device)) float __ocml_sin_f32(float);
__attribute__((device)) float __ocml_cos_f32(float);
__attribute__((device, pure)) float __ocml_pow_f32(float, float);
}
#define F_BLOCKS(axis) ((int)__ockl_get_num_groups(axis))
#define F_THREAD() ((int)__builtin_amdgcn_workitem_id_x())
#define F_ALIGNED16 __attribute__((aligned(16)))
#define F_UNROLL _Pragma("unroll")
#define F_UNROLL_TWICE _Pragma("unroll 2")
#define F_NO_UNROLL _Pragma("nounroll")
#define F_NO_UNROLL_DO F_NO_UNROLL

#define F_BITS(x) __builtin_bit_cast(u32, (float)(x))
#define F_FROM_BITS(x) __builtin_bit_cast(float, (u32)(x))
#define F_INFINITY __builtin_inff()
#define F_ISNAN(x) ((x) != (x))
#define F_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define F_MAD(a, b, c) __builtin_fmaf(a, b, c)
#define F_EXP(x) __ocml_exp_f32(x)
#define F_ERF(x) __ocml_erf_f32(x)
#define F_TANH(x) __ocml_tanh_f32(x)
// The C library's names, of which kernels use these.
#define logf(x) __ocml_log_f32(x)
#define sinf(x) __ocml_sin_f32(x)
#define cosf(x) __ocml_cos_f32(x)
#define powf(x, y) __ocml_pow_f32(x, y)
#define sqrtf(x) __builtin_sqrtf(x)
#define fabsf(x) __builtin_fabsf(x)
#define floorf(x) __builtin_floorf(x)
#define ceilf(x) __builtin_ceilf(x)
#define rintf(x) __builtin_rintf(x)
#define min(a, b) hip_min(a, b)
#define max(a, b) hip_max(a, b)
F_DEVICE int hip_min(int a, int b) { return a < b ? a : b; }
F_DEVICE int hip_max(int a, int b) { return a > b ? a : b; }

F_DEVICE float load_f16(const u16* p, i64 i) { return (float)__builtin_bit_cast(_Float16, p[i]); }
F_DEVICE void store_f16(u16* p, i64 i, float v) { p[i] = __builtin_bit_cast(u16, (_Float16)v); }

// The lower and the upper half of a word as f16, and two such halves.
F_DEVICE float low_f16(u32 word) { return (float)__builtin_bit_cast(_Float16, (u16)word); }
F_DEVICE float high_f16(u32 word) { return low_f16(word >> 16); }
F_DEVICE u32 pair_f16(float low, float high) {
  const u32 lower = __builtin_bit_cast(u16, (_Float16)low), upper = __builtin_bit_cast(u16, (_Float16)high);
  return lower | upper << 16;
}
F_DEVICE void load8_u16(const u16* p, u16* v) {
  const hip_ushort8 t = *(const hip_ushort8*)p;
  F_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = t[i];
}
F_DEVICE void store8_u16(u16* p, const u16* v) {
  *(hip_ushort8*)p = hip_ushort8{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
}
#include "kernels/gpu/neighbours.h"
