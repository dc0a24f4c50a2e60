// What PARTS neighbouring threads have of one thing, joined in all of them, in one order. The host defines
// THREADS and PARTS, powers of two.
//
// MEET(number, join, value): value becomes what join (plus, times, larger, smaller) makes of all of theirs.
// The kernel has the threads' place among their neighbours as `part`, which neighbours these are as `own`,
// and `met`, MET floats of local memory; number: of the meeting, below MEETINGS, no two alike.
#pragma once

// Of larger and smaller: a NaN on either side comes out.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
F_DEVICE float larger(float a, float b) {
  float v;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
  return v;
}
F_DEVICE float smaller(float a, float b) {
  float v;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
  return v;
}
#else
F_DEVICE float larger(float a, float b) { return F_ISNAN(b) || b > a ? b : a; }
F_DEVICE float smaller(float a, float b) { return F_ISNAN(b) || b < a ? b : a; }
#endif
F_DEVICE float plus(float a, float b) { return a + b; }
F_DEVICE float times(float a, float b) { return a * b; }

#ifndef PARTS
#error "PARTS is to be defined before this file"
#endif
#if defined(__CUDA_ARCH__) || defined(F_LANES)
#define MEETINGS 2
#define LANES_MET (PARTS < 32 ? PARTS : 32)
#define MET (MEETINGS * THREADS / 32)
#define MEET_LANES(join, value)                          \
  F_UNROLL                                               \
  for (int lanes = LANES_MET / 2; lanes > 0; lanes /= 2) \
    value = join(value, __shfl_xor_sync(0xffffffffu, value, lanes));
#if PARTS <= 32
#define MEET(number, join, value) MEET_LANES(join, value)
#else
#define MEET(number, join, value)                                                     \
  MEET_LANES(join, value)                                                             \
  if (F_THREAD() % 32 == 0) met[(number) * (THREADS / 32) + F_THREAD() / 32] = value; \
  F_BARRIER();                                                                        \
  value = met[(number) * (THREADS / 32) + own * (PARTS / 32)];                        \
  F_UNROLL                                                                            \
  for (int warp = 1; warp < PARTS / 32; ++warp)                                       \
    value = join(value, met[(number) * (THREADS / 32) + own * (PARTS / 32) + warp]);
#endif
#else
// In two turns, neither with a loop around a barrier.
#define FEW_MET (PARTS < 16 ? PARTS : 16)
#define MET (THREADS + THREADS / PARTS * FEW_MET)
#define MEET(number, join, value)                                                                          \
  met[F_THREAD()] = value;                                                                                 \
  F_BARRIER();                                                                                             \
  if (part < FEW_MET) {                                                                                    \
    float some_met = value;                                                                                \
    for (int p = part + FEW_MET; p < PARTS; p += FEW_MET) some_met = join(some_met, met[own * PARTS + p]); \
    met[THREADS + own * FEW_MET + part] = some_met;                                                        \
  }                                                                                                        \
  F_BARRIER();                                                                                             \
  value = met[THREADS + own * FEW_MET];                                                                    \
  for (int p = 1; p < FEW_MET; ++p) value = join(value, met[THREADS + own * FEW_MET + p]);
#endif
