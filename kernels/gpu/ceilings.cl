// The rates that results are compared with: a copy, and multiply-adds that wait for nothing.
//
// The host defines THREADS, and what a work-item multiplies: NUMBER, one SCALAR or a vector of them.

F_KERNEL(THREADS)
copy(F_INPUT(float, from), F_OUTPUT(float, to)) {
  F_OPEN_INPUT(float, from);
  F_OPEN_OUTPUT(float, to);
  const i64 place = ((i64)F_BLOCK(0) * THREADS + F_THREAD()) * 4;
  float v[4];
  load4_f32(from + place, v);
  store4_f32(to + place, v);
}

#ifdef NUMBER
#ifdef __CUDACC__
#include "kernels/common/clock.cuh"
#endif

// Eight chains that do not wait for each other.
F_KERNEL(THREADS)
multiply_add(F_OUTPUT(float, sink), int rounds, float a, float b) {
  F_OPEN_OUTPUT(float, sink);
#ifdef __CUDACC__
  const Counters begin = read_counters(a);
#endif
  const NUMBER x = (NUMBER)(a), y = (NUMBER)(b);
  NUMBER s0 = y, s1 = y, s2 = y, s3 = y, s4 = y, s5 = y, s6 = y, s7 = y;
  for (int i = 0; i < rounds; ++i) {
    s0 = F_MAD(s0, x, y), s1 = F_MAD(s1, x, y), s2 = F_MAD(s2, x, y), s3 = F_MAD(s3, x, y);
    s4 = F_MAD(s4, x, y), s5 = F_MAD(s5, x, y), s6 = F_MAD(s6, x, y), s7 = F_MAD(s7, x, y);
  }
  const NUMBER sum = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
  float total = 0;
  for (int i = 0; i < (int)(sizeof(NUMBER) / sizeof(SCALAR)); ++i) total += (float)((const SCALAR*)&sum)[i];
  const int place = F_BLOCK(0) * THREADS + F_THREAD();
#ifdef __CUDACC__
  const Counters end = read_counters(total);
  if (place == 0) total = megahertz(begin, end);
#endif
  sink[place] = total;
}
#endif
