// The sums of parts of channels' sums (channel_sums.cuh), always in the same order.
//
// A block has eight columns, a sector of every part, and 64 rows of threads: each adds up every 64th part, then rows meet
// two by two. All of a batch's loads are under way at once.
#include "kernels/sm90/ptx.cuh"

constexpr int kColumns = 8, kRows = 64, kBatch = 8;

// parts: [count][columns].
extern "C" __global__ void __launch_bounds__(kColumns* kRows)
    sum_channels(const float* parts, float* sums, int columns, int count) {
  __shared__ float of_warp[kColumns * kRows / 32][kColumns];
  let_next_kernel_begin();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, row = thread / kColumns;
  const int column = static_cast<int>(blockIdx.x) * kColumns + thread % kColumns;
  wait_for_previous_kernel();
  float sum = 0.0f;
  for (int first = row; first < count; first += kBatch * kRows) {
    float v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int part = first + i * kRows;
      v[i] = part < count && column < columns ? parts[static_cast<long long>(part) * columns + column] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += v[i];
  }
  sum += __shfl_xor_sync(~0u, sum, 8);
  sum += __shfl_xor_sync(~0u, sum, 16);
  if (lane < kColumns) of_warp[thread / 32][lane] = sum;
  __syncthreads();
  if (thread >= kColumns || column >= columns) return;
  sum = of_warp[0][thread];
#pragma unroll
  for (int warp = 1; warp < kColumns * kRows / 32; ++warp) sum += of_warp[warp][thread];
  sums[column] = sum;
}
