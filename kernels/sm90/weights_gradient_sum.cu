// The sum of the parts of a gradient of the weights, always in the same order. The parts are as the threads of
// weights_gradient.cu or weights_gradient_lines.cu had them, pairs of sums; here they find their place in the filter.
//
// A thread adds up one pair, or the four of a run of channels. Where there are many parts F_ROWS threads do, each every
// F_ROWS-th part, and what they have is added in the threads' order.
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h), F_LINES, F_ROWS and F_RUN
// (1 or 4 pairs).
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#if F_LINES
#include "kernels/sm90/weights_gradient_lines_tile.cuh"
#else
#include "kernels/sm90/weights_gradient_tile.cuh"
#endif
#include "kernels/sm90/weights_gradient_store.cuh"

constexpr int kSumThreads = 256, kRows = F_ROWS, kColumns256 = kSumThreads / kRows, kRun = F_RUN;
constexpr int kAhead = kRun == 1 ? 8 : 4;  // parts that are under way

__device__ __forceinline__ void add(float2& sum, const float2& v) { sum.x += v.x, sum.y += v.y; }

// A thread's pairs: of which results, by which thread, the first of them.
struct Source {
  int result, consumer, thread, pair;
};
__device__ __forceinline__ Source source_of(long long unit) {
  constexpr int kUnits = kPartPairs / kRun, kSets = kPairs / kRun;
  const int result = static_cast<int>(unit / kUnits), rest = static_cast<int>(unit % kUnits);
  const int set = rest / 128 % kSets;
  return {result, rest / 128 / kSets, rest % 128, kRun == 1 ? set : set / 2 * 8 + set % 2};
}

// Of groups the parts lie as the filter does.
__device__ __forceinline__ Place place_in_group(const Params& p, long long pair) {
  const int in_line = p.c_pitch / 2;
  const int line = static_cast<int>(pair / in_line), tap = line % kTaps;
  return {line / kTaps, tap / kConfig.s, tap % kConfig.s, static_cast<int>(pair % in_line) * 2};
}

extern "C" __global__ void __launch_bounds__(kSumThreads) weights_gradient_sum(const __grid_constant__ Params p, int count) {
  __shared__ float2 sums[kRows][kColumns256][kRun];
  let_next_kernel_begin();
  const int column = static_cast<int>(threadIdx.x) % kColumns256, row = static_cast<int>(threadIdx.x) / kColumns256;
  const long long unit = static_cast<long long>(blockIdx.x) * kColumns256 + column;
  const bool any = unit < p.part_pairs / kRun;
  const Source from = source_of(unit);
  const Work work = results_of(p, from.result);
  const long long first = kConfig.grouped() ? unit
                                            : static_cast<long long>(from.result) * kPartPairs +
                                                  (from.consumer * kPairs + from.pair) * 128 + from.thread;
  wait_for_previous_kernel();
  float2 sum[kRun] = {};
  if (any) {
    const float2* const parts = static_cast<const float2*>(p.parts) + first;
#pragma unroll kAhead
    for (int part = row; part < count; part += kRows) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) add(sum[i], parts[part * p.part_pairs + i * 2 * 128]);
    }
  }
  if constexpr (kRows > 1) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) sums[row][column][i] = sum[i];
    __syncthreads();
    if (row > 0) return;
#pragma unroll
    for (int r = 1; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) add(sum[i], sums[r][column][i]);
    }
  }
  if (!any) return;
  if constexpr (kRun == 4) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < kRun; ++i) words[i] = round_to_elements(sum[i].x, sum[i].y);
    store_run(p, work, from.consumer, from.thread, from.pair, words);
  } else {
    Place at = place_in_group(p, unit);
    const bool stored =
        kConfig.grouped() || in_filter(p, work, place_of(from.consumer, from.thread, from.pair), at);
    if (stored) store_pair(p, at, sum[0].x, sum[0].y);
  }
}
