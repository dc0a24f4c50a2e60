// Forward convolution on Hopper's matrix units: 16-bit NCHW in and out as they are, stride 1.
//
// A window is F_W columns of a patch of rows, F_KB channels of it at a time, as the bulk copy engine brings
// it: pixels side by side, wgmma takes it transposed (64 output channels on M, pixels on N). A vertical tap
// is a view of the window some rows further down. A horizontal tap cannot be one, since rows of pixels must
// begin at 16 bytes: each has sums of its own over the same pixels, and the epilogue adds them, shifted,
//   out[q] = sum over s of sums_s[q + s F_DIL_W - F_PAD_LEFT],
// by shuffles among the threads that hold a row's neighbours. What crosses the border of two windows is
// carried along the strip, F_TH output rows of an image, from right to left.
//
// Two consumer warpgroups have half of the rows each. They take the same windows in turn (one's epilogue
// hides behind the other's products; the weights stay, and all channels are one block), or with F_COOP
// together, block by block, one some taps ahead so that the epilogues do not coincide.
//
// The host defines, besides mma(): F_W (16, 32, 64) F_TH F_N (pixels a consumer) F_KB F_R F_S F_DIL_H F_DIL_W
// F_PAD_LEFT F_SLOTS (of pixels) F_STAGES (of weights) F_RESIDENT F_COOP F_BF16 F_BIAS F_RESIDUAL F_POOL (0,
// 1 max, 2 average, of 2x2) F_V (pixels a store) F_SMEM F_ACTIVATION(x, a).
#include "kernels/sm90/element.cuh"
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"

struct Params {
  const void* bias;
  const void* residual;
  void* y;
  int k, p, q;  // output channels, height, width (before pooling)
  int strips, k_tiles, c_blocks;
  int windows, tiles_h;  // of a strip, of an image
  int pad_top;
  float slope;
};

constexpr int kTaps = F_R * F_S;
constexpr int kChannels = 64;  // of a tile
constexpr int kRow = F_W * 2;  // bytes of a row of pixels in a window
constexpr int kImageRow = F_KB * kRow;
constexpr int kSlotBytes = (F_TH + (F_R - 1) * F_DIL_H) * kImageRow;
constexpr int kSlotStride = (kSlotBytes + 1023) / 1024 * 1024;
constexpr int kWeightRow = F_KB * 2;
constexpr int kStageBytes = kChannels * kWeightRow;
constexpr int kStageStride = (kStageBytes + 1023) / 1024 * 1024;
constexpr int kConsumers = 2;
constexpr int kRows = F_TH / kConsumers;  // a consumer's
constexpr int kGroups = F_W / 8;          // of 8 columns, the unit of wgmma's sums
static_assert(kRows * F_W == F_N, "rows by columns");

// Where there are several windows, stored ones end 16 pixels later than computed ones: aligned, and what
// awaits its left neighbour is not yet stored.
constexpr bool kWalks = F_WALKS;
constexpr int kLag = kWalks ? 16 : 0;
constexpr int kShrink = F_POOL ? 2 : 1;

// The staging area of a consumer. With F_BULK a window as the copy engine stores it, and aside what the next
// one stores. Else for each row and channel a ring of F_W + kLag pixels: rows of an odd number of 16 bytes,
// so that those of neighbouring channels begin in other banks.
constexpr int kMainBytes = kRows * kChannels * kRow;
constexpr int kRing = kGroups + kLag / 8;  // groups
constexpr int kGroupBytes = 16 / kShrink;
constexpr int kPitch = (kRing * kGroupBytes / 16 | 1) * 16;
static_assert(kPitch >= kRing * kGroupBytes, "a row of the staging area");
constexpr int kAsideBytes = kRows * kChannels * kLag * 2;
// In bulk a residual comes into the places of the results; that of the first columns, whose places are taken,
// apart.
constexpr bool kBringsResidual = F_RESIDUAL && F_BULK;
constexpr int kUsedStaging =
    F_BULK ? kMainBytes + kAsideBytes * (kBringsResidual ? 2 : 1) : kRows / kShrink * kChannels * kPitch;
constexpr int kStagingBytes = (kUsedStaging + 1023) / 1024 * 1024;

// What is carried between windows, by the 32 threads of a consumer that hold the first columns: two sums that
// await the left neighbour's, and for each tap that looks to the right two of its own.
constexpr int kReachLeft = F_PAD_LEFT, kReachRight = (F_S - 1) * F_DIL_W - F_PAD_LEFT;
static_assert(kReachLeft <= 2 && kReachRight <= 2, "neighbours' columns only");
constexpr int kLookRight = F_S - 1 - F_PAD_LEFT / F_DIL_W;       // taps: the last ones
constexpr int kCarried = 1 + (kLookRight > 0 ? kLookRight : 0);  // pairs
constexpr int kCarryBytes = kWalks ? kRows * 2 * kCarried * 32 * 8 : 0;

// The barriers' addresses in shared memory.
struct Barriers {
  unsigned base;
  __device__ __forceinline__ unsigned slot_full(int i) const { return base + i * 8; }
  __device__ __forceinline__ unsigned slot_empty(int i) const { return base + (F_SLOTS + i) * 8; }
  __device__ __forceinline__ unsigned stage_full(int i) const { return base + (2 * F_SLOTS + i) * 8; }
  __device__ __forceinline__ unsigned stage_empty(int i) const {
    return base + (2 * F_SLOTS + F_STAGES + i) * 8;
  }
  __device__ __forceinline__ unsigned residual_full(int i) const {
    return base + (2 * F_SLOTS + 2 * F_STAGES + i) * 8;
  }
};
constexpr int kBarrierBytes = 16 * (F_SLOTS + F_STAGES) + (kBringsResidual ? 8 * kConsumers : 0);

constexpr int kSmem = F_SLOTS * kSlotStride + F_STAGES * kStageStride +
                      kConsumers * (kStagingBytes + kCarryBytes) + kBarrierBytes;
static_assert(F_SMEM == kSmem + 1024, "the host's count of shared memory");

// Of the output's rows and of the residual's: as windows, and as what is stored aside.
struct Maps {
  TensorMap y, y_aside, residual, residual_aside;
};

struct Tile {
  int k, n, h;  // first channel, image, first row
};

__device__ __forceinline__ Tile locate(const Params& p, int strip) {
  Tile t;
  t.k = strip % p.k_tiles * kChannels;
  const int rows = strip / p.k_tiles;
  t.h = rows % p.tiles_h * F_TH;
  t.n = rows / p.tiles_h;
  return t;
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& w_map, const Params& p,
                                        unsigned slots, unsigned stages, Barriers barriers) {
  Ring<F_SLOTS> slot;
  [[maybe_unused]] Ring<F_STAGES> stage;
#if F_RESIDENT
  {
    const Tile t = locate(p, blockIdx.x);  // every strip of this block has the same channels
    const unsigned full = barriers.stage_full(0);
    barrier_expect(full, F_STAGES * kStageBytes);
    for (int i = 0; i < F_STAGES; ++i) {
      load_3d(stages + i * kStageStride, &w_map, full, i / kTaps * F_KB, i % kTaps, t.k);
    }
  }
#endif
  for (int strip = blockIdx.x; strip < p.strips; strip += gridDim.x) {
    const Tile t = locate(p, strip);
    for (int window = p.windows - 1; window >= 0; --window) {
      for (int block = 0; block < p.c_blocks; ++block) {
        const unsigned full = barriers.slot_full(slot.place);
        barrier_wait(barriers.slot_empty(slot.place), slot.parity ^ 1);
        barrier_expect(full, kSlotBytes);
        load_4d(slots + slot.place * kSlotStride, &x_map, full, window * F_W, block * F_KB, t.h - p.pad_top,
                t.n);
        slot.advance();
#if !F_RESIDENT
        for (int tap = 0; tap < kTaps; ++tap) {
          const unsigned stage_full = barriers.stage_full(stage.place);
          barrier_wait(barriers.stage_empty(stage.place), stage.parity ^ 1);
          barrier_expect(stage_full, kStageBytes);
          load_3d(stages + stage.place * kStageStride, &w_map, stage_full, block * F_KB, tap, t.k);
          stage.advance();
        }
#endif
      }
    }
  }
}

using Sums = float[F_S][F_N / 2];

__device__ __forceinline__ unsigned long long descriptor(unsigned low, int pitch, unsigned swizzle) {
  const unsigned high = static_cast<unsigned>(pitch >> 4) | swizzle << 30;
  return static_cast<unsigned long long>(high) << 32 | low;
}
__device__ constexpr unsigned swizzle_code(int bytes) { return bytes == 128 ? 1u : bytes == 64 ? 2u : 3u; }

// The products of one tap of one block of channels.
__device__ __forceinline__ void multiply(float (&sums)[F_N / 2], unsigned weights, unsigned pixels,
                                         int accumulate) {
#pragma unroll
  for (int step = 0; step < F_KB / 16; ++step) {
    const unsigned long long a =
        descriptor((weights + step * 32) >> 4, 8 * kWeightRow, swizzle_code(kWeightRow));
    // Rows are channels, 8 of them a unit of the swizzle; the next F_W pixels are those of the next row.
    const unsigned long long b =
        descriptor(((pixels + step * 16 * kRow) >> 4) | (kImageRow >> 4) << 16, 8 * kRow, swizzle_code(kRow));
    mma(sums, a, b, step == 0 ? accumulate : 1);
  }
}

#include "kernels/sm90/shift_epilogue.cuh"

__device__ __forceinline__ void consume(const Maps& maps, const Params& p, unsigned slots, unsigned stages,
                                        unsigned staging, unsigned carry, Barriers barriers, int consumer) {
  Ring<F_SLOTS> slot;
  [[maybe_unused]] Ring<F_STAGES> stage;
  const int thread = threadIdx.x % 128;
  const bool leader = thread == 0;
  [[maybe_unused]] unsigned residual_parity = 0;
  const unsigned my_rows = consumer * kRows * kImageRow;
  for (int i = thread; i < kCarryBytes / 8; i += 128) store_carry(carry + i * 8, {0.0f, 0.0f}, true);
  named_sync(3 + consumer, 128);
#if F_COOP
  constexpr int kAhead = F_STAGES > kTaps + 1 ? kTaps : F_STAGES - 2;  // taps
  bool begins = !F_RESIDENT;
  if (begins && consumer == 1) named_sync(1, 256);
#else
  if (consumer == 1) named_arrive(1, 256);  // the other one goes first
#endif
#if F_RESIDENT
  barrier_wait(barriers.stage_full(0), 0);
#endif
  float bias[2] = {0.0f, 0.0f};
  const auto load_bias = [&](int k0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + thread / 32 * 16 + thread % 32 / 4 + half * 8;
      bias[half] = F_BIAS && k < p.k ? load_element(p.bias, k) : 0.0f;
    }
  };
  // Where the weights stay, so do the channels.
  if (F_RESIDENT) load_bias(locate(p, blockIdx.x).k);
  for (int strip = blockIdx.x; strip < p.strips; strip += gridDim.x) {
    const Tile t = locate(p, strip);
    if (!F_RESIDENT) load_bias(t.k);
    for (int window = p.windows - 1; window >= 0; --window) {
      if (kBringsResidual && leader) {
        bring_residual(maps, t, window, staging, barriers.residual_full(consumer), consumer);
      }
#if !F_COOP
      named_sync(1 + consumer, 256);
#endif
      Sums sums;
      int accumulate = 0;
      unsigned previous_slot = 0, previous_stage = 0;
      for (int block = 0; block < p.c_blocks; ++block) {
        barrier_wait(barriers.slot_full(slot.place), slot.parity);
        const unsigned pixels = slots + slot.place * kSlotStride + my_rows;
#pragma unroll F_UNROLL
        for (int r = 0; r < F_R; ++r) {
          if (F_RESIDENT && r == 0) mma_fence();
#pragma unroll
          for (int s = 0; s < F_S; ++s) {
            const unsigned view = pixels + r * F_DIL_H * kImageRow;
#if F_RESIDENT
            multiply(sums[s], stages + (block * kTaps + r * F_S + s) * kStageStride, view,
                     r == 0 ? accumulate : 1);
#else
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
            if (begins && consumer == 0 && r * F_S + s == kAhead - 1) {
              named_arrive(1, 256);
              begins = false;
            }
#endif
          }
        }
#if F_RESIDENT
        mma_commit();
        mma_wait<1>();
        if (leader && block != 0) barrier_arrive(previous_slot);
#endif
        accumulate = 1;
        previous_slot = barriers.slot_empty(slot.place);
        slot.advance();
      }
#if !F_COOP
      named_arrive(2 - consumer, 256);
#endif
      mma_wait<0>();
      if (leader) {
        barrier_arrive(previous_slot);
        if (!F_RESIDENT) barrier_arrive(previous_stage);
      }
      if (kBringsResidual) {
        barrier_wait(barriers.residual_full(consumer), residual_parity);
        residual_parity ^= 1;
      }
      finish(sums, maps, p, t, window, bias, staging, carry, consumer, thread);
    }
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    shift_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
               const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned base = (smem_address(memory) + 1023) / 1024 * 1024;
  const unsigned slots = base, stages = slots + F_SLOTS * kSlotStride,
                 staging = stages + F_STAGES * kStageStride, carry = staging + kConsumers * kStagingBytes;
  const Barriers barriers{carry + kConsumers * kCarryBytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < F_SLOTS; ++i) {
      barrier_init(barriers.slot_full(i), 1);
      barrier_init(barriers.slot_empty(i), kConsumers);
    }
    for (int i = 0; i < F_STAGES; ++i) {
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
    if (F_BULK && threadIdx.x % 128 == 0) store_wait_read();  // the block's memory must outlive what reads it
  }
}
