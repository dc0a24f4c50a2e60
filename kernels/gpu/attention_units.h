// What attention asks of the lanes of a warp, of the copies that feed its matrix units and of the powers'
// unit, beside what matrix_units.h has.
#pragma once
#include "kernels/gpu/matrix_units.h"

// At the top of a file: all local memory that a launch asks for.
#define F_ALL_LOCAL_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

F_DEVICE float power_of_two(float x) {
  float v;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
F_DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
F_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
// Of the four lanes that share a row.
F_DEVICE float most_of_four(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
F_DEVICE float sum_of_four(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
