// Forward convolution on Hopper's matrix units; input NHWC, output in either layout.
//
// A tile of the output is some channels by some pixels. Its products run over blocks of F_KB input channels and,
// within a block, over the filter's taps. One warp brings the operands in by the bulk copy engine; two consumer
// warpgroups multiply, either a tile each in turn (ping-pong: one's epilogue hides behind the other's products)
// or half a tile each (F_COOP).
//
// The pixels of a block come in one of two ways:
//   a halo patch (horizontal stride 1, or F_TURNED): loaded once, with the rows and columns that the taps
//     reach beyond the tile; a tap is a view of it, a shifted start address, since the swizzle acts on absolute
//     shared-memory addresses;
//   F_IM2COL (any stride): the copy engine gathers the tile's pixels for one tap at a time;
//   F_PLANES (with F_IM2COL; 1x1, stride 1): NCHW input as it is, channels by pixels; wgmma takes it transposed;
//   F_FETCH (with F_IM2COL; 1x1, any stride): likewise, of planes or strides that the copy engine does not take; warps
//     bring the pixels, and a tile is of several images;
//   F_TURNED: a halo patch of NCHW input as it is, which the preparing warps turn; they read it themselves,
//     or with F_RAWS from as many buffers that the copy engine fills.
// The operand on the M side of wgmma is the weights, or the pixels with F_SWAP.
//
// 32-bit tensors (F_TF32) take the same way. The matrix units read 19 of an element's 32 bits. F_TF32 1: the copy
// engine rounds on its way, or whoever reads and turns a patch. 2: seven more warps prepare each slot of pixels: they
// round it in place and write what rounding took away (the low parts) to a second buffer, and high x high +
// high x low + low x high makes nearly an fp32 product. The weights come prepared: K rows of high parts, then K of low
// ones.
//
// With F_SPLIT a cluster of that many blocks computes one tile: each sums over its share of the channel blocks, then
// each adds up its share of the tile from all of their shared memories, always in the same order.
//
// The host defines, besides mma(): F_IM2COL F_PLANES F_SWAP F_COOP F_MT (blocks of 64 rows a consumer) F_NB (blocks of F_N
// columns a consumer) F_N F_KB F_TH F_R F_S F_DIL_H F_DIL_W F_SLOTS (of pixels) F_STAGES (of weights) F_RESIDENT
// (weights are loaded once and stay) F_BF16 F_TF32 F_BIAS F_RESIDUAL F_POOL (0, 1 max, 2 average; stride 2)
// F_WINDOW (the pool's: 2 or 3) F_POOL_PAD F_POOL_END_H F_POOL_END_W (its padding: before, below, to the right) F_PLAIN
// (ordinary stores: K is no multiple of 8) F_BULK (stores by the copy engine) F_DIRECT (ordinary stores of whole
// sectors, 32-bit NHWC) F_U (channels a store, with F_SWAP) F_STAGED (stores that there is room for, 0: all of a tile)
// F_V (pixels a store, NCHW) F_RAWS (patches of NCHW) F_RAW_PITCH F_RAW_WHOLE F_RAW_ALIKE (16-bit ones: bytes from a
// channel to the next; whole images; all channels' rows begin alike beside a multiple of 16 bytes) F_PAD_LEFT F_RUN
// (pixels that a thread turns at once) F_STRIDE_H F_STRIDE_W F_TAKEN F_STEP F_ODD (F_FETCH: pixels a load, how far they
// lie apart in a row, pairs of odd images) F_WHOLE (tiles of whole images, stored as the contiguous bytes that they are;
// F_EVEN: whose pairs are aligned) F_ACTIVATION(x, a).
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/element.cuh"
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/ring.cuh"

struct Params {
  const void* bias;
  const void* residual;  // read directly with F_PLAIN
  void* y;               // written directly with F_PLAIN
  int k, p, q;           // output channels, height, width (before pooling)
  int pixels;            // n p q
  int tiles, k_tiles, c_blocks;
  int tiles_w, tiles_h;  // of an image, with halo patches
  int pad_top, pad_left, stride_h, stride_w;
  float slope;
  const void* x;       // NCHW, read without a map: with F_FETCH, F_TURNED in 16 bits or without F_RAWS
  int c, h, w;         // of x
  int step;            // F_FETCH, F_WHOLE: from a tile's first pixel to the next one's
  unsigned per_image;  // F_WHOLE: 2^32 over the pixels of one, rounded up
};

constexpr int kTaps = F_R * F_S;
#define F_PREPARED (F_TF32 == 2 || F_TURNED || F_FETCH)
constexpr int kElement = F_TF32 ? 4 : 2;
constexpr int kRow = F_KB * kElement;  // bytes of one operand row: a pixel's or an output channel's block of channels
constexpr int kConsumers = 2;
constexpr int kSharers = F_COOP ? kConsumers : 1;  // consumers that work on one tile
#if F_SWAP
constexpr int kTileChannels = F_N * F_NB, kTilePixels = 64 * F_MT * kSharers;
#else
constexpr int kTileChannels = 64 * F_MT * kSharers, kTilePixels = F_N * F_NB;
#endif
constexpr int kTileWidth = F_SWAP ? 8 : 8 * F_NB;
// With a horizontal stride the columns that one tap reads lie together: a patch has so many parts.
constexpr int kPhaseWidth = kTileWidth + (F_S - 1) * F_DIL_W / F_STRIDE_W;
constexpr int kPatchWidth = kPhaseWidth * F_STRIDE_W,
              kPatchHeight = (F_TH - 1) * F_STRIDE_H + (F_R - 1) * F_DIL_H + 1;
constexpr int kPixelPitch = F_IM2COL ? 8 * kRow : F_STRIDE_H * kPatchWidth * kRow;  // from 8 pixels to the next 8
constexpr int kPlanesBox = 64 * kRow;                       // F_PLANES, F_FETCH: 64 channels by 64 pixels
constexpr int kSlotBytes = F_FETCH   ? (kTilePixels + 63) / 64 * kPlanesBox
                           : F_IM2COL ? kTilePixels * kRow
                                      : kPatchWidth * kPatchHeight * kRow;
constexpr int kParts = F_TF32 == 2 ? 2 : 1;  // high and low
constexpr int kPartStride = (kSlotBytes + 1023) / 1024 * 1024;
constexpr int kSlotStride = kPartStride * kParts;
constexpr int kStageBytes = kTileChannels * kRow;
constexpr int kStagePartStride = (kStageBytes + 1023) / 1024 * 1024;
constexpr int kStageStride = kStagePartStride * kParts;

#if F_TURNED && F_TF32
// A patch of NCHW: rows of F_KB channels of kRawWidth pixels, from a multiple of 16 bytes on. 16 or 32 pixels where they
// do, swizzled; else a row is an odd number of 16 bytes, so that neighbouring channels lie in other banks.
constexpr int kRawLeft = (F_PAD_LEFT + 3) / 4 * 4, kRawLead = kRawLeft - F_PAD_LEFT;  // pixels
constexpr int kRawPixels = kPatchWidth + kRawLead, kRawSwizzle = kRawPixels <= 16 ? 64 : kRawPixels <= 32 ? 128 : 0;
constexpr int kRawWidth = kRawSwizzle > 0 ? kRawSwizzle / 4 : ((kRawPixels + 3) / 4 | 1) * 4;
constexpr int kRawBytes = kRawWidth * kPatchHeight * kRow;
constexpr int kRawStride = (kRawBytes + 127) / 128 * 128;
#elif F_RAWS > 0
constexpr int kRawStride = (F_KB * F_RAW_PITCH + 127) / 128 * 128;
#else
constexpr int kRawStride = 0;
#endif

// The staging area of one consumer: what its part of a tile stores.
constexpr int kMyChannels = F_SWAP ? kTileChannels : 64 * F_MT;
constexpr int kMyPixels = F_SWAP ? 64 * F_MT : kTilePixels;
// Windows of 3 overlap, and so do the tiles.
constexpr int kPoolWidth = F_POOL ? (kTileWidth - F_WINDOW) / 2 + 1 : kTileWidth;
constexpr int kPoolHeight = F_POOL ? (F_TH - F_WINDOW) / 2 + 1 : F_TH;
constexpr int kStoredPixels = F_POOL ? kPoolWidth * kPoolHeight : kMyPixels;
constexpr int kUnit = F_TF32 ? 32 : F_SWAP ? F_U : 64;  // channels a store
// With F_PLANES a store is of all channels, by 64 pixels.
constexpr int kUnitBytes = F_PLANES ? kMyChannels * 128 : (kStoredPixels * kUnit * kElement + 1023) / 1024 * 1024;
constexpr int kUnits = F_PLANES ? kMyPixels / 64 : kMyChannels / kUnit;
constexpr int kStagedUnits = F_STAGED > 0 ? F_STAGED : kUnits;  // that there is room for: stored in turn
// With F_NCHW and ordinary stores the area has a row a channel, a little longer than its pixels so that rows start in
// other banks.
constexpr int kChannelPitch = kStoredPixels * kElement + 16;
constexpr int kStagingBytes =
    F_PLAIN || (F_TURNED && F_TF32) || F_DIRECT || F_SPLIT > 1
        ? 0
        : ((F_WHOLE             ? kMyChannels * kTilePixels * kElement
            : F_NCHW && !F_BULK ? kMyChannels * kChannelPitch
                                : kUnitBytes * kStagedUnits) +
           1023) /
              1024 * 1024;

struct Barriers {
  unsigned long long slot_full[F_SLOTS], slot_empty[F_SLOTS];
  unsigned long long stage_full[F_STAGES], stage_empty[F_STAGES];
  unsigned long long residual_full[kConsumers];
#if F_PREPARED
  unsigned long long slot_ready[F_SLOTS];
#endif
#if F_RAWS > 0
  unsigned long long raw_full[F_RAWS], raw_empty[F_RAWS];
#endif
};

constexpr int kSmem = F_SLOTS * kSlotStride + F_STAGES * kStageStride + kConsumers * kStagingBytes +
                      F_RAWS * kRawStride + static_cast<int>(sizeof(Barriers));
// With F_PREPARED: those of the producers' that do not produce, and a warpgroup of their own.
[[maybe_unused]] constexpr int kProducers = F_IM2COL || (F_TURNED && F_RAWS == 0) ? 1 : 2,
                               kPrepareWarps = 8 - kProducers;
static_assert(kSmem + 1024 <= 232448, "shared memory");
static_assert(F_SMEM == kSmem + 1024, "the host's count of shared memory");

// From a tile's first pixels to the next one's; and how far outside of the image the first tile begins.
constexpr int kStepWidth = F_POOL ? 2 * kPoolWidth : kTileWidth, kStepHeight = F_POOL ? 2 * kPoolHeight : F_TH;
constexpr int kBefore = F_POOL ? F_POOL_PAD : 0;

struct Tile {
  int k;        // first channel
  int n, h, w;  // image and first output pixel; with F_IM2COL of the flattened pixels
  int first;    // F_IM2COL: the first of the flattened pixels; F_PLANES: of those of image n
};

__device__ __forceinline__ Tile locate(const Params& p, int tile) {
  Tile t;
  t.k = tile % p.k_tiles * kTileChannels;
  const int pixels = tile / p.k_tiles;
#if F_PLANES
  t.n = pixels / p.tiles_w;
  t.first = (pixels - t.n * p.tiles_w) * kTilePixels;
  t.h = t.w = 0;
#elif F_IM2COL
  t.first = pixels * (F_FETCH || F_WHOLE ? p.step : kTilePixels);
  t.n = t.first / (p.p * p.q);
  const int in_image = t.first - t.n * (p.p * p.q);
  t.h = in_image / p.q;
  t.w = in_image - t.h * p.q;
#else
  t.first = 0;
  t.w = pixels % p.tiles_w * kStepWidth - kBefore;
  t.h = pixels / p.tiles_w % p.tiles_h * kStepHeight - kBefore;
  t.n = pixels / (p.tiles_w * p.tiles_h);
#endif
  return t;
}

// What is this block's: tiles, and of a tile the blocks of channels.
struct Work {
  int first_tile, first, end;
};
__device__ __forceinline__ Work work_of(const Params& p) {
#if F_SPLIT > 1
  const int rank = static_cast<int>(cluster_rank());
  return {static_cast<int>(blockIdx.x) / F_SPLIT, rank * p.c_blocks / F_SPLIT, (rank + 1) * p.c_blocks / F_SPLIT};
#else
  return {static_cast<int>(blockIdx.x), 0, p.c_blocks};
#endif
}

#include "kernels/sm90/produce.cuh"
#if F_FETCH
#include "kernels/sm90/fetch.cuh"
#elif F_TURNED && !F_TF32
#include "kernels/sm90/turn.cuh"
#else
#include "kernels/sm90/prepare.cuh"
#endif

constexpr unsigned kSwizzle = kRow == 128 ? 1u : kRow == 64 ? 2u : 3u;

__device__ __forceinline__ unsigned long long descriptor(unsigned low, int pitch) {
  const unsigned high = static_cast<unsigned>(pitch >> 4) | kSwizzle << 30;
  return static_cast<unsigned long long>(high) << 32 | low;
}

using Sums = float[F_MT][F_NB][F_N / 2];

// The products of one tap of one block of channels.
__device__ __forceinline__ void multiply(Sums& sums, unsigned weights, unsigned pixels, int accumulate) {
#pragma unroll
  for (int step = 0; step < kRow / 32; ++step) {
#pragma unroll
    for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
      for (int nb = 0; nb < F_NB; ++nb) {
#if F_SWAP
        constexpr int kPixelBlock = F_IM2COL ? 64 * kRow : 8 * kPixelPitch;
#if F_PLANES
        // Rows are channels: 8 of them make 1024 bytes.
        const unsigned long long a = descriptor((pixels + mt * kPixelBlock + step * 2048) >> 4, 1024);
#else
        const unsigned long long a = descriptor((pixels + mt * kPixelBlock + step * 32) >> 4, kPixelPitch);
#endif
        const unsigned long long b = descriptor((weights + nb * F_N * kRow + step * 32) >> 4, 8 * kRow);
#else
        constexpr int kPixelBlock = F_IM2COL ? F_N * kRow : 8 * kRow;
        const unsigned long long a = descriptor((weights + mt * 64 * kRow + step * 32) >> 4, 8 * kRow);
#if F_PLANES || F_FETCH
        // Rows are channels: 8 of them make 1024 bytes, and the next 64 pixels lie a box further. In a cluster addresses
        // have higher bits.
        const unsigned place = F_SPLIT > 1 ? (pixels + step * 2048) >> 4 & 0x3fff : (pixels + step * 2048) >> 4;
        const unsigned long long b = descriptor(place | (kPlanesBox >> 4) << 16, 1024);
#else
        const unsigned long long b = descriptor((pixels + nb * kPixelBlock + step * 32) >> 4, kPixelPitch);
#endif
#endif
        mma(sums[mt][nb], a, b, step == 0 ? accumulate : 1);
#if F_TF32 == 2
        constexpr int kToLowA = (F_SWAP ? kPartStride : kStagePartStride) >> 4,
                      kToLowB = (F_SWAP ? kStagePartStride : kPartStride) >> 4;
        mma(sums[mt][nb], a + kToLowA, b, 1);
        mma(sums[mt][nb], a, b + kToLowB, 1);
#endif
      }
    }
  }
}

__device__ __forceinline__ void wait_for_slot(Barriers& barriers, const Ring<F_SLOTS>& slot) {
#if !F_TURNED && !(F_FETCH && F_RESIDENT)
  barrier_wait(smem_address(&barriers.slot_full[slot.place]), slot.parity);
#endif
#if F_PREPARED
  barrier_wait(smem_address(&barriers.slot_ready[slot.place]), slot.parity);
#if F_FETCH || (F_TURNED && !F_TF32)
  // Here and not where they wrote: there it would wait for the loads that are under way as well.
  fence_async();
#endif
#endif
}

#include "kernels/sm90/epilogue_common.cuh"
#include "kernels/sm90/overlapping_pool.cuh"
#if F_SPLIT > 1
#include "kernels/sm90/epilogue_split.cuh"
#elif F_TF32
#include "kernels/sm90/epilogue_f32.cuh"
#elif F_PLANES
#include "kernels/sm90/epilogue_planes.cuh"
#elif F_WHOLE
#include "kernels/sm90/epilogue_whole.cuh"
#else
#include "kernels/sm90/epilogue.cuh"
#endif

__device__ __forceinline__ void consume(const TensorMap& y_map, const TensorMap& r_map, const Params& p,
                                        unsigned slots, unsigned stages, unsigned staging, Barriers& barriers,
                                        int consumer) {
  Ring<F_SLOTS> slot;
  Ring<F_STAGES> stage;
  const int thread = threadIdx.x % 128;
  const bool leader = thread == 0;
  unsigned residual_parity = 0;
#if F_COOP
  const int first = 0, step = 1;
#else
  const int first = consumer, step = kConsumers;
  if (consumer == 1) {
    named_arrive(1, 256);  // the other one goes first
    slot.advance(F_IM2COL ? p.c_blocks * kTaps : p.c_blocks);
    stage.advance(p.c_blocks * kTaps);
  }
#endif
#if F_RESIDENT
  barrier_wait(smem_address(&barriers.stage_full[0]), 0);
#endif
  const Work work = work_of(p);
  const unsigned my_weights = F_COOP && !F_SWAP ? consumer * 64 * F_MT * kRow : 0;
  const unsigned my_pixels =
      F_COOP && F_SWAP ? consumer * F_MT * (F_IM2COL ? 64 * kRow : 8 * kPixelPitch) : 0;
  for (int tile = work.first_tile + first * gridDim.x; tile < p.tiles; tile += step * gridDim.x) {
    const Tile t = locate(p, tile);
#if F_RESIDUAL && F_BULK && !F_TF32
    if (leader) load_residual(r_map, t, staging, smem_address(&barriers.residual_full[consumer]), consumer);
#endif
#if !F_COOP
    named_sync(1 + consumer, 256);
#endif
    Sums sums;
    int accumulate = 0;
    unsigned previous_slot = 0, previous_stage = 0;
    for (int block = work.first; block < work.end; ++block) {
#if F_IM2COL
#pragma unroll 1
      for (int tap = 0; tap < kTaps; ++tap) {
        wait_for_slot(barriers, slot);
        const unsigned weights =
            stages + (F_RESIDENT ? block * kTaps + tap : slot.place) * kStageStride + my_weights;
        mma_fence();
        multiply(sums, weights, slots + slot.place * kSlotStride + my_pixels, accumulate);
        mma_commit();
        accumulate = 1;
        mma_wait<1>();
        if (leader && (block != work.first || tap != 0)) barrier_arrive(previous_slot);
        previous_slot = smem_address(&barriers.slot_empty[slot.place]);
        slot.advance();
      }
#else
      wait_for_slot(barriers, slot);
      const unsigned pixels = slots + slot.place * kSlotStride + my_pixels;
#if F_RESIDENT
      mma_fence();
#endif
#pragma unroll F_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) {
        const int column = tap % F_S * F_DIL_W;
        const int in_row = column % F_STRIDE_W * kPhaseWidth + column / F_STRIDE_W;
        const unsigned view = pixels + (tap / F_S * F_DIL_H * kPatchWidth + in_row) * kRow;
#if F_RESIDENT
        multiply(sums, stages + (block * kTaps + tap) * kStageStride + my_weights, view, accumulate);
        accumulate = 1;
      }
      mma_commit();
      mma_wait<1>();
      if (leader && block != work.first) barrier_arrive(previous_slot);
#else
        barrier_wait(smem_address(&barriers.stage_full[stage.place]), stage.parity);
        mma_fence();
        multiply(sums, stages + stage.place * kStageStride + my_weights, view, accumulate);
        mma_commit();
        accumulate = 1;
        mma_wait<1>();
        if (leader) {
          if (block != work.first || tap != 0) barrier_arrive(previous_stage);
          if (tap == 0 && block != work.first) barrier_arrive(previous_slot);
        }
        previous_stage = smem_address(&barriers.stage_empty[stage.place]);
        stage.advance();
      }
#endif
      previous_slot = smem_address(&barriers.slot_empty[slot.place]);
      slot.advance();
#endif
    }
#if !F_COOP
    named_arrive(2 - consumer, 256);
    slot.advance(F_IM2COL ? p.c_blocks * kTaps : p.c_blocks);
    stage.advance(p.c_blocks * kTaps);
#endif
    mma_wait<0>();
    if (leader) {
      barrier_arrive(previous_slot);
      if (!F_IM2COL && !F_RESIDENT) barrier_arrive(previous_stage);
    }
#if F_SPLIT > 1
    finish_split(sums, p, t, slots, consumer, thread);
#else
    finish(sums, y_map, p, t, staging, smem_address(&barriers.residual_full[consumer]), residual_parity, consumer,
           thread);
#endif
  }
}

// Of a thread: those that prepare and produce, and the consumers' with the rest.
#if F_FETCH
constexpr int kOtherRegisters = kFetchRegisters;
#elif F_TURNED && !F_TF32
constexpr int kOtherRegisters = kTurnRegisters;
#else
constexpr int kOtherRegisters = F_TURNED ? (F_RAWS > 0 ? 48 : 80) : F_PREPARED && F_SPLIT > 1 ? 48 : 40;
#endif
constexpr int kConsumerRegisters = F_PREPARED ? 256 - kOtherRegisters : 232;

extern "C" __global__ void __launch_bounds__(F_PREPARED ? 512 : 384, 1)
    implicit_gemm(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w_map,
                  const __grid_constant__ TensorMap y_map, const __grid_constant__ TensorMap r_map,
                  const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned base = (smem_address(memory) + 1023) / 1024 * 1024;
  const unsigned slots = base, stages = slots + F_SLOTS * kSlotStride,
                 staging = stages + F_STAGES * kStageStride, raws = staging + kConsumers * kStagingBytes;
  Barriers& barriers =
      *reinterpret_cast<Barriers*>(memory + (raws + F_RAWS * kRawStride - smem_address(memory)));
  if (threadIdx.x == 0) {
    for (int i = 0; i < F_SLOTS; ++i) {
      barrier_init(smem_address(&barriers.slot_full[i]), 1);
      barrier_init(smem_address(&barriers.slot_empty[i]), kSharers);
#if F_PREPARED
      barrier_init(smem_address(&barriers.slot_ready[i]), kPrepareWarps);
#endif
    }
    for (int i = 0; i < F_STAGES; ++i) {
      barrier_init(smem_address(&barriers.stage_full[i]), 1);
      barrier_init(smem_address(&barriers.stage_empty[i]), kSharers);
    }
    for (int i = 0; i < kConsumers; ++i) barrier_init(smem_address(&barriers.residual_full[i]), 1);
#if F_RAWS > 0
    for (int i = 0; i < F_RAWS; ++i) {
      barrier_init(smem_address(&barriers.raw_full[i]), F_TF32 || F_RAW_WHOLE ? 1 : 32);
      barrier_init(smem_address(&barriers.raw_empty[i]), kPrepareWarps);
    }
#endif
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&w_map);
    prefetch_map(&y_map);
  }
  __syncthreads();
  let_next_kernel_begin();
  wait_for_previous_kernel();
  if (threadIdx.x < 128 || threadIdx.x >= 384) {
    registers_down<kOtherRegisters>();
#if F_IM2COL
    if (threadIdx.x == 0) produce(x_map, w_map, p, slots, stages, barriers);
#elif F_TURNED && F_RAWS == 0
    if (threadIdx.x == 0) produce_weights(w_map, p, stages, barriers);
#elif F_TURNED && !F_TF32
    if (threadIdx.x < 32) produce_raws(p, raws, barriers, threadIdx.x);
    if (threadIdx.x == 32) produce_weights(w_map, p, stages, barriers);
#else
    if (threadIdx.x == 0) produce_patches(x_map, p, F_TURNED ? raws : slots, barriers);
    if (threadIdx.x == 32) produce_weights(w_map, p, stages, barriers);
#endif
#if F_PREPARED
    const int preparer = threadIdx.x - (threadIdx.x < 128 ? kProducers * 32 : 256 + kProducers * 32);
#if F_TURNED && !F_TF32
    if (preparer >= 0) turn(p, slots, raws, barriers, preparer);
#elif F_TURNED
#if F_RAWS > 0
    if (preparer >= 0) prepare(p, slots, raws, barriers, preparer);
#else
    if (preparer >= 0) read_and_turn(p, slots, barriers, preparer);
#endif
#elif F_FETCH
    if (preparer >= 0) fetch(p, slots, barriers, preparer);
#else
    if (preparer >= 0) prepare(p, slots, barriers, preparer);
#endif
#endif
  } else {
    registers_up<kConsumerRegisters>();
    const int consumer = threadIdx.x / 128 - 1;
    consume(y_map, r_map, p, slots, stages, staging + consumer * kStagingBytes, barriers, consumer);
    if (threadIdx.x % 128 == 0) store_wait_read();  // the block's memory must outlive what reads it
  }
}
