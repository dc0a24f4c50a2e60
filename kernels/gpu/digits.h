// Digits of an element's place in a tensor, by divisors that the host has prepared: a division takes an H100
// twenty instructions and more, as many as all else that a copy does.
#pragma once
#include "kernels/gpu/index.h"

// As append_divisor (src/network/device_steps.cpp) makes them: of an index below 2^31 the quotient is the
// upper half of twice its product with the multiplier, shifted.
typedef struct {
  index_t size, multiplier, shift;
} Divisor;

F_DEVICE index_t quotient(index_t index, Divisor d) {
#if WIDE
  return index / d.size;
#elif defined(__OPENCL_VERSION__)
  return (index_t)(mul_hi((u32)index << 1, (u32)d.multiplier) >> d.shift);
#else
  return (index_t)((u32)((unsigned long long)((u32)index << 1) * (u32)d.multiplier >> 32) >> d.shift);
#endif
}

// Adds to two tensors' places what has this index in the row-major order of z.sizes: RANK digits, a stride
// each.
#define F_ADD_DIGITS(index, z, here, there)                                                                \
  {                                                                                                        \
    index_t rest = index;                                                                                  \
    F_UNROLL                                                                                               \
    for (int d = RANK - 1; d >= 0; --d) {                                                                  \
      const index_t next = d == 0 ? 0 : quotient(rest, z.sizes[d]), digit = rest - next * z.sizes[d].size; \
      rest = next;                                                                                         \
      here += digit * z.strides[0][d];                                                                     \
      there += digit * z.strides[1][d];                                                                    \
    }                                                                                                      \
  }
