// AMD's matrix units: what a wave's lanes hold of their operands and results, by AMD's maps; and in their
// place, where a chip has none, vector instructions that multiply pairs of halves and add both products to a
// float. For compilers that know the builtins.
//
// The host defines MATRIX_mfma (CDNA 2 and later), MATRIX_wmma (RDNA 3), MATRIX_wmma12 (RDNA 4) or
// MATRIX_dot2 (RDNA 2 and two chips before; f16 alone). After convolution.h, whose DTYPE decides the product.
//
// A fragment is 16 rows by FRAGMENT_CHUNKS chunks of 16 bytes along the sum. Which steps of the sum an
// instruction takes together is the same for both operands, and otherwise free: so each lane takes whole
// chunks.
#pragma once

// Clang's vectors, which it has in both languages.
#ifdef __OPENCL_VERSION__
#define F_AS(type, value) __builtin_astype(value, type)
#ifdef DTYPE_f16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half half_t;
#endif
#else
#define F_AS(type, value) __builtin_bit_cast(type, value)
#ifdef DTYPE_f16
typedef _Float16 half_t;
#endif
#endif
#ifdef DTYPE_bf16
typedef short half_t;  // its bits
#endif
#ifndef DTYPE_f32
typedef half_t halves4_t __attribute__((ext_vector_type(4)));
typedef half_t halves8_t __attribute__((ext_vector_type(8)));
typedef half_t halves16_t __attribute__((ext_vector_type(16)));
#endif
typedef u32 words2_t __attribute__((ext_vector_type(2)));
typedef float results4_t __attribute__((ext_vector_type(4)));
typedef float results8_t __attribute__((ext_vector_type(8)));
#define CHUNK ((int)(16 / sizeof(element_t)))  // elements

#ifdef MATRIX_mfma
#define WAVE 64
#define FRAGMENT_CHUNKS 4
#define LANE_CHUNKS 1
#define LANE_CHUNK(lane, i) ((lane) / 16)
#define RESULTS 4  // of a lane
#define RESULT_ROW(lane, i) ((lane) / 16 * 4 + (i))
#define F_RESULTS results4_t
#ifdef DTYPE_f16
#define F_MULTIPLY_HALF __builtin_amdgcn_mfma_f32_16x16x16f16
#endif
#ifdef DTYPE_bf16
#define F_MULTIPLY_HALF __builtin_amdgcn_mfma_f32_16x16x16bf16_1k
#endif
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
#ifdef DTYPE_f32
  const results4_t left = F_AS(results4_t, *a), right = F_AS(results4_t, *b);
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(left.x, right.x, d, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(left.y, right.y, d, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(left.z, right.z, d, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_16x16x4f32(left.w, right.w, d, 0, 0, 0);
#else
  const words2_t left[2] = {a->xy, a->zw}, right[2] = {b->xy, b->zw};
  d = F_MULTIPLY_HALF(F_AS(halves4_t, left[0]), F_AS(halves4_t, right[0]), d, 0, 0, 0);
  return F_MULTIPLY_HALF(F_AS(halves4_t, left[1]), F_AS(halves4_t, right[1]), d, 0, 0, 0);
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
#define F_JOIN_HALVES(v) \
  __builtin_shufflevector(v[0], v[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define F_RESULTS results8_t
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
  const halves8_t left[2] = {F_AS(halves8_t, a[0]), F_AS(halves8_t, a[1])},
                  right[2] = {F_AS(halves8_t, b[0]), F_AS(halves8_t, b[1])};
#ifdef DTYPE_f16
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(F_JOIN_HALVES(left), F_JOIN_HALVES(right), d);
#else
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(F_JOIN_HALVES(left), F_JOIN_HALVES(right), d);
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
#define F_RESULTS results8_t
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
#ifdef DTYPE_f16
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(F_AS(halves8_t, *a), F_AS(halves8_t, *b), d);
#else
  return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(F_AS(halves8_t, *a), F_AS(halves8_t, *b), d);
#endif
}
#endif

// A wave's lanes are 4 by 8, and each computes 4 rows by 2 columns of a fragment, a chunk of the sum at a
// time.
#ifdef MATRIX_dot2
#define WAVE 32
#define FRAGMENT_CHUNKS 1
#define LANE_CHUNK(lane, i) 0
#define LEFT_READS 4
#define LEFT_ROW(lane, i) ((lane) / 8 + 4 * (i))
#define RIGHT_READS 2
#define RIGHT_COLUMN(lane, i) ((lane) % 8 + 8 * (i))
#define RESULTS 8
#define RESULT_ROW(lane, i) LEFT_ROW(lane, (i) / 2)
#define RESULT_COLUMNS 2
#define F_RESULTS results8_t
typedef half_t halves2_t __attribute__((ext_vector_type(2)));
F_DEVICE F_RESULTS multiply(const uint4* a, const uint4* b, F_RESULTS d) {
#define F_ADD_PAIRS(word)                                                                                    \
  F_UNROLL                                                                                                   \
  for (int i = 0; i < 8; ++i) {                                                                              \
    d[i] =                                                                                                   \
        __builtin_amdgcn_fdot2(F_AS(halves2_t, a[i / 2].word), F_AS(halves2_t, b[i % 2].word), d[i], false); \
  }
  F_ADD_PAIRS(x) F_ADD_PAIRS(y) F_ADD_PAIRS(z) F_ADD_PAIRS(w) return d;
}
#else
// Of either operand a lane reads a row's, or column's, chunks; its results are of one column.
#define LEFT_READS LANE_CHUNKS
#define LEFT_ROW(lane, i) ((lane) % 16)
#define RIGHT_READS LANE_CHUNKS
#define RIGHT_COLUMN(lane, i) ((lane) % 16)
#define RESULT_COLUMNS 1
#endif

#define LEFT_PLACE(tile, lane, i) ((tile)*16 + LEFT_ROW(lane, i))
#define RESULT_PLACE(tile, lane, i) ((tile)*16 + RESULT_ROW(lane, i))
#define LEFT_CHUNK(lane, i) LANE_CHUNK(lane, i)
#define RIGHT_CHUNK(lane, i) LANE_CHUNK(lane, i)
#define RESULT_COLUMN(lane, i) RIGHT_COLUMN(lane, i)
#define F_READ(from) (from)
#define TURNED_CHANNEL(chunk, channel) (channel)
#define F_COPIES 0

// A lane's value that is computed once and kept in a register: compilers would compute it again in a loop.
#define F_KEEP(value) __asm__("" : "+v"(value))

// A value that all lanes of a wave have, as the compiler cannot know: in a scalar register.
#define F_OF_WAVE(value) __builtin_amdgcn_readfirstlane(value)

// Tensors as AMD's buffer instructions see them: what is read beyond their end is 0, without a branch.
#define F_NOWHERE 0x80000000u  // beyond every buffer's end, whatever is added to it
typedef __amdgpu_buffer_rsrc_t buffer_t;
#if defined(MATRIX_mfma)
#define F_BUFFER_FORMAT 0x00020000
#elif defined(MATRIX_dot2)
#define F_BUFFER_FORMAT 0x31014000
#else
#define F_BUFFER_FORMAT 0x31004000
#endif
F_DEVICE buffer_t buffer_of(F_GLOBAL const void* begin, u32 bytes) {
  return __builtin_amdgcn_make_buffer_rsrc((F_GLOBAL void*)begin, 0, (int)bytes, F_BUFFER_FORMAT);
}
F_DEVICE uint4 load_chunk(buffer_t from, u32 at) {
  return __builtin_amdgcn_raw_buffer_load_b128(from, (int)at, 0, 0);
}
F_DEVICE words2_t load_words(buffer_t from, u32 at) {
  return __builtin_amdgcn_raw_buffer_load_b64(from, (int)at, 0, 0);
}
// tile: the same in all lanes, and not held to the buffer's end: the address is.
F_DEVICE uint4 load_chunk_of(buffer_t from, u32 at, u32 tile) {
  return __builtin_amdgcn_raw_buffer_load_b128(from, (int)at, (int)tile, 0);
}
F_DEVICE element_t load_element_of(buffer_t from, u32 at, u32 tile) {
#ifdef DTYPE_f32
  return F_FROM_BITS(__builtin_amdgcn_raw_buffer_load_b32(from, (int)at, (int)tile, 0));
#else
  return __builtin_amdgcn_raw_buffer_load_b16(from, (int)at, (int)tile, 0);
#endif
}
F_DEVICE element_t load_element(buffer_t from, u32 at) { return load_element_of(from, at, 0); }
// The j-th from `first` on.
F_DEVICE element_t load_neighbour(buffer_t from, index_t first, int j, int wanted) {
  return load_element(from, wanted ? (u32)(first + j) * (u32)sizeof(element_t) : F_NOWHERE);
}
// A chunk of elements that were brought one by one.
F_DEVICE uint4 chunk_of(const element_t* e) {
#ifdef DTYPE_f32
  const results4_t chunk = {e[0], e[1], e[2], e[3]};
#else
  typedef element_t elements_t __attribute__((ext_vector_type(8)));
  const elements_t chunk = {e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]};
#endif
  return F_AS(uint4, chunk);
}
