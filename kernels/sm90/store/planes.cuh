// From a consumer's sums to planes of NCHW: bias, residual, activation, then through a swizzled staging area
// to the bulk copy engine, which leaves out what lies outside of an image.
//
// The area is of units of 64 pixels, a row of 128 bytes a channel.
#pragma once
#include "kernels/sm90/store/area.cuh"
#include "kernels/sm90/store/matrices.cuh"

// Where 8 pixels, 16 bytes, of a channel lie: the copy engine's swizzle.
__device__ __forceinline__ unsigned staged(int channel, int group) {
  return group / 8 * kUnitBytes + channel * 128 + (((group ^ channel) & 7) << 4);
}

struct Results {
  static constexpr bool kBringsResidual = kResidual;

  static __device__ __forceinline__ void load_residual(const TensorMap& map, const Tile& t, unsigned staging,
                                                       unsigned barrier, int consumer) {
    expect_residual(barrier);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      load_3d(staging + unit * kUnitBytes, &map, barrier, t.first + my_first_pixel(consumer) + unit * 64,
              my_first_channel(t, consumer), t.n);
    }
  }

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap& y_map, const Params& p,
                                                const Tile& t, unsigned staging, unsigned residual_full,
                                                unsigned residual_parity, int consumer, int thread) {
    const int warp = thread / 32, lane = thread % 32;
    wait_for_area(residual_full, residual_parity, consumer, thread);
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
      RowBias of_rows = {};
      if constexpr (!kPixelsOnM)
        of_rows = row_bias(p, my_first_channel(t, consumer) + mt * 64 + warp * 16 + lane / 4);
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        const PlanesRow mine(mt, i, warp, lane);
        const unsigned address = staging + staged(mine.channel, mine.pixels);
        unsigned r[4] = {};
        if constexpr (kResidual && kPixelsOnM) load_matrices_transposed(address, r[0], r[1], r[2], r[3]);
        if constexpr (kResidual && !kPixelsOnM) load_matrices(address, r[0], r[1], r[2], r[3]);
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          OfChannel bias[2] = {of_rows.of[m & 1], of_rows.of[m & 1]};
          if constexpr (kPixelsOnM && kOfChannel) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const int k = t.k + (i + further(i, m)) * 8 + lane % 4 * 2 + j;
              bias[j] = load_bias(p, k);
            }
          }
          out[m] = finish_pair(sums_of(sums[mt][0], i, m), bias[0], bias[1], low(r[m]), high(r[m]), p.slope);
        }
        store_planes_rows(address, out);
#pragma unroll
        for (int m = 0; m < 4; ++m) keep_stored(sums_of(sums[mt][0], i, m), out[m]);
      }
    }
    fence_async();
    named_sync(3 + consumer, 128);
    if (thread == 0) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) store_plane(y_map, p, t, staging, unit, consumer);
      store_commit();
    }
  }

 private:
  static __device__ __forceinline__ void store_plane(const TensorMap& map, const Params& p, const Tile& t,
                                                     unsigned staging, int unit, int consumer) {
    const int pixel = t.first + my_first_pixel(consumer) + unit * 64;
    if (pixel < p.p * p.q) {
      store_3d(&map, staging + unit * kUnitBytes, pixel, my_first_channel(t, consumer), t.n);
    }
  }
};
