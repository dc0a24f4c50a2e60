// What mma.sync reaches: 64 x 32 sums a warp of random operands that stay in registers.
//
// The host defines THREADS and DTYPE_<dtype>.
#ifdef DTYPE_f32
typedef float element_t;
#else
typedef u16 element_t;
#endif
#include "kernels/common/clock.cuh"
#include "kernels/common/random_operand.cuh"
#include "kernels/gpu/matrix_units.h"

extern "C" __global__ void __launch_bounds__(THREADS, 1) products(float* sink, int rounds) {
  u32 a[4][4], b[4][2];
  float sums[4][4][4] = {};
  const u32 place = blockIdx.x * THREADS + threadIdx.x;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) a[i][j] = random_operand(place * 24 + i * 4 + j);
    for (int j = 0; j < 2; ++j) b[i][j] = random_operand(place * 24 + 16 + i * 2 + j);
  }
  const Counters begin = read_counters(sums[0][0][0]);
  for (int round = 0; round < rounds; ++round) {
    F_UNROLL
    for (int i = 0; i < 4; ++i) {
      F_UNROLL
      for (int j = 0; j < 4; ++j) multiply(a[i], b[j], sums[i][j]);
    }
  }
  float total = 0;
  F_UNROLL
  for (int i = 0; i < 64; ++i) total += sums[i / 16][i / 4 % 4][i % 4];
  const Counters end = read_counters(total);
  sink[place] = place == 0 ? megahertz(begin, end) : total;
}
