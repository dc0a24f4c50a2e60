// 32-bit elements as the matrix units take them: with 10 bits of mantissa.
#pragma once

// The nearest number with 10 bits of mantissa, and what is left, rounded too, as the matrix units would cut
// it. The largest numbers, infinities and NaN are cut, as they are there: rounding could make an infinity of
// a number.
__device__ __forceinline__ unsigned round_tf32(unsigned v, unsigned& rest) {
  const unsigned half = (v & 0x7fffffffu) < 0x7f7ff000u ? 0x1000u : 0u;
  const unsigned rounded = (v + half) & 0xffffe000u;
  rest = (__float_as_uint(__uint_as_float(v) - __uint_as_float(rounded)) + 0x1000u) & 0xffffe000u;
  return rounded;
}

// In one instruction, ties away from zero; the largest numbers become infinities.
__device__ __forceinline__ unsigned nearest_tf32(unsigned v) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(v)));
  return rounded;
}
