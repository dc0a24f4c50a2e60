// The sum of the parts of a gradient of the weights, always in the same order; they come as [parts][k][r][s][c_pitch]
// and become the filter's order and elements.
//
// A thread adds up four neighbours. Where there are many parts F_ROWS threads do, each every F_ROWS-th part, and what they
// have is added in the threads' order.
//
// The host defines F_DTYPE (0 f32, 1 f16, 2 bf16), F_NCHW (the filter's order: k, c, r, s) and F_ROWS.
#include "kernels/sm90/ptx.cuh"

constexpr int kThreads = 256, kRows = F_ROWS, kColumns = kThreads / kRows;
using Weight = Word<F_DTYPE == 0 ? 4 : 2>;

__device__ __forceinline__ Weight to_weight(float value) {
  if constexpr (F_DTYPE == 0) {
    return __float_as_uint(value);
  } else {
    unsigned short weight;
    if constexpr (F_DTYPE == 1) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(weight) : "f"(value));
    } else {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(weight) : "f"(value));
    }
    return weight;
  }
}

__device__ __forceinline__ void add(float4& sum, const float4& v) {
  sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sum_parts(const float4* __restrict__ parts, Weight* __restrict__ dw, int count, int runs, int c, int c_pitch,
              int taps) {
  __shared__ float4 sums[kRows][kColumns];
  let_next_kernel_begin();
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int run = blockIdx.x * kColumns + column;
  wait_for_previous_kernel();
  float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
  if (run < runs) {
#pragma unroll 8
    for (int part = row; part < count; part += kRows) add(sum, parts[static_cast<long long>(part) * runs + run]);
  }
  if constexpr (kRows > 1) {
    sums[row][column] = sum;
    __syncthreads();
    if (row > 0) return;
#pragma unroll
    for (int i = 1; i < kRows; ++i) add(sum, sums[i][column]);
  }
  if (run >= runs) return;
  const int in_line = c_pitch / 4, line = run / in_line, channel = (run - line * in_line) * 4;
  union {
    Weight each[4];
    Word<4 * sizeof(Weight)> all;
  } w;
  w.each[0] = to_weight(sum.x), w.each[1] = to_weight(sum.y), w.each[2] = to_weight(sum.z), w.each[3] = to_weight(sum.w);
  if constexpr (F_NCHW) {
    const int k = line / taps, tap = line - k * taps;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (channel + i < c) dw[(static_cast<long long>(k) * c + channel + i) * taps + tap] = w.each[i];
    }
  } else if (c == c_pitch) {
    *reinterpret_cast<Word<4 * sizeof(Weight)>*>(dw + static_cast<long long>(line) * c + channel) = w.all;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (channel + i < c) dw[static_cast<long long>(line) * c + channel + i] = w.each[i];
    }
  }
}
