// The gradient of the weights on Hopper's matrix units, 16-bit tensors in NHWC (of 1x1 filters in NCHW, too): a sum
// over pixels,
//
//   dw[k][r][s][c] = sum over n, p, q of dy[n][p][q][k] x[n][p stride + r dilation - pad][q stride + ...][c].
//
// A block computes 64 (or more) output channels by some input channels by all of a filter's taps, up to 3 x 3 of them,
// and sums over its share of the tiles of output pixels. Of each tile the bulk copy engine brings dy, and x as one
// halo patch with what the taps reach beyond it: a tap is a view of the patch, a shifted start address. Both operands
// are as the tensors have them, a row a pixel (what wgmma calls MN-major). The taps of one row of the filter lie side
// by side in the patch, so that one instruction takes them all: its leading offset goes from a tap to the next.
// Each row of taps, and each 64 output channels, has a warpgroup of its own; one more warp brings the operands.
//
// Of NCHW (Kind::planes) a row is a channel, which has 64 pixels: what wgmma calls K-major.
//
// With a horizontal stride the patch is so many parts (phases), each with the columns that one or more taps read.
//
// A block's sums are the result (Result::whole), or one of several parts that weights_gradient_sum.cu adds up in a fixed
// order. The two blocks of a cluster have the same results' parts and add them up first, half of them each.
//
// Or two blocks, of neighbouring output or input channels, are a pair (kConfig.pair) and bring half of what both multiply
// each: the copy engine writes it to the same place of both. A buffer is free when both have read it.
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h) and mma(sums, a, b, accumulate) for as many sums as the tile needs.
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/elected.cuh"
#include "kernels/sm90/weights_gradient_products.cuh"

// To this block, or to both of a pair.
template <bool kBoth>
__device__ __forceinline__ void load(unsigned to, const TensorMap* map, unsigned barrier, int c0, int c1, int c2,
                                     int c3) {
  if constexpr (kBoth) {
    load_4d_multicast(to, map, barrier, 3, c0, c1, c2, c3);
  } else {
    load_4d(to, map, barrier, c0, c1, c2, c3);
  }
}

// Blocks of channels that lie `pitch` bytes apart, from a pixel on: the maps have images first where they lie together.
template <bool kBoth, int kBlocks>
__device__ __forceinline__ void load_blocks(unsigned to, int pitch, const TensorMap* map, unsigned barrier, int channel,
                                            int channels, int w, int h, int n) {
  const int c1 = kTogether > 1 ? n : w, c2 = kTogether > 1 ? w : h, c3 = kTogether > 1 ? h : n;
  if constexpr (kConfig.boxes_of_blocks) {
    if constexpr (kBoth) {
      load_5d_multicast(to, map, barrier, 3, 0, c1, c2, c3, channel / 64);
    } else {
      load_5d(to, map, barrier, 0, c1, c2, c3, channel / 64);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) load<kBoth>(to + i * pitch, map, barrier, channel + i * channels, c1, c2, c3);
  }
}

__device__ __forceinline__ void produce(const TensorMap& x_map, const TensorMap& dy_map, const Params& p,
                                        const Work& work, unsigned stages, Barriers& barriers) {
  Ring<kStages> stage;
  // Of what a pair shares this block brings its half: of the blocks of channels, or of the pixels.
  constexpr bool kSharesX = kConfig.pair == Pair::x, kSharesDy = kConfig.pair == Pair::dy;
  constexpr int kXBlocks = halved_blocks(kConfig.c_blocks, kSharesX);
  constexpr int kDyBlocks = halved_blocks(kConfig.k_blocks, kSharesDy);
  const int x_half = kSharesX ? static_cast<int>(cluster_rank()) : 0;
  const int dy_half = kSharesDy ? static_cast<int>(cluster_rank()) : 0;
  Pixel first = first_pixel(p, work.first);
#pragma unroll 1
  for (int tile = work.first; tile < work.end; ++tile, first = next_pixel(p, first)) {
    const unsigned full = smem_address(&barriers.full[stage.place]), to = stages + stage.place * kStageStride;
    barrier_wait(smem_address(&barriers.empty[stage.place]), stage.parity ^ 1);
    barrier_expect(full, kStageBytes);
    if constexpr (kPlanes) {
      const unsigned x = to + kConfig.k_blocks * kGradientBytes;
      const int dy_row = dy_half * kConfig.k_blocks * 32, x_row = x_half * kConfig.c_blocks * 32;
      for (int i = 0; i < kConfig.width / 64; ++i) {
        load<kSharesDy>(to + i * kConfig.k_blocks * kPlanesBox + dy_row * 128, &dy_map, full,
                                       first.w + i * 64, work.k + dy_row, first.n, 0);
        load<kSharesX>(x + i * kConfig.c_blocks * kPlanesBox + x_row * 128, &x_map, full,
                                      first.w + i * 64, work.c + x_row, first.n, 0);
      }
      stage.advance();
      continue;
    }
    const int dy_pixel = kDyBlocks == kConfig.k_blocks ? dy_half * kConfig.width / 2 : 0;
    const int x_pixel = kXBlocks == kConfig.c_blocks ? x_half * kConfig.width / 2 : 0;
    const int dy_block = kDyBlocks == kConfig.k_blocks ? 0 : dy_half * kDyBlocks;
    const int x_block = kXBlocks == kConfig.c_blocks ? 0 : x_half * kXBlocks;
    load_blocks<kSharesDy, kDyBlocks>(to + dy_block * kGradientBytes + dy_pixel * 128, kGradientBytes, &dy_map, full,
                                      work.k + dy_block * kOutChannels, kOutChannels, first.w + dy_pixel, first.h,
                                      first.n);
    const int x_h = first.h * kConfig.stride_h + work.r * kConfig.dilation_h - p.pad_top;
    const int x_w = first.w * kConfig.stride_w + work.s * kConfig.dilation_w - p.pad_left + x_pixel;
    const unsigned x = to + kConfig.k_blocks * kGradientBytes + x_block * kPhases * kPatchStride + x_pixel * kRow;
    for (int phase = 0; phase < kPhases; ++phase) {
      load_blocks<kSharesX, kXBlocks>(x + phase * kPatchStride, kPhases * kPatchStride, &x_map, full,
                                      work.c + x_block * kChannels, kChannels, x_w + phase * kConfig.dilation_w, x_h,
                                      first.n);
    }
    stage.advance();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    weights_gradient(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap dy_map,
                     const __grid_constant__ Params p) {
  extern __shared__ unsigned char memory[];
  const unsigned stages = stages_in(memory);
  Barriers& barriers = barriers_in(memory, stages);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(smem_address(&barriers.full[i]), 1);
      barrier_init(smem_address(&barriers.empty[i]), kConsumers * (kPaired ? 2 : 1));
    }
    init_join(stages);
    barrier_init_fence();
    prefetch_map(&x_map);
    prefetch_map(&dy_map);
  }
  barriers_are_there<(kPaired || kCluster > 1)>();
  let_next_kernel_begin();
  const Work work = divide_work(p);
  wait_for_previous_kernel();
  const int consumer = static_cast<int>(threadIdx.x) / 128;
  if (consumer == kConsumers) {
    if (elected()) produce(x_map, dy_map, p, work, stages, barriers);
  } else {
    Sums sums;
    consume(sums, work, stages, barriers, consumer);
    finish(sums, p, work, stages, consumer);
  }
}
