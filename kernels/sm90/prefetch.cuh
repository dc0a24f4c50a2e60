// Boxes into the cache of all multiprocessors alone, before they may be read: what is written there meanwhile is not
// missed.
#pragma once
#include "kernels/sm90/copy_engine.cuh"

__device__ __forceinline__ void prefetch_2d(const TensorMap* map, int c0, int c1) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(c0), "r"(c1)
               : "memory");
}

__device__ __forceinline__ void prefetch_4d(const TensorMap* map, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

__device__ __forceinline__ void prefetch_im2col(const TensorMap* map, int c, int w, int h, int n, unsigned short dw,
                                                unsigned short dh) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%0, {%1, %2, %3, %4}], {%5, %6};" ::"l"(map),
               "r"(c), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
               : "memory");
}

// Contiguous bytes; address and count are multiples of 16.
__device__ __forceinline__ void prefetch_bytes(const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
