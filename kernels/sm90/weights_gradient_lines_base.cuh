// The gradient of the weights on Hopper's matrix units, a row of pixels at a time; horizontal stride 1.
//
//   dw[k][c][r][s] = sum over n, p, j of dy[n][k][p][j - s dilation + pad] x[n][c][p stride + r - pad][j].
//
// A block computes 64 output channels by some input channels by all taps, at most 3 x 3. x lies in shared memory as
// [row][channel][width] (wgmma's K-major B): the channels of as many neighbouring rows as the filter has make one
// instruction's columns. NCHW lies so, but the bulk copy engine takes starts at a multiple of 16 bytes alone; so x stays
// where it is, and dy is what is shifted: its rows come one by one and are read into registers (wgmma's A) at whatever
// pixel a tap needs. Each column of taps has a warpgroup of its own; two warps bring the operands.
//
// 32-bit elements are rounded to tf32 as they are loaded; or, with kConfig.parts 2, taken as a high and a low part,
// high x high + high x low + low x high, and a row's sums, which the matrix units cut, are added up by themselves. Of
// NHWC x is turned. Two more warps (weights_gradient_prepare.cuh) turn it and write the low parts.
//
// The host defines F_CONFIG (statements that fill in a Config c, weights_gradient_config.h) and mma(sums, a, b, accumulate).
#pragma once
#include "kernels/sm90/copy_engine.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/ring.cuh"
#include "kernels/sm90/weights_gradient_common.cuh"
#include "kernels/sm90/weights_gradient_lines_tile.cuh"

using Sums = float[kColumns / 2];

struct Barriers {
  unsigned long long x_full[kStages], x_empty[kStages];
  unsigned long long dy_full[kLines], dy_empty[kLines];
  unsigned long long landed[kStages][kLandings];  // what is made ready is there
};
static_assert(sizeof(Barriers) <= barrier_bytes(kConfig), "room for the barriers");

// Of a tile's rows those that dy has.
__device__ __forceinline__ int rows_of(const Params& p, const Pixel& first) {
  return kConfig.height < p.p - first.h ? kConfig.height : p.p - first.h;
}

__device__ __forceinline__ void produce_x(const TensorMap& map, const Params& p, const Work& work, unsigned stages,
                                          Barriers& barriers) {
  Ring<kStages> stage;
#pragma unroll 1
  for (int tile = work.first; tile < work.end; ++tile) {
    const Pixel first = first_pixel(p, tile);
    const int h = first.h * kConfig.stride_h - p.pad_top;
    const unsigned to = stages + stage.place * kStageStride;
    barrier_wait(smem_address(&barriers.x_empty[stage.place]), stage.parity ^ 1);
    if constexpr (kTurns) {
#pragma unroll 1
      for (int row = 0; row < kPatchHeight; ++row) {
        const unsigned full = smem_address(&barriers.landed[stage.place][row]);
        barrier_expect(full, kPlanesBytes);
        for (int c = 0; c < kChannels; c += 32)
          load_4d(to + row * kPlanesBytes + c * kRow, &map, full, work.c + c, first.w, h + row, first.n);
      }
    } else {
      const unsigned full = smem_address(kPrepares ? &barriers.landed[stage.place][0] : &barriers.x_full[stage.place]);
      barrier_expect(full, kPatchBytes);
      load_4d(to, &map, full, first.w, work.c, h, first.n);
    }
    stage.advance();
  }
}
