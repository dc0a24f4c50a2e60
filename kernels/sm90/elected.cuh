// One thread of a warp, chosen so that the compiler knows it.
#pragma once

// One thread of this warp, whose threads are all here. What it gives the copy engine is taken from it at once; of a thread
// chosen by its number every thread of the warp is asked, in a loop at each box.
__device__ __forceinline__ bool elected() {
  unsigned is_it;
  asm volatile("{.reg .pred it; elect.sync _|it, 0xffffffff; selp.u32 %0, 1, 0, it;}" : "=r"(is_it));
  return is_it != 0;
}
