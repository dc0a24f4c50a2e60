// From a consumer's sums to planes of NCHW: bias, residual, activation, then through a swizzled staging area
// to the bulk copy engine, which leaves out what lies outside of an image.
//
// The area is of units of 64 pixels, a row of 128 bytes a channel. A thread holds, of a block of 64 rows by
// kN columns: rows 16 warp + lane/4 and 8 further; of every 8 columns the two from 2 (lane % 4) on.
#pragma once
#include "kernels/sm90/store/area.cuh"

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
    const int matrix = lane / 8, row = lane % 8;  // whose row's address this lane gives
    wait_for_area(residual_full, residual_parity, consumer, thread);
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
      RowBias of_rows = {};
      if constexpr (!kPixelsOnM)
        of_rows = row_bias(p, my_first_channel(t, consumer) + mt * 64 + warp * 16 + lane / 4);
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        const int next = i + 1 < kN / 8 ? 1 : 0;  // an odd count writes its last matrices twice, alike
        const int group = i + (matrix >> 1) * next, block = mt * 8 + warp * 2 + (matrix & 1);
        // Of a matrix's two sides one is 8 pixels; of the other, channels, each lane has one.
        const int pixels = kPixelsOnM ? block : group, channel = (kPixelsOnM ? group : block) * 8 + row;
        const unsigned address = staging + staged(channel, pixels);
        unsigned r[4] = {};
        if constexpr (kResidual && kPixelsOnM) load_matrices_transposed(address, r[0], r[1], r[2], r[3]);
        if constexpr (kResidual && !kPixelsOnM) load_matrices(address, r[0], r[1], r[2], r[3]);
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const int column = i + (m >> 1) * next;
          OfChannel bias[2] = {of_rows.of[m & 1], of_rows.of[m & 1]};
          if constexpr (kPixelsOnM && kOfChannel) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const int k = t.k + column * 8 + lane % 4 * 2 + j;
              bias[j] = load_bias(p, k);
            }
          }
          const float* s = &sums[mt][0][column * 4 + (m & 1) * 2];
          out[m] = pack(finish_value(s[0], bias[0], low(r[m]), p.slope),
                        finish_value(s[1], bias[1], high(r[m]), p.slope));
        }
        if constexpr (kPixelsOnM) {
          store_matrices_transposed(address, out[0], out[1], out[2], out[3]);
        } else {
          store_matrices(address, out[0], out[1], out[2], out[3]);
        }
#pragma unroll
        for (int m = 0; m < 4; ++m) keep_stored(&sums[mt][0][(i + (m >> 1) * next) * 4 + (m & 1) * 2], out[m]);
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
