// What wgmma reaches: two warpgroups of 64 x 256 sums, their operands random and in shared memory, as large
// as it is.
//
// Before it the host defines mma(), an instruction of 64 x 256 x 32 bytes (wgmma_function), and
// DTYPE_<dtype>.
#include "kernels/common/clock.cuh"
#include "kernels/common/random_operand.cuh"
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kRow = 128;  // bytes of the depth that lie side by side, swizzled
constexpr int kStages = 4, kGroups = 2;
constexpr int kFirst = 64 * kRow, kSecond = 256 * kRow, kStage = kGroups * kFirst + kSecond;

__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  constexpr unsigned long long kSwizzled = 1ull << 62, kPitch = 8 * kRow >> 4;
  return kSwizzled | kPitch << 32 | (address >> 4 & 0x3fff);
}

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1) products(float* sink, int rounds) {
  extern __shared__ unsigned char memory[];
  const unsigned begin = (smem_address(memory) + 1023) & ~1023u;
  for (unsigned i = threadIdx.x; i < kStages * kStage / 4; i += 128 * kGroups) {
    store_shared_32(begin + i * 4, random_operand(blockIdx.x * (kStages * kStage / 4) + i));
  }
  fence_async();
  __syncthreads();
  const unsigned group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  float sums[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0;
  const Counters begin_counters = read_counters(sums[0]);
  for (int round = 0; round < rounds; ++round) {
    const unsigned stage = begin + round % kStages * kStage;
    mma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      mma(sums, descriptor(stage + group * kFirst + step * 32),
          descriptor(stage + kGroups * kFirst + step * 32), 1);
    }
    mma_commit();
    mma_wait<1>();
  }
  mma_wait<0>();
  float total = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) total += sums[i];
  const Counters end_counters = read_counters(total);
  const unsigned place = blockIdx.x * 128 * kGroups + threadIdx.x;
  sink[place] = place == 0 ? megahertz(begin_counters, end_counters) : total;
}
