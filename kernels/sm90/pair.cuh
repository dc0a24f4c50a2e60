// Two floats as a pair of 16-bit elements, the first in the low half; rounded to nearest even. kRelu: what is negative as
// zero.
#pragma once

template <bool kBf16, bool kRelu = false>
__device__ __forceinline__ unsigned pack_pair(float first, float second) {
  unsigned pair;
#define F_PACK_PAIR(types) asm("cvt.rn" types ".f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first))
  if constexpr (kBf16) {
    if constexpr (kRelu) F_PACK_PAIR(".relu.bf16x2");
    else F_PACK_PAIR(".bf16x2");
  } else {
    if constexpr (kRelu) F_PACK_PAIR(".relu.f16x2");
    else F_PACK_PAIR(".f16x2");
  }
#undef F_PACK_PAIR
  return pair;
}
