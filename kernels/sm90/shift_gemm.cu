// Forward convolution on Hopper's matrix units: 16-bit NCHW in and out as they are, stride 1.
//
// A window is kTileWidth columns of a patch of rows, kKBlock channels of it at a time, as the bulk copy
// engine brings it: pixels side by side, wgmma takes it transposed (64 output channels on M, pixels on N). A
// vertical tap is a view of the window some rows further down. A horizontal tap cannot be one, since rows of
// pixels must begin at 16 bytes: each has sums of its own over the same pixels, and the epilogue adds them,
// shifted,
//   out[q] = sum over s of sums_s[q + s kDilationW - kPadLeft],
// by shuffles among the threads that hold a row's neighbours. What crosses the border of two windows is
// carried along the strip, kTileHeight output rows of an image, from right to left.
//
// Two consumer warpgroups have half of the rows each. They take the same windows in turn (one's epilogue
// hides behind the other's products; the weights stay, and all channels are one block), or cooperating
// together, block by block, one some taps ahead so that the epilogues do not coincide.
//
// The host (src/algorithms/sm90/source.cpp) writes before this file kConfig, mma() and activate().
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"

constexpr int kChannels = 64;              // of a tile
constexpr int kPixelRow = kTileWidth * 2;  // bytes of a row of pixels in a window
constexpr int kImageRow = kKBlock * kPixelRow;
constexpr int kRows = shift::rows(kConfig);  // a consumer's
constexpr int kGroups = kTileWidth / 8;      // of 8 columns, the unit of wgmma's sums
constexpr int kPadLeft = kConfig.pad_left;
static_assert(kRows * kTileWidth == kN && kTileChannels == kChannels, "rows by columns, 64 channels");

constexpr bool kBulk = kConfig.mapped, kWalks = kConfig.walks;
constexpr int kLag = shift::lag(kConfig), kShrink = shift::shrink(kConfig);

// The staging area of a consumer.
constexpr int kMainBytes = shift::main_bytes(kConfig), kAsideBytes = shift::aside_bytes(kConfig);
constexpr int kRing = shift::ring_groups(kConfig), kGroupBytes = shift::group_bytes(kConfig);
constexpr int kPitch = shift::pitch(kConfig);
static_assert(kPitch >= kRing * kGroupBytes, "a row of the staging area");
constexpr bool kBringsResidual = shift::brings_residual(kConfig);

// What is carried between windows.
constexpr int kReachLeft = kPadLeft, kReachRight = (kS - 1) * kDilationW - kPadLeft;
static_assert(kReachLeft <= 2 && kReachRight <= 2, "neighbours' columns only");
constexpr int kCarried = shift::carried_pairs(kConfig);
constexpr int kCarryBytes = shift::carry_bytes(kConfig);

// The barriers' addresses in shared memory.
struct Barriers {
  unsigned base;
  __device__ __forceinline__ unsigned slot_full(int i) const { return base + i * 8; }
  __device__ __forceinline__ unsigned slot_empty(int i) const { return base + (kSlots + i) * 8; }
  __device__ __forceinline__ unsigned stage_full(int i) const { return base + (2 * kSlots + i) * 8; }
  __device__ __forceinline__ unsigned stage_empty(int i) const {
    return base + (2 * kSlots + kStages + i) * 8;
  }
  __device__ __forceinline__ unsigned residual_full(int i) const {
    return base + (2 * kSlots + 2 * kStages + i) * 8;
  }
};

using Maps = ShiftMaps<TensorMap>;

struct Tile {
  int k, c, n, h;  // first channel of the output and of the input, image, first row
  int z;           // volumes: the plane of image n
};

__device__ __forceinline__ Tile locate(const ShiftParams& p, int strip) {
  Tile t;
  t.k = strip % p.k_tiles * kChannels;
  t.c = kConfig.grouped ? t.k / p.group_k * p.group_c : 0;
  const int rows = strip / p.k_tiles;
  t.h = rows % p.tiles_h * kTileHeight;
  t.n = rows / p.tiles_h;
  t.z = 0;
  if constexpr (kVolume) {
    const int plane = t.n;
    t.n = plane / p.depth.out;
    t.z = plane - t.n * p.depth.out;
  }
  return t;
}

// The blocks of a strip's sums.
__device__ __forceinline__ Span span_of(const ShiftParams& p, const Tile& t) {
  if constexpr (!kVolume) return {0, p.c_blocks};
  const Span depths = taps_between(p.depth, t.z, t.z, kT, kDilationD);
  return {depths.first * p.c_blocks, depths.end * p.c_blocks};
}

__device__ __forceinline__ int depth_of(const ShiftParams& p, int block) {
  return kT > 1 ? block / p.c_blocks : 0;
}

// The weights of a tap of a block.
__device__ __forceinline__ void load_weights(unsigned stage, const TensorMap& w_map, unsigned full,
                                             const ShiftParams& p, int block, int tap, int k) {
  const int depth = depth_of(p, block), channels = block - depth * p.c_blocks;
  load_3d(stage, &w_map, full, channels * kKBlock, depth * kTaps + tap, k);
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const ShiftParams& p,
                                        unsigned slots, unsigned stages, Barriers barriers) {
  Ring<kSlots> slot;
  [[maybe_unused]] Ring<kStages> stage;
  if constexpr (kResident) {
    const Tile t = locate(p, blockIdx.x);  // every strip of this block has the same channels
    const unsigned full = barriers.stage_full(0);
    barrier_expect(full, kStages * kStageBytes);
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      load_weights(stages + i * kStageStride, w_map, full, p, i / kTaps, i % kTaps, t.k);
    }
  }
  for (int strip = blockIdx.x; strip < p.strips; strip += gridDim.x) {
    const Tile t = locate(p, strip);
    const Span span = span_of(p, t);
    for (int window = p.windows - 1; window >= 0; --window) {
#pragma unroll 1
      for (int block = span.first; block < span.end; ++block) {
        const unsigned full = barriers.slot_full(slot.place);
        barrier_wait(barriers.slot_empty(slot.place), slot.parity ^ 1);
        barrier_expect(full, kSlotBytes);
        const unsigned to = slots + slot.place * kSlotStride;
        if constexpr (kVolume) {
          const int depth = depth_of(p, block), channels = block - depth * p.c_blocks;
          load_5d(to, &x_map, full, window * kTileWidth, t.c + channels * kKBlock, t.h - p.pad_top,
                  input_plane(p.depth, t.z, depth, kDilationD), t.n);
        } else {
          load_4d(to, &x_map, full, window * kTileWidth, t.c + block * kKBlock, t.h - p.pad_top, t.n);
        }
        slot.advance();
        if constexpr (!kResident) {
#pragma unroll 1
          for (int tap = 0; tap < kTaps; ++tap) {
            const unsigned stage_full = barriers.stage_full(stage.place);
            barrier_wait(barriers.stage_empty(stage.place), stage.parity ^ 1);
            barrier_expect(stage_full, kStageBytes);
            load_weights(stages + stage.place * kStageStride, w_map, stage_full, p, block, tap, t.k);
            stage.advance();
          }
        }
      }
    }
  }
}

using Sums = float[kS][kN / 2];

__device__ __forceinline__ unsigned long long descriptor(unsigned low, int pitch, unsigned swizzle) {
  const unsigned high = static_cast<unsigned>(pitch >> 4) | swizzle << 30;
  return static_cast<unsigned long long>(high) << 32 | low;
}
__device__ constexpr unsigned swizzle_code(int bytes) { return bytes == 128 ? 1u : bytes == 64 ? 2u : 3u; }

// The products of one tap of one block of channels.
__device__ __forceinline__ void multiply(float (&sums)[kN / 2], unsigned weights, unsigned pixels,
                                         int accumulate) {
#pragma unroll
  for (int step = 0; step < kKBlock / 16; ++step) {
    const unsigned long long a = descriptor((weights + step * 32) >> 4, 8 * kRow, swizzle_code(kRow));
    // Rows are channels, 8 of them a unit of the swizzle; the next kTileWidth pixels are those of the next
    // row.
    const unsigned long long b = descriptor(((pixels + step * 16 * kPixelRow) >> 4) | (kImageRow >> 4) << 16,
                                            8 * kPixelRow, swizzle_code(kPixelRow));
    mma(sums, a, b, step == 0 ? accumulate : 1);
  }
}

#include "kernels/sm90/store/shift.cuh"

__device__ __forceinline__ void consume(const Maps& maps, const ShiftParams& p, unsigned slots,
                                        unsigned stages, unsigned staging, unsigned carry, Barriers barriers,
                                        int consumer) {
  Ring<kSlots> slot;
  [[maybe_unused]] Ring<kStages> stage;
  const int thread = threadIdx.x % 128;
  const bool leader = thread == 0;
  [[maybe_unused]] unsigned residual_parity = 0;
  const unsigned my_rows = consumer * kRows * kImageRow;
  for (int i = thread; i < kCarryBytes / 8; i += 128) store_carry(carry + i * 8, {0.0f, 0.0f}, true);
  named_sync(3 + consumer, 128);
  constexpr int kAhead = kStages > kTaps + 1 ? kTaps : kStages - 2;  // taps
  [[maybe_unused]] bool begins = !kResident;
  if constexpr (kCooperative) {
    if (begins && consumer == 1) named_sync(1, 256);
  } else {
    if (consumer == 1) named_arrive(1, 256);  // the other one goes first
  }
  if constexpr (kResident) barrier_wait(barriers.stage_full(0), 0);
  OfChannel bias[2] = {0.0f, 0.0f};
  const auto load_bias = [&](int k0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + thread / 32 * 16 + thread % 32 / 4 + half * 8;
      bias[half] = k < p.k ? of_channel(p.bias, p.slopes, k) : OfChannel(0.0f);
    }
  };
  // Where the weights stay, so do the channels.
  if (kResident) load_bias(locate(p, blockIdx.x).k);
  for (int strip = blockIdx.x; strip < p.strips; strip += gridDim.x) {
    const Tile t = locate(p, strip);
    if (!kResident) load_bias(t.k);
    const Span span = span_of(p, t);
    for (int window = p.windows - 1; window >= 0; --window) {
      if (kBringsResidual && leader) {
        bring_residual(maps, t, window, staging, barriers.residual_full(consumer), consumer);
      }
      if constexpr (!kCooperative) named_sync(1 + consumer, 256);
      Sums sums;
      int accumulate = 0;
      unsigned previous_slot = 0, previous_stage = 0;
      for (int block = 0; block < span.end - span.first; ++block) {
        barrier_wait(barriers.slot_full(slot.place), slot.parity);
        const unsigned pixels = slots + slot.place * kSlotStride + my_rows;
        constexpr int kUnroll = kResident ? kConfig.r : 1;
#pragma unroll kUnroll
        for (int r = 0; r < kConfig.r; ++r) {
          if (kResident && r == 0) mma_fence();
#pragma unroll
          for (int s = 0; s < kS; ++s) {
            const unsigned view = pixels + r * kDilationH * kImageRow;
            if constexpr (kResident) {
              multiply(sums[s], stages + ((span.first + block) * kTaps + r * kS + s) * kStageStride, view,
                       r == 0 ? accumulate : 1);
            } else {
              barrier_wait(barriers.stage_full(stage.place), stage.parity);
              mma_fence();
              multiply(sums[s], stages + stage.place * kStageStride, view, r == 0 ? accumulate : 1);
              mma_commit();
              mma_wait<1>();
              if (leader) {
                if ((block | r | s) != 0) barrier_arrive(previous_stage);
                if ((r | s) == 0 && block != 0) barrier_arrive(previous_slot);
              }
              previous_stage = barriers.stage_empty(stage.place);
              stage.advance();
              if (begins && consumer == 0 && r * kS + s == kAhead - 1) {
                named_arrive(1, 256);
                begins = false;
              }
            }
          }
        }
        if constexpr (kResident) {
          mma_commit();
          mma_wait<1>();
          if (leader && block != 0) barrier_arrive(previous_slot);
        }
        accumulate = 1;
        previous_slot = barriers.slot_empty(slot.place);
        slot.advance();
      }
      if constexpr (!kCooperative) named_arrive(2 - consumer, 256);
      mma_wait<0>();
      if (leader) {
        barrier_arrive(previous_slot);
        if (!kResident) barrier_arrive(previous_stage);
      }
      if (kBringsResidual) {
        barrier_wait(barriers.residual_full(consumer), residual_parity);
        residual_parity ^= 1;
      }
      finish(sums, maps, p, t, window, bias, staging, carry, consumer, thread);
    }
  }
}

extern "C" __global__ void __launch_bounds__(threads(kConfig), 1)
    shift_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
               const __grid_constant__ Maps maps, const __grid_constant__ ShiftParams p) {
  extern __shared__ unsigned char memory[];
  const unsigned base = (smem_address(memory) + 1023) / 1024 * 1024;
  const unsigned slots = base, stages = slots + kSlots * kSlotStride,
                 staging = stages + kStages * kStageStride, carry = staging + kConsumers * kStagingBytes;
  const Barriers barriers{carry + kConsumers * kCarryBytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(barriers.slot_full(i), 1);
      barrier_init(barriers.slot_empty(i), kConsumers);
    }
    for (int i = 0; i < kStages; ++i) {
      barrier_init(barriers.stage_full(i), 1);
      barrier_init(barriers.stage_empty(i), kConsumers);
    }
    for (int i = 0; kBringsResidual && i < kConsumers; ++i) barrier_init(barriers.residual_full(i), 1);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&w_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  wait_for_previous_kernel();
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x == 0) produce(x_map, w_map, p, slots, stages, barriers);
  } else {
    registers_up<240>();
    const int consumer = threadIdx.x / 128 - 1;
    consume(maps, p, slots, stages, staging + consumer * kStagingBytes, carry + consumer * kCarryBytes,
            barriers, consumer);
    if (kBulk && threadIdx.x % 128 == 0) store_wait_read();  // the block's memory must outlive what reads it
  }
}
