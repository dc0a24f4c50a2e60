// kernels/gpu/attention_units.h in C++.
#pragma once
#include "kernels/gpu/mma_patch_units.h"

#define F_INFINITY INFINITY
#define F_FMA(a, b, c) fmaf(a, b, c)
#undef F_BLOCK
#define F_BLOCK(axis) (axis == 0 ? lanes::block % QUERY_BLOCKS : lanes::block / QUERY_BLOCKS)

F_DEVICE float power_of_two(float x) { return exp2f(x); }
F_DEVICE void copy_chunk(u32 to, const void* from, bool wanted) { copy_chunk_if(true, to, from, wanted); }
F_DEVICE void wait_for_copies() { wait_for_copies<0>(); }
F_DEVICE u32 pair_bf16(float low, float high) { return F_PAIR(low, high); }
F_DEVICE void load4_f32(const float* p, float* v) { std::memcpy(v, p, 16); }
F_DEVICE void store4_f32(float* p, const float* v) { std::memcpy(p, v, 16); }

// Of the lane whose number differs by this bit.
F_DEVICE float of_neighbour(float v, int bit) {
  const int lane = lanes::thread % lanes::kWarp;
  lanes::mine()[lane][0] = F_BITS(v);
  lanes::together();
  const float other = F_FROM_BITS(lanes::mine()[lane ^ bit][0]);
  lanes::together();
  return other;
}
F_DEVICE float most_of_four(float v) {
  v = fmaxf(v, of_neighbour(v, 1));
  return fmaxf(v, of_neighbour(v, 2));
}
F_DEVICE float sum_of_four(float v) {
  v += of_neighbour(v, 1);
  return v + of_neighbour(v, 2);
}
