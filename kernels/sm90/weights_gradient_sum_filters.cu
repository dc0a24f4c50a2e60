// The sum of the parts of a gradient of the weights, always in the same order, of filters of NCHW, which have a channel's
// taps side by side: a block adds up those of a few output and input channels, a thread a pair of one tap, and stores them
// in 16 bytes.
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h).
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#include "kernels/sm90/weights_gradient_parts.cuh"
#include "kernels/sm90/weights_gradient_tile.cuh"
#include "kernels/sm90/weights_gradient_store.cuh"

constexpr int kSumThreads = sum_threads(kTaps);
constexpr int kChunks = kSumInputs * kTaps / 8, kPitch = (kChunks | 1) * 8;  // rows begin in different banks

// Where each part has it.
__device__ __forceinline__ long long pair_of(const Params& p, const Place& at) {
  constexpr int kOutputs = kConfig.k_blocks * kOutChannels, kInputs = kConfig.c_blocks * kChannels;
  const int taps = at.r / kTapRows + kRowTiles * (at.s / kTapColumns);
  const int result = at.k / kOutputs + p.k_tiles * (at.c / kInputs + p.c_tiles * taps);
  return static_cast<long long>(result) * kPartPairs +
         pair_in_block({at.k % kOutputs, at.r % kTapRows, at.s % kTapColumns, at.c % kInputs});
}

extern "C" __global__ void __launch_bounds__(kSumThreads)
    weights_gradient_sum_filters(const __grid_constant__ Params p, int count) {
  __shared__ uint4 chunks[kSumOutputs * kPitch / 8];
  let_next_kernel_begin();
  const int thread = static_cast<int>(threadIdx.x), blocks_c = divided(p.c, kSumInputs);
  const int first_k = static_cast<int>(blockIdx.x) / blocks_c * kSumOutputs,
            first_c = static_cast<int>(blockIdx.x) % blocks_c * kSumInputs;
  // Neighbours as they are in a part: four pairs of channels, then output channels.
  const int tap = thread / (kSumOutputs * kSumInputs / 2), c = thread / (kSumOutputs * 4) % (kSumInputs / 8) * 8 + thread % 4 * 2,
            k = thread / 4 % kSumOutputs;
  const Place at{first_k + k, tap / kConfig.s, tap % kConfig.s, first_c + c};
  const bool inside = at.k < p.k && at.c < p.c;
  const float2* const parts = static_cast<const float2*>(p.parts) + (inside ? pair_of(p, at) : 0);
  const int end = inside ? count : 0;
  wait_for_previous_kernel();
  float2 sum{0.0f, 0.0f};
  Batch<1>(parts, p.part_pairs, 0, end).add_to(sum);
  add_others<1>(sum, parts, p.part_pairs, 0, end);
  unsigned short* const filter = reinterpret_cast<unsigned short*>(chunks) + k * kPitch + c * kTaps + tap;
  filter[0] = round_to_element(sum.x);
  filter[kTaps] = round_to_element(sum.y);
  __syncthreads();
  const int there = (p.c - first_c) * kTaps / 8;
  for (int i = thread; i < kSumOutputs * kChunks; i += kSumThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (first_k + row >= p.k || chunk >= there) continue;
    const long long to = (static_cast<long long>(first_k + row) * p.c + first_c) * kTaps / 8 + chunk;
    static_cast<uint4*>(p.dw)[to] = chunks[row * kPitch / 8 + chunk];
  }
}
