// kernels/gpu/nvidia_matrix_units.h for OpenCL C that is compiled for the CPU: what each instruction does
// with the lanes of a warp is said in C++, in tests/lanes/implicit_gemm_matrix.cpp.
#pragma once

void lanes_multiply(const u32* pixels, const u32* channels, float* d);
void lanes_matrices(F_LOCAL const uint4* from, u32* v);
void lanes_copy(F_LOCAL uint4* to, F_GLOBAL const char* from, int wanted);
void lanes_close_copies(void);
void lanes_wait_for_copies(int open);

F_DEVICE float4 multiply_words(uint4 pixels, uint2 channels, float4 d) {
  const u32 p[4] = {pixels.x, pixels.y, pixels.z, pixels.w}, c[2] = {channels.x, channels.y};
  float sums[4] = {d.x, d.y, d.z, d.w};
  lanes_multiply(p, c, sums);
  return (float4)(sums[0], sums[1], sums[2], sums[3]);
}
#ifdef DTYPE_f32
F_DEVICE u32 to_tf32(u32 v) { return v & 0xffffe000u; }
#endif
F_DEVICE uint4 load_matrices(F_LOCAL const uint4* from) {
  u32 v[4];
  lanes_matrices(from, v);
  return (uint4)(v[0], v[1], v[2], v[3]);
}
F_DEVICE void copy_or_zero(F_LOCAL uint4* to, F_GLOBAL const char* from, int wanted) {
  lanes_copy(to, from, wanted);
}
#define CLOSE_COPIES() lanes_close_copies()
#define WAIT_FOR_COPIES(open) lanes_wait_for_copies(open)
F_DEVICE element_t load_or_zero(F_GLOBAL const char* from, int wanted) {
  return wanted ? *(F_GLOBAL const element_t*)from : (element_t)0;
}
F_DEVICE uint4 chunk_or_zero(F_GLOBAL const element_t* from, int wanted) {
  return wanted ? *(F_GLOBAL const uint4*)from : (uint4)(0);
}
#ifndef DTYPE_f32
F_DEVICE u32 pair_of(float low, float high) { return F_PAIR(low, high); }
#endif
