// AMD's matrix units: what a wave's lanes hold of their operands and results, by AMD's maps. In OpenCL C, for
// compilers that know the builtins.
//
// The host defines MATRIX_mfma (CDNA 2 and later), MATRIX_wmma (RDNA 3) or MATRIX_wmma12 (RDNA 4). After
// convolution.h, whose DTYPE decides the product.
//
// A fragment is 16 rows by FRAGMENT_CHUNKS chunks of 16 bytes along the sum. Which steps of the sum an
// instruction takes together is the same for both operands, and otherwise free: so each lane takes whole
// chunks.
#pragma once

#ifdef DTYPE_f16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#define CHUNK ((int)(16 / sizeof(element_t)))  // elements

#ifdef MATRIX_mfma
#define WAVE 64
#define FRAGMENT_CHUNKS 4
#define LANE_CHUNKS 1
#define LANE_CHUNK(lane, i) ((lane) / 16)
#define RESULTS 4  // of a lane
#define RESULT_ROW(lane, i) ((lane) / 16 * 4 + (i))
typedef float4 results4_t;
#define F_RESULTS results4_t
#ifdef DTYPE_f16
#define F_MULTIPLY_HALF(a, b, d) __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(a), as_half4(b), d, 0, 0, 0)
#endif
#ifdef DTYPE_bf16
#define F_MULTIPLY_HALF(a, b, d) \
  __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(as_short4(a), as_short4(b), d, 0, 0, 0)
#endif
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
#ifdef DTYPE_f32
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(as_float(a->x), as_float(b->x), d, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(as_float(a->y), as_float(b->y), d, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(as_float(a->z), as_float(b->z), d, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_16x16x4f32(as_float(a->w), as_float(b->w), d, 0, 0, 0);
#else
  d = F_MULTIPLY_HALF(a->xy, b->xy, d);
  return F_MULTIPLY_HALF(a->zw, b->zw, d);
#endif
}
#endif

#ifdef MATRIX_wmma
#define WAVE 32
#define FRAGMENT_CHUNKS 2
#define LANE_CHUNKS 2
#define LANE_CHUNK(lane, i) (i)
#define RESULTS 8
#define RESULT_ROW(lane, i) (2 * (i) + (lane) / 16)
#define F_RESULTS float8
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
  const uint8 left = (uint8)(a[0], a[1]), right = (uint8)(b[0], b[1]);
#ifdef DTYPE_f16
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(left), as_half16(right), d);
#else
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(left), as_short16(right), d);
#endif
}
#endif

#ifdef MATRIX_wmma12
#define WAVE 32
#define FRAGMENT_CHUNKS 2
#define LANE_CHUNKS 1
#define LANE_CHUNK(lane, i) ((lane) / 16)
#define RESULTS 8
#define RESULT_ROW(lane, i) ((lane) / 16 * 8 + (i))
#define F_RESULTS float8
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
#ifdef DTYPE_f16
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(*a), as_half8(*b), d);
#else
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(as_short8(*a), as_short8(*b), d);
#endif
}
#endif

// A lane's value that is computed once and kept in a register: compilers would compute it again in a loop.
#define F_KEEP(value) __asm__("" : "+v"(value))

// Tensors as AMD's buffer instructions see them: what is read beyond their end is 0, without a branch.
#define F_NOWHERE 0x80000000u  // beyond every buffer's end, whatever is added to it
typedef __amdgpu_buffer_rsrc_t buffer_t;
#if defined(MATRIX_mfma)
#define F_BUFFER_FORMAT 0x00020000
#else
#define F_BUFFER_FORMAT 0x31004000
#endif
F_DEVICE buffer_t buffer_of(F_GLOBAL const void* begin, u32 bytes) {
  return __builtin_amdgcn_make_buffer_rsrc((F_GLOBAL void*)begin, 0, (int)bytes, F_BUFFER_FORMAT);
}
F_DEVICE uint4 load_chunk(buffer_t from, u32 at) {
  return __builtin_amdgcn_raw_buffer_load_b128(from, (int)at, 0, 0);
}
// tile: the same in all lanes, and not held to the buffer's end: the address is.
F_DEVICE uint4 load_chunk_of(buffer_t from, u32 at, u32 tile) {
  return __builtin_amdgcn_raw_buffer_load_b128(from, (int)at, (int)tile, 0);
}
F_DEVICE element_t load_element(buffer_t from, u32 at) {
#ifdef DTYPE_f32
  return as_float(__builtin_amdgcn_raw_buffer_load_b32(from, (int)at, 0, 0));
#else
  return __builtin_amdgcn_raw_buffer_load_b16(from, (int)at, 0, 0);
#endif
}
