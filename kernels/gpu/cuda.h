// The words of the portable kernels, in CUDA as its run-time compiler takes it. kernels/gpu/opencl.h says
// them in OpenCL C.
#pragma once

typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;

#define F_GLOBAL
#define F_LOCAL
#define F_DEVICE [[maybe_unused]] static __device__ __forceinline__
// A kernel with so many threads a block, of which one at least fits on a multiprocessor.
#define F_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
// With so few registers a thread that so many blocks fit on a multiprocessor.
#define F_DENSE_KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define F_INPUT(type, name) const type* __restrict__ name##_buffer
#define F_OUTPUT(type, name) type* __restrict__ name##_buffer
#define F_OPEN_INPUT(type, name) const type* const name = name##_buffer
#define F_OPEN_OUTPUT(type, name) type* const name = name##_buffer
// At the top of a kernel only.
#define F_LOCAL_ARRAY(type, name, count) __shared__ __align__(16) type name[count]
// At the top of a file.
#define F_TABLE(type, name, count) static __device__ constexpr type name[count]
#define F_BARRIER() __syncthreads()
// Of a kernel that the host lets overlap the one before it: from here on that one's results are there. And in
// that one: the next one may begin.
#if __CUDA_ARCH__ >= 900
#define F_WAIT_FOR_PREVIOUS() asm volatile("griddepcontrol.wait;" ::: "memory")
#define F_LET_NEXT_BEGIN() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define F_WAIT_FOR_PREVIOUS()
#define F_LET_NEXT_BEGIN()
#endif
// First of all in a kernel that may overlap its neighbours, before it reads or writes anything: both at once.
#define F_FOLLOW_PREVIOUS() \
  F_LET_NEXT_BEGIN();       \
  F_WAIT_FOR_PREVIOUS()
#define F_BLOCK(axis) F_BLOCK_##axis
#define F_BLOCK_0 ((int)blockIdx.x)
#define F_BLOCK_1 ((int)blockIdx.y)
#define F_BLOCK_2 ((int)blockIdx.z)
#define F_BLOCKS(axis) F_BLOCKS_##axis
#define F_BLOCKS_0 ((int)gridDim.x)
#define F_BLOCKS_1 ((int)gridDim.y)
#define F_BLOCKS_2 ((int)gridDim.z)
#define F_THREAD() ((int)threadIdx.x)
#define F_ALIGNED16 __align__(16)
#define F_UNROLL _Pragma("unroll")
#define F_UNROLL_TWICE _Pragma("unroll 2")
#define F_NO_UNROLL _Pragma("unroll 1")
#define F_NO_UNROLL_DO F_NO_UNROLL

#define F_BITS(x) __float_as_uint(x)
#define F_FROM_BITS(x) __uint_as_float(x)
#define F_INFINITY __int_as_float(0x7f800000)
#define F_ISNAN(x) ((x) != (x))
#define F_FMA(a, b, c) fmaf(a, b, c)
#define F_MAD(a, b, c) fmaf(a, b, c)
#define F_EXP(x) expf(x)
#define F_ERF(x) erff(x)
#define F_TANH(x) tanhf(x)
// 1 / (1 + e^-x) by the chip's own exponential and reciprocal, for results of 16 bits (docs/accuracy.md). As
// instructions: the compiler's __expf and __fdividef see to the smallest numbers, which takes as long again.
#define F_QUICK_LOGISTIC(x) quick_logistic(x)
F_DEVICE float quick_logistic(float x) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
}

F_DEVICE float load_f16(const u16* p, i64 i) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(p[i]));
  return v;
}
F_DEVICE void store_f16(u16* p, i64 i, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p[i]) : "f"(v)); }

// The lower and the upper half of a word as f16, and two such halves.
F_DEVICE float low_f16(u32 word) {
  float v;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(v) : "r"(word));
  return v;
}
F_DEVICE float high_f16(u32 word) {
  float v;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(v) : "r"(word));
  return v;
}
F_DEVICE u32 pair_f16(float low, float high) {
  u32 word;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
  asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
      : "=r"(word)
      : "f"(low), "f"(high));
#endif
  return word;
}
#if __CUDA_ARCH__ >= 800
#define F_PAIR_BF16(low, high) pair_bf16(low, high)
F_DEVICE u32 pair_bf16(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif
F_DEVICE void load8_u16(const u16* p, u16* v) { *(uint4*)v = *(const uint4*)p; }
F_DEVICE void store8_u16(u16* p, const u16* v) { *(uint4*)p = *(const uint4*)v; }
#include "kernels/gpu/neighbours.h"
