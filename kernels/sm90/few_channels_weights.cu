// The gradient of the weights of few input channels with a stride, 16-bit tensors, on Hopper's matrix units:
// a sum over pixels of x, as the filter's terms meet it, times the output's gradient. The first operand,
// terms by pixels, is made in registers of a patch as it lies (few_channels.cu): a word has two terms of a
// pixel, and two words are both terms of two neighbouring pixels. The second operand is the output's
// gradient, which the copy engine brings as it lies.
//
// Each 64 terms have a warpgroup of their own, all of a block's share of the tiles' pixels. Its sums are a
// part, which sum_many_parts.cl adds up in a fixed order.
//
// The host defines F_CONFIG (statements that fill in a Config c, few_channels_config.h) and mma(sums, a, b,
// accumulate) for 64 channels.
#include "kernels/sm90/few_channels_tile.cuh"

constexpr int kConsumers = consumers(kConfig), kThreads = weights_threads(kConfig);
constexpr int kGradient = gradient_bytes(kConfig), kStage = weights_stage(kConfig);
constexpr int kAcross = kConfig.width / kColumns, kSteps = kConfig.height * kAcross;
constexpr int kBatch = 4;  // products under way together, while the operands of the next are loaded
static_assert(kSteps % (2 * kBatch) == 0);
static_assert(weights_shared_bytes(kConfig) <= 232448, "shared memory");

using Sums = float[kGradientChannels / 2];
using Operands = unsigned[kBatch][4];

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& dy_map, const Params& p,
                                        const Work& work, unsigned memory, Barriers& barriers) {
  Ring<kStages> stage;
  for (int i = work.first; i < p.tiles; i += work.step) {
    const Tile tile = tile_of(p, i);
    const unsigned full = smem_address(&barriers.full[stage.place]), to = memory + stage.place * kStage;
    barrier_wait(smem_address(&barriers.empty[stage.place]), stage.parity ^ 1);
    barrier_expect(full, kGradient + patch_bytes(kConfig));
    if constexpr (kConfig.nchw) {
      load_4d(to, &dy_map, full, tile.w, work.channel, tile.h, tile.n);
    } else {
      load_4d(to, &dy_map, full, work.channel, tile.w, tile.h, tile.n);
    }
    bring_patch(x_map, p, tile, to + kGradient, full);
    stage.advance();
  }
}

// Of the products of a batch from step `first` on; from: where the lane's pair of terms is of the patch's
// first pixel.
__device__ __forceinline__ void load_operands(Operands& a, unsigned from, int first) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int step = first + i;
    const unsigned at = from + step / kAcross * kConfig.stride_h * kRow + step % kAcross * kColumns * kPixel;
    unsigned w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) load_shared<4>(at + (j / 2 * 8 + j % 2) * kPixel, w[j]);
    a[i][0] = __byte_perm(w[0], w[1], 0x5410), a[i][1] = __byte_perm(w[0], w[1], 0x7632);
    a[i][2] = __byte_perm(w[2], w[3], 0x5410), a[i][3] = __byte_perm(w[2], w[3], 0x7632);
  }
}

// 16 pixels of the gradient: rows of pixels, or 32 bytes of rows of channels.
__device__ __forceinline__ void multiply(Sums& sums, const Operands& a, unsigned gradient, int first) {
  mma_fence();
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int step = first + i;
    const int at =
        kConfig.nchw ? step / kAcross * kGradientChannels * 128 + step % kAcross * 32 : step * kColumns * 128;
    mma(sums, a[i], descriptor(gradient + at), 1);
  }
  mma_commit();
}

__device__ __forceinline__ void consume(Sums& sums, const Params& p, const Work& work, unsigned memory,
                                        Barriers& barriers, int pair, int lane) {
  // Of two octets beyond the last the operands are of the first one: their sums go nowhere.
  const int octet = pair / 4 < kOctets ? pair / 4 : 0;
  const unsigned mine = kGradient + octet_place(kConfig, octet) + pair % 4 * 4 + lane % 4 * 2 * kPixel;
  Ring<kStages> stage;
  Operands a, b;
  for (int i = work.first; i < p.tiles; i += work.step) {
    const unsigned at = memory + stage.place * kStage;
    barrier_wait(smem_address(&barriers.full[stage.place]), stage.parity);
#pragma unroll
    for (int first = 0; first < kSteps; first += 2 * kBatch) {
      load_operands(a, at + mine, first);
      multiply(sums, a, at, first);
      mma_wait<1>();
      load_operands(b, at + mine, first + kBatch);
      multiply(sums, b, at, first + kBatch);
      mma_wait<1>();
    }
    mma_wait<0>();
    if (lane == 0) barrier_arrive(smem_address(&barriers.empty[stage.place]));
    stage.advance();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    few_channels_weights(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap dy_map,
                         const __grid_constant__ Params p) {
  extern __shared__ unsigned char shared[];
  const unsigned memory = (smem_address(shared) + 1023) / 1024 * 1024;
  unsigned char* const begin = shared + (memory - smem_address(shared));
  Barriers& barriers = *reinterpret_cast<Barriers*>(begin + weights_barriers_at(kConfig));
  if (threadIdx.x == 0) {
    init_barriers(barriers, kConsumers * 4);
    prefetch_map(&x_map);
    prefetch_map(&dy_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  const Work work = divide_work(p, kGradientChannels);
  wait_for_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kFilter = filter_elements(kConfig);
  float* const filters = reinterpret_cast<float*>(begin);
  if (warp == kConsumers * 4) {
    if (elected()) produce(x_map, dy_map, p, work, memory, barriers);
  } else {
    Sums sums;
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    const int pair = warp * 8 + lane / 4;
    consume(sums, p, work, memory, barriers, pair, lane);
    pin(sums);
    constexpr int kEveryConsumer = 1;              // a named barrier
    named_sync(kEveryConsumer, kConsumers * 128);  // all have read their operands
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int weight = weight_of(kConfig, pair / 4, pair % 4 * 2 + half);
      if (weight < 0) continue;
#pragma unroll
      for (int i = 0; i < kGradientChannels / 4; ++i) {
        const int k = i / 2 * 8 + lane % 4 * 2 + i % 2;
        filters[k * kFilter + weight] = sums[i / 2 * 4 + half * 2 + i % 2];
      }
    }
    named_sync(kEveryConsumer, kConsumers * 128);
    const int rest = p.k - work.channel,
              all = (rest < kGradientChannels ? rest : kGradientChannels) * kFilter;
    float* const to = p.parts + (static_cast<long long>(work.first) * p.k + work.channel) * kFilter;
    for (int i = threadIdx.x; i < all; i += kConsumers * 128) to[i] = filters[i];
  }
}
