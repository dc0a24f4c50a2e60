// NVIDIA's matrix units (mma.sync) for implicit_gemm_matrix.cl in OpenCL C: what a warp's lanes hold of their
// operands and results, and what brings them.
//
// The host defines MATRIX_mma_ptx. After convolution.h, whose DTYPE decides the product.
//
// A fragment is 16 rows by two chunks of 16 bytes along the sum. Which of a wave's channels is a fragment's
// row is free: so that a lane's results of two tiles are eight neighbouring channels, of two pixels, and
// those of four lanes 32.
#pragma once
#include "kernels/gpu/nvidia_matrix_units.h"

#define CHUNK ((int)(16 / sizeof(element_t)))  // elements
#define WAVE 32
#define FRAGMENT_CHUNKS 2
// Of four matrices of 8 rows and a chunk, whose row the lane reads: both chunks of one half of the channels,
// then of the other; both halves of the pixels' first chunk, then of the second.
#define LEFT_READS 1
#define LEFT_CHUNK(lane, i) ((lane) / 8 % 2)
#define LEFT_PLACE(tile, lane, i) \
  ((tile) / 2 * 32 + (lane) % 8 / 2 * 8 + (tile) % 2 * 4 + (lane) / 16 * 2 + (lane) % 2)
#define RIGHT_READS 1
#define RIGHT_CHUNK(lane, i) ((lane) / 16)
#define RIGHT_COLUMN(lane, i) ((lane) % 16)
#define RESULTS 8
#define RESULT_PLACE(tile, lane, i) ((tile) / 2 * 32 + (lane) % 4 * 8 + (tile) % 2 * 4 + (i) / 2)
#define RESULT_COLUMNS 2
#define RESULT_COLUMN(lane, i) ((lane) / 4 + 8 * (i))
// Each matrix's rows lie in all banks.
#define TURNED_CHANNEL(chunk, channel) ((channel) ^ ((channel) / 8 % 4 * 2))
#define F_RESULTS float8

#ifdef DTYPE_f32
F_DEVICE uint4 operand(uint4 v) { return (uint4)(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)); }
#else
#define operand(v) (v)
#endif
// Results i and i + 1 are of the same channel and of two pixels.
F_DEVICE F_RESULTS multiply(const uint4* channels, const uint4* pixels, F_RESULTS d) {
  const uint4 c = operand(*channels), p = operand(*pixels);
  return (F_RESULTS)(multiply_words(p, c.xy, d.s0213).s0213, multiply_words(p, c.zw, d.s4657).s0213);
}
#define F_READ(from) load_matrices(&(from))

#define F_KEEP(value)
#define F_OF_WAVE(value) (value)

// What is read beyond a tensor's end is 0.
#define F_NOWHERE 0x80000000u
typedef struct {
  F_GLOBAL const char* begin;
  u32 bytes;
} buffer_t;
F_DEVICE buffer_t buffer_of(F_GLOBAL const void* begin, u32 bytes) {
  buffer_t buffer;
  buffer.begin = (F_GLOBAL const char*)begin;
  buffer.bytes = bytes;
  return buffer;
}
#define F_COPIES 1
// tile: what is added for it is not held to the tensor's end.
F_DEVICE void copy_chunk(F_LOCAL uint4* to, buffer_t from, u32 at, u32 tile) {
  const int inside = at < from.bytes;
  copy_or_zero(to, from.begin + (inside ? at + tile : 0), inside);
}
F_DEVICE element_t load_element_of(buffer_t from, u32 at, u32 tile) {
  return load_or_zero(from.begin + (at + tile), at < from.bytes);
}
// The j-th from `first` on.
F_DEVICE element_t load_neighbour(buffer_t from, index_t first, int j, int wanted) {
  return load_or_zero(from.begin + (i64)first * (int)sizeof(element_t) + j * (int)sizeof(element_t), wanted);
}
F_DEVICE uint4 chunk_of(const element_t* e) {
#ifdef DTYPE_f32
  return (uint4)(F_BITS(e[0]), F_BITS(e[1]), F_BITS(e[2]), F_BITS(e[3]));
#else
  return (uint4)(e[0] | (u32)e[1] << 16, e[2] | (u32)e[3] << 16, e[4] | (u32)e[5] << 16,
                 e[6] | (u32)e[7] << 16);
#endif
}
