// What the kernels of the weights' gradient do with operands in shared memory, 16-bit elements: the products of a block's
// tiles. Someone else brings them: the copy engine (weights_gradient.cu) or warps (weights_gradient_fetch.cu).
#pragma once

#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#include "kernels/sm90/weights_gradient_tile.cuh"

struct Barriers {
  unsigned long long full[kStages], empty[kStages];
};

// The buffers begin where swizzles do; the barriers are behind them.
__device__ __forceinline__ unsigned stages_in(const unsigned char* memory) {
  return (smem_address(memory) + 1023) / 1024 * 1024;
}
__device__ __forceinline__ Barriers& barriers_in(unsigned char* memory, unsigned stages) {
  return *reinterpret_cast<Barriers*>(memory + (stages + kStages * kStageStride - smem_address(memory)));
}

// The products of a tile of planes: dy's operand begins at dy, x's at x.
__device__ __forceinline__ void multiply_planes(Sums& sums, unsigned dy, unsigned x, int accumulate) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = step / 4, from = step % 4 * 32;
    mma(sums.full[0], descriptor<128>(dy + chunk * kConfig.k_blocks * kPlanesBox + from, 0, 1024),
        descriptor<128>(x + chunk * kConfig.c_blocks * kPlanesBox + from, 0, 1024), step == 0 ? accumulate : 1);
  }
}

// The same of patches: at x the consumer's rows begin.
__device__ __forceinline__ void multiply(Sums& sums, unsigned dy, unsigned x, int accumulate) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const unsigned long long a = descriptor<128>(dy + step * 2 * 1024, 0, 1024);
    const int from = patch_offset(step * 2), pitch = patch_offset(step * 2 + 1) - from;
    const int go_on = step == 0 ? accumulate : 1;
#pragma unroll
    for (int phase = 0; phase < kFullPhases; ++phase)
      mma(sums.full[phase], a, descriptor<kRow>(x + phase * kPatchStride + from, kColumnPitch, pitch), go_on);
#pragma unroll
    for (int i = 0; i < kShortPhases; ++i) {
      const int phase = kFullPhases + i;
      mma(sums.less[i], a, descriptor<kRow>(x + phase * kPatchStride + from, kColumnPitch, pitch), go_on);
    }
  }
}

__device__ __forceinline__ void consume(Sums& sums, const Work& work, unsigned stages, Barriers& barriers,
                                        int consumer) {
  Ring<kStages> stage;
  const bool leader = threadIdx.x % 128 == 0;
  // Of a pair, the other block waits for the buffer too, until it has brought its last tile.
  const auto release = [&](unsigned barrier, int tile) {
    barrier_arrive(barrier);
    if (kPaired && tile + kStages < work.end) barrier_arrive_at(barrier, cluster_rank() ^ 1);
  };
  const int k_block = consumer / kTapRows, tap_row = consumer % kTapRows;
  const unsigned my_dy = k_block * (kPlanes ? kPlanesBox : kGradientBytes), my_x = kConfig.k_blocks * kGradientBytes + tap_row * kTapRowPitch;
  unsigned previous = 0;
  for (int tile = work.first; tile < work.end; ++tile) {
    const unsigned at = stages + stage.place * kStageStride;
    barrier_wait(smem_address(&barriers.full[stage.place]), stage.parity);
    // Here and not where they wrote: there it would wait for the loads that are under way as well.
    if constexpr (kConfig.kind == Kind::fetch) fence_async();
    mma_fence();
    if constexpr (kPlanes) {
      multiply_planes(sums, at + my_dy, at + my_x, tile != work.first);
    } else {
      multiply(sums, at + my_dy, at + my_x, tile != work.first);
    }
    mma_commit();
    mma_wait<1>();
    if (leader && tile != work.first) release(previous, tile - 1);
    previous = smem_address(&barriers.empty[stage.place]);
    stage.advance();
  }
  mma_wait<0>();
}

#include "kernels/sm90/weights_gradient_finish.cuh"
