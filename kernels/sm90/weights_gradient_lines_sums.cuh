#pragma once
template <class Visit>
__device__ __forceinline__ void for_each_pair(const Sums& sums, const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) visit(i, sums[i * 2], sums[i * 2 + 1]);
}

#include "kernels/sm90/weights_gradient_finish.cuh"

__device__ __forceinline__ void init_barriers(Barriers& barriers) {
  const auto init = [](unsigned long long& barrier, int arrivals) { barrier_init(smem_address(&barrier), arrivals); };
  for (int i = 0; i < kStages; ++i) {
    init(barriers.x_full[i], kPrepares ? kPrepareWarps : 1);
    init(barriers.x_empty[i], kConsumers * 4);
    for (unsigned long long& landed : barriers.landed[i]) init(landed, 1);
  }
  for (int i = 0; i < kLines; ++i) {
    init(barriers.dy_full[i], 1);
    init(barriers.dy_empty[i], kConsumers * 4);
  }
}
