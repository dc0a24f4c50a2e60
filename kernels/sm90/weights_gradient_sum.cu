// The sum of the parts of a gradient of the weights, always in the same order. The parts are as the threads of
// weights_gradient.cu or weights_gradient_lines.cu had them, pairs of sums; here they find their place in the filter.
//
// A thread adds up one pair. Where there are many parts F_ROWS threads do, each every F_ROWS-th part, and what they
// have is added in the threads' order.
// (A thread for a run of four pairs, stored in 16 bytes, leaves a quarter of the threads to wait for the parts, and takes
// 1 to 2 us more.)
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h), F_LINES and F_ROWS.
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#include "kernels/sm90/weights_gradient_parts.cuh"
#if F_LINES
#include "kernels/sm90/weights_gradient_lines_tile.cuh"
#else
#include "kernels/sm90/weights_gradient_tile.cuh"
#endif
#include "kernels/sm90/weights_gradient_store.cuh"

constexpr int kSumThreads = 256, kRows = F_ROWS, kPairsOfBlock = kSumThreads / kRows;

// Of a part; false: it is no weight's.
__device__ __forceinline__ bool place_of_pair(const Params& p, long long pair, Place& at) {
  if constexpr (kConfig.grouped()) {
    const int in_line = p.c_pitch / 2;
    const int line = static_cast<int>(pair / in_line), tap = line % kTaps;
    at = {line / kTaps, tap / kConfig.s, tap % kConfig.s, static_cast<int>(pair % in_line) * 2};
    return true;
  } else {
    const int result = static_cast<int>(pair / kPartPairs), in_block = static_cast<int>(pair % kPartPairs);
    const Place place = place_of(in_block / 128 / kPairs, in_block % 128, in_block / 128 % kPairs);
    return in_filter(p, results_of(p, result), place, at);
  }
}

extern "C" __global__ void __launch_bounds__(kSumThreads) weights_gradient_sum(const __grid_constant__ Params p, int count) {
  __shared__ float2 sums[kRows][kPairsOfBlock];
  let_next_kernel_begin();
  const int thread = static_cast<int>(threadIdx.x), column = thread % kPairsOfBlock, row = thread / kPairsOfBlock;
  const long long pair = static_cast<long long>(blockIdx.x) * kPairsOfBlock + column;
  Place at;
  bool stored = false;
  const auto find_place = [&] { stored = pair < p.part_pairs && place_of_pair(p, pair, at); };
  // While the parts are made; but where rows of threads share a pair, only by the one that stores it, while they come.
  if constexpr (kRows == 1) find_place();
  wait_for_previous_kernel();
  float2 sum{0.0f, 0.0f};
  const float2* const parts = static_cast<const float2*>(p.parts) + pair;
  const int end = pair < p.part_pairs ? count : 0;
  const Batch<kRows> first(parts, p.part_pairs, row, end);
  if constexpr (kRows > 1) {
    if (row == 0) find_place();
  }
  first.add_to(sum);
  add_others<kRows>(sum, parts, p.part_pairs, row, end);
  if constexpr (kRows > 1) {
    sums[row][column] = sum;
    __syncthreads();
    if (row > 0) return;
#pragma unroll
    for (int i = 1; i < kRows; ++i) add(sum, sums[i][column]);
  }
  if (stored) store_pair(p, at, sum.x, sum.y);
}
