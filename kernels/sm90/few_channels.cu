// Forward convolution of few input channels with a stride, 16-bit tensors, on Hopper's matrix units: a
// network's first layer. What a row of the filter meets of the input lies side by side in memory, in either
// layout, and from a result's column to the next one it is an even number of elements on: so a thread's words
// of the first operand, pixels by terms of the sum, are words of the input as it lies. Nothing is gathered,
// padded or turned before, and no weights are packed.
//
// The copy engine brings halo patches, zeros around the image. A tile of results is kColumns wide; each warp
// has a row of it, and loads its operand from the patch. The filter is put into shared memory as the block
// begins, and stays.
//
// The host defines F_CONFIG (statements that fill in a Config c, few_channels_config.h), mma(sums, a, b,
// accumulate) for so many channels, and activate(x, slope).
#include "kernels/sm90/few_channels_tile.cuh"

constexpr int kChannels = kConfig.channels, kRows = kConfig.height, kSteps = steps(kConfig);
constexpr bool kBf16 = kConfig.element == Element::bf16;
static_assert(shared_bytes(kConfig) <= 232448, "shared memory");

// Brings patches ahead of the products: the block's first warp, which multiplies, too. (A warp of its own
// would leave the others a quarter fewer registers.)
struct Bringer {
  const TensorMap* x_map;
  int next;  // tile
  Ring<kStages> stage;

  __device__ __forceinline__ void bring(const Params& p, const Work& work, unsigned memory,
                                        Barriers& barriers) {
    if (next >= p.tiles) return;
    const unsigned full = smem_address(&barriers.full[stage.place]);
    barrier_wait(smem_address(&barriers.empty[stage.place]), stage.parity ^ 1);
    if (elected()) {
      barrier_expect(full, patch_bytes(kConfig));
      bring_patch(*x_map, p, tile_of(p, next),
                  memory + patches_at(kConfig) + stage.place * patch_stride(kConfig), full);
    }
    __syncwarp();
    stage.advance();
    next += work.step;
  }
};

// The filter, as it lies in memory, to where the products read it; zeros in the rest of octets.
__device__ __forceinline__ void put_weights(const Params& p, int channel, unsigned to) {
  constexpr int kFilter = filter_elements(kConfig), kAll = 2 * kSteps * kChannels,
                kThreads = threads(kConfig);
  const auto* const filters =
      static_cast<const unsigned short*>(p.w) + static_cast<long long>(channel) * kFilter;
#pragma unroll
  for (int turn = 0; turn < divided(kAll, kThreads); ++turn) {
    const int i = static_cast<int>(threadIdx.x) + turn * kThreads, row = i / (2 * kSteps),
              octet = i % (2 * kSteps);
    unsigned short e[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int at = weight_of(kConfig, octet, j);
      e[j] = i < kAll && channel + row < p.k && at >= 0 ? filters[row * kFilter + at] : 0;
    }
    unsigned v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = e[j * 2] | static_cast<unsigned>(e[j * 2 + 1]) << 16;
    store_shared_128_if(to + weights_place(kConfig, row, octet), v, i < kAll);
  }
}

__device__ __forceinline__ float bias_of(const Params& p, int channel) {
  if (!kConfig.bias || channel >= p.k) return 0.0f;
  if constexpr (kConfig.f32_bias) return static_cast<const float*>(p.bias)[channel];
  const unsigned short element = static_cast<const unsigned short*>(p.bias)[channel];
  float value;
  if constexpr (kBf16) {
    value = __uint_as_float(static_cast<unsigned>(element) << 16);
  } else {
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element));
  }
  return value;
}

// And prelu's slopes.
__device__ __forceinline__ void put_bias(const Params& p, int channel, unsigned memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (kConfig.bias && thread < kChannels)
    store_shared_32(memory + bias_at(kConfig) + thread * 4, __float_as_uint(bias_of(p, channel + thread)));
  if (kConfig.slopes && thread < kChannels)
    store_shared_32(memory + slopes_at(kConfig) + thread * 4,
                    __float_as_uint(channel + thread < p.k ? p.slopes[channel + thread] : 0.0f));
}

using Sums = float[kChannels / 2];

// A row of 16 results of the patch, the first of which begins at `row`.
__device__ __forceinline__ void multiply(Sums& sums, unsigned row, unsigned weights, int lane) {
  const unsigned mine = row + lane / 4 * kPixel + lane % 4 * 4;
  unsigned a[kSteps][4];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int octet = i * 2 + half;
      a[i][half * 2] = a[i][half * 2 + 1] = 0;
      if (octet >= kOctets) continue;
      load_shared<4>(mine + octet_place(kConfig, octet), a[i][half * 2]);
      load_shared<4>(mine + octet_place(kConfig, octet) + 8 * kPixel, a[i][half * 2 + 1]);
    }
  }
  mma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    mma(sums, a[i], descriptor(weights + i / 4 * kChannels * 128 + i % 4 * 32), i > 0);
  }
  mma_commit();
}

// A warp's results, to its own place in shared memory, from where the copy engine stores them.
__device__ __forceinline__ void stage_results(const Sums& sums, const Params& p, unsigned staging,
                                              unsigned biases, unsigned slopes, int lane) {
#pragma unroll
  for (int eight = 0; eight < kChannels / 8; eight += 2) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float bias[2] = {0.0f, 0.0f};
      if constexpr (kConfig.bias) {
        const uint2 both = load_word<8>(biases + ((eight + i) * 8 + lane % 4 * 2) * 4);
        bias[0] = __uint_as_float(both.x), bias[1] = __uint_as_float(both.y);
      }
      float slope[2] = {p.slope, p.slope};
      if constexpr (kConfig.slopes) {
        const uint2 both = load_word<8>(slopes + ((eight + i) * 8 + lane % 4 * 2) * 4);
        slope[0] = __uint_as_float(both.x), slope[1] = __uint_as_float(both.y);
      }
      const float* const v = &sums[(eight + i) * 4];
      words[i * 2] = pack_pair<kBf16>(activate(v[0] + bias[0], slope[0]), activate(v[1] + bias[1], slope[1]));
      words[i * 2 + 1] = pack_pair<kBf16>(activate(v[2] + bias[0], slope[0]), activate(v[3] + bias[1], slope[1]));
    }
    // Four matrices of 8 pixels by 8 channels.
    const int eights = eight + lane / 16, half = lane / 8 % 2, line = lane % 8;
    if constexpr (kConfig.nchw) {
      store_matrices_transposed(staging + result_place(kConfig, eights * 8 + line, half), words[0], words[1],
                                words[2], words[3]);
    } else {
      store_matrices(staging + result_place(kConfig, half * 8 + line, eights), words[0], words[1], words[2],
                     words[3]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(threads(kConfig), 1)
    few_channels(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap y_map,
                 const __grid_constant__ Params p) {
  extern __shared__ unsigned char shared[];
  const unsigned memory = (smem_address(shared) + 1023) / 1024 * 1024;
  Barriers& barriers =
      *reinterpret_cast<Barriers*>(shared + (memory - smem_address(shared)) + barriers_at(kConfig));
  if (threadIdx.x == 0) {
    init_barriers(barriers, kRows);
    prefetch_map(&x_map);
    prefetch_map(&y_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  const Work work = divide_work(p, kChannels);
  const int row = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Bringer bringer{&x_map, work.first, {}};
  const auto bring = [&] {
    if (row == 0) bringer.bring(p, work, memory, barriers);
  };
  const auto begin = [&] {
    wait_for_previous_kernel();
#pragma unroll 1
    for (int i = 1; i < kStages; ++i) bring();
  };
  if (!p.weights_rest) begin();
  put_weights(p, work.channel, memory);
  if (p.weights_rest) begin();
  put_bias(p, work.channel, memory);
  fence_async();
  __syncthreads();
  const unsigned staging = memory + results_at(kConfig) + row * result_bytes(kConfig);
  Ring<kStages> stage;
  for (int i = work.first; i < p.tiles; i += work.step) {
    bring();
    const unsigned patch = memory + patches_at(kConfig) + stage.place * patch_stride(kConfig);
    barrier_wait(smem_address(&barriers.full[stage.place]), stage.parity);
    Sums sums;
    multiply(sums, patch + row * kConfig.stride_h * kRow, memory, lane);
    // The operands are in registers: the matrix units have begun.
    if (lane == 0) barrier_arrive(smem_address(&barriers.empty[stage.place]));
    if (elected()) store_wait_read();  // of the tile before
    mma_wait<0>();
    pin(sums);
    __syncwarp();
    stage_results(sums, p, staging, memory + bias_at(kConfig), memory + slopes_at(kConfig), lane);
    fence_async();
    __syncwarp();
    if (elected()) {
      const Tile tile = tile_of(p, i);
      if constexpr (kConfig.nchw) {
        store_4d(&y_map, staging, tile.w, tile.h + row, work.channel, tile.n);
      } else {
        store_4d(&y_map, staging, work.channel, tile.w, tile.h + row, tile.n);
      }
      store_commit();
    }
    __syncwarp();
    stage.advance();
  }
  if (elected()) store_wait_read();  // the block's memory must outlive what reads it
}
