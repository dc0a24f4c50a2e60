// Two 16-bit numbers, or one of 32 bits, between 1/2 and 2 of either sign: what matrix units draw from power, and with
// it their clock, depends on the bits. The host defines DTYPE_<dtype>.
#pragma once

static __device__ __forceinline__ unsigned random_operand(unsigned n) {
  n = (n ^ 61u ^ n >> 16) * 9u;
  n = (n ^ n >> 4) * 0x27d4eb2du;
  n ^= n >> 15;
#ifdef DTYPE_f16
  return (n & 0x87ff87ffu) | 0x38003800u;
#endif
#ifdef DTYPE_bf16
  return (n & 0x80ff80ffu) | 0x3f003f00u;
#endif
#ifdef DTYPE_f32
  return (n & 0x80ffe000u) | 0x3f000000u;
#endif
}
