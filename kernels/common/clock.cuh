// The clock that a block runs at, by NVIDIA's counters of cycles and of nanoseconds.
#pragma once

struct Counters {
  unsigned long long cycles, ns;
};

// Read after `number` is known and before what is computed of it: arithmetic would be moved past them otherwise.
static __device__ __forceinline__ Counters read_counters(float& number) {
  Counters now;
  asm volatile("mov.u64 %0, %%clock64;\n mov.u64 %1, %%globaltimer;" : "=l"(now.cycles), "=l"(now.ns), "+f"(number)::"memory");
  return now;
}

static __device__ __forceinline__ float megahertz(Counters begin, Counters end) {
  return 1e3f * (float)(end.cycles - begin.cycles) / (float)(end.ns - begin.ns);
}
