// The words of the portable kernels, in OpenCL C 1.2. kernels/gpu/cuda.h says them in CUDA.
//
// An argument in device memory is a buffer and the bytes to skip in it: F_INPUT and F_OUTPUT declare both,
// F_OPEN makes the pointer of them. At the top of a kernel only: F_LOCAL_ARRAY.
#pragma once

typedef long i64;
typedef uint u32;
typedef ushort u16;

#define F_GLOBAL __global
#define F_LOCAL __local
#define F_DEVICE static inline
// A kernel with so many threads a block.
#define F_KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define F_DENSE_KERNEL(threads, blocks) F_KERNEL(threads)
#define F_INPUT(type, name) __global const type *restrict name##_buffer, ulong name##_skip
#define F_OUTPUT(type, name) __global type *name##_buffer, ulong name##_skip
// clspv makes arrays of what an address is first taken for, and reads and writes all else in its pieces:
// bytes where the address was counted in bytes, single floats where an array of them is read as vectors. For
// it the skipped are counted in elements, and floats in local memory lie in vectors; in f32 products alone
// (BK) and depthwise tiles (TP) but the gradient of the weights, for of some other kernels it then ends in an
// error, or does not end.
#if defined(F_CLSPV) && defined(DTYPE_f32) && (defined(BK) || (defined(TP) && !defined(DIRECTION_bwd_w)))
#define F_OPEN_INPUT(type, name) \
  __global const type* const name = name##_buffer + (uint)name##_skip / (uint)sizeof(type)
#define F_OPEN_OUTPUT(type, name) \
  __global type* const name = name##_buffer + (uint)name##_skip / (uint)sizeof(type)
#define F_LOCAL_ARRAY(type, name, count) F_LOCAL_ARRAY_##type(name, count)
#define F_LOCAL_ARRAY_float(name, count)                                         \
  __local float4 name##_vectors[((count) + 3) / 4] __attribute__((aligned(64))); \
  __local float* const name = (__local float*)name##_vectors
#define F_LOCAL_ARRAY_index_t(name, count) __local index_t name[count]
#define F_LOCAL_ARRAY_value_t(name, count) __local value_t name[count]
#define F_LOCAL_ARRAY_int(name, count) __local int name[count]
#define F_LOCAL_ARRAY_u32(name, count) __local u32 name[count]
#define F_LOCAL_ARRAY_uint4(name, count) __local uint4 name[count]
#define F_LOCAL_ARRAY_Pixel(name, count) __local Pixel name[count]
#define F_LOCAL_ARRAY_F_VECTOR(name, count) __local F_VECTOR name[count]
#else
#define F_OPEN_INPUT(type, name) \
  __global const type* const name = (__global const type*)((__global const char*)name##_buffer + name##_skip)
#define F_OPEN_OUTPUT(type, name) \
  __global type* const name = (__global type*)((__global char*)name##_buffer + name##_skip)
#define F_LOCAL_ARRAY(type, name, count) __local type name[count] __attribute__((aligned(64)))
#endif
// At the top of a file.
#define F_TABLE(type, name, count) __constant type name[count]
// A loop around a barrier is `do ... while (i != end)`, and `end` is plain arithmetic on arguments and block
// numbers; no condition is around it, or around a loop within such a loop, and there all threads have as many
// turns of a loop. PoCL 5 runs the threads of a block one after the other between barriers, and puts barriers
// of its own into loops. Around one that it takes for conditional it makes wrong code of what the threads
// keep: where it does not see that all branch alike. A min() hides that from it; so does the max() that a
// compiler makes of `<` to count a loop's turns, and a test before the first turn.
#define F_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
// Of a kernel that the host lets overlap the one before it: from here on that one's results are there. And in
// that one: the next one may begin.
#define F_WAIT_FOR_PREVIOUS()
#define F_LET_NEXT_BEGIN()
#define F_FOLLOW_PREVIOUS()
#define F_BLOCK(axis) ((int)get_group_id(axis))
#define F_BLOCKS(axis) ((int)get_num_groups(axis))
#define F_THREAD() ((int)get_local_id(0))
#define F_ALIGNED16 __attribute__((aligned(16)))
#define F_UNROLL _Pragma("unroll")
#define F_UNROLL_TWICE _Pragma("unroll 2")
#define F_NO_UNROLL _Pragma("nounroll")
// Before `do`: rusticl (Mesa 22.3) ends the process over a pragma there.
#define F_NO_UNROLL_DO

#define F_BITS(x) as_uint(x)
#define F_FROM_BITS(x) as_float(x)
#define F_INFINITY INFINITY
#define F_ISNAN(x) isnan(x)
// The second fused where that is faster. clspv computes an fma() by dozens of operations and never fuses a
// mad(); a product and a sum it leaves to the driver as one operation.
#ifdef F_CLSPV
#define F_FMA(a, b, c) ((a) * (b) + (c))
#define F_MAD(a, b, c) ((a) * (b) + (c))
#else
#define F_FMA(a, b, c) fma(a, b, c)
#define F_MAD(a, b, c) mad(a, b, c)
#endif
#define F_EXP(x) exp(x)
#define F_ERF(x) erf(x)
// As kernels/gpu/cuda.h has it, by NVIDIA's compiler.
#ifdef __NV_CL_C_VERSION
#define F_QUICK_LOGISTIC(x) quick_logistic(x)
F_DEVICE float quick_logistic(float x) {
  float power, inverse;
  __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
}
#endif
// PoCL's own ends at 1 less an ulp, and (1 - 1) Inf is not the same as an ulp of Inf.
#define F_TANH(x) (fabs(x) > 10.0f ? copysign(1.0f, x) : tanh(x))

// f16 needs no extension while it is only loaded and stored.
F_DEVICE float load_f16(__global const u16* p, i64 i) { return vload_half(i, (__global const half*)p); }
F_DEVICE void store_f16(__global u16* p, i64 i, float v) { vstore_half_rte(v, i, (__global half*)p); }

// Four or eight neighbours at once, at an address that is a multiple of their size.
F_DEVICE void load4_f32(__global const float* p, float* v) { vstore4(*(__global const float4*)p, 0, v); }
F_DEVICE void store4_f32(__global float* p, const float* v) { *(__global float4*)p = vload4(0, v); }
F_DEVICE void store4_local(__local float* p, const float* v) { *(__local float4*)p = vload4(0, v); }
F_DEVICE void load4_u16(__global const u16* p, u16* v) { vstore4(*(__global const ushort4*)p, 0, v); }
F_DEVICE void store4_u16(__global u16* p, const u16* v) { *(__global ushort4*)p = vload4(0, v); }
#ifdef __NV_CL_C_VERSION
// By whole words: a library's own may go half by half.
F_DEVICE float low_f16(u32 word) {
  float v;
  __asm__("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(v) : "r"(word));
  return v;
}
F_DEVICE float high_f16(u32 word) {
  float v;
  __asm__("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(v) : "r"(word));
  return v;
}
F_DEVICE u32 pair_f16(float low, float high) {
  u32 word;
  __asm__("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
          : "=r"(word)
          : "f"(low), "f"(high));
  return word;
}
F_DEVICE void load4_f16(__global const u16* p, float* v) {
  const uint2 w = *(__global const uint2*)p;
  vstore4((float4)(low_f16(w.x), high_f16(w.x), low_f16(w.y), high_f16(w.y)), 0, v);
}
F_DEVICE void store4_f16(__global u16* p, const float* v) {
  *(__global uint2*)p = (uint2)(pair_f16(v[0], v[1]), pair_f16(v[2], v[3]));
}
F_DEVICE void load8_f16(__global const u16* p, float* v) {
  const uint4 w = *(__global const uint4*)p;
  vstore8((float8)(low_f16(w.x), high_f16(w.x), low_f16(w.y), high_f16(w.y), low_f16(w.z), high_f16(w.z),
                   low_f16(w.w), high_f16(w.w)),
          0, v);
}
F_DEVICE void store8_f16(__global u16* p, const float* v) {
  *(__global uint4*)p =
      (uint4)(pair_f16(v[0], v[1]), pair_f16(v[2], v[3]), pair_f16(v[4], v[5]), pair_f16(v[6], v[7]));
}
#else
F_DEVICE void load4_f16(__global const u16* p, float* v) {
  vstore4(vloada_half4(0, (__global const half*)p), 0, v);
}
F_DEVICE void store4_f16(__global u16* p, const float* v) {
  vstorea_half4_rte(vload4(0, v), 0, (__global half*)p);
}
#endif
F_DEVICE void load2_u32(__global const u32* p, u32* v) { vstore2(*(__global const uint2*)p, 0, v); }
F_DEVICE void load4_u32(__global const u32* p, u32* v) { vstore4(*(__global const uint4*)p, 0, v); }
F_DEVICE void store2_u32(__global u32* p, const u32* v) { *(__global uint2*)p = vload2(0, v); }
F_DEVICE void store4_u32(__global u32* p, const u32* v) { *(__global uint4*)p = vload4(0, v); }
#ifndef __NV_CL_C_VERSION
// The lower and the upper half of a word as f16, and two such halves.
F_DEVICE float low_f16(u32 word) {
  const u16 bits = (u16)word;
  return vload_half(0, (const half*)&bits);
}
F_DEVICE float high_f16(u32 word) { return low_f16(word >> 16); }
F_DEVICE u32 pair_f16(float low, float high) {
  u16 bits[2];
  vstore_half_rte(low, 0, (half*)bits);
  vstore_half_rte(high, 1, (half*)bits);
  return bits[0] | (u32)bits[1] << 16;
}
#endif
F_DEVICE void load8_u16(__global const u16* p, u16* v) { vstore8(*(__global const ushort8*)p, 0, v); }
F_DEVICE void store8_u16(__global u16* p, const u16* v) { *(__global ushort8*)p = vload8(0, v); }
#ifndef __NV_CL_C_VERSION
F_DEVICE void load8_f16(__global const u16* p, float* v) {
  vstore8(vloada_half8(0, (__global const half*)p), 0, v);
}
F_DEVICE void store8_f16(__global u16* p, const float* v) {
  vstorea_half8_rte(vload8(0, v), 0, (__global half*)p);
}
#endif
