// From a consumer's sums to 16-bit NHWC: bias, residual, activation, pool, then through a swizzled staging
// area to the bulk copy engine, which brings a residual into the same places.
#pragma once
#include "kernels/sm90/store/area.cuh"
#include "kernels/sm90/store/matrices.cuh"
#include "kernels/sm90/store/overlapping_pool.cuh"

// Where in a unit of the staging area 16 bytes (8 channels) of a pixel lie: the copy engine's swizzle.
__device__ __forceinline__ unsigned staged(int pixel, int chunk) {
  const int line = pixel * (kUnit * 2) >> 7;
  return pixel * (kUnit * 2) + ((chunk ^ (line & (kUnit / 8 - 1))) << 4);
}

struct Results {
  static constexpr bool kBringsResidual = kResidual;
  static constexpr bool kUnitsInTurn = kStagedUnits < kUnits;

  static __device__ __forceinline__ void load_residual(const TensorMap& map, const Tile& t, unsigned staging,
                                                       unsigned barrier, int consumer) {
    expect_residual(barrier);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int k = my_first_channel(t, consumer) + unit * kUnit;
      if constexpr (kFlat) {
        load_2d(staging + unit * kUnitBytes, &map, barrier, k, t.first + my_first_pixel(consumer));
      } else {
        const int h = t.h + (kCooperative && kPixelsOnM ? consumer * 8 * kMBlocks : 0);
        load_4d(staging + unit * kUnitBytes, &map, barrier, k, t.w, h, t.n);
      }
    }
  }

  static __device__ __forceinline__ void finish(Sums& sums, const TensorMap& y_map, const Params& p,
                                                const Tile& t, unsigned staging, unsigned residual_full,
                                                unsigned residual_parity, int consumer, int thread) {
    wait_for_area(residual_full, residual_parity, consumer, thread);
    if constexpr (kPixelsOnM) {
      put_pixels(sums, y_map, p, t, staging, consumer, thread);
      if constexpr (kUnitsInTurn) return;
    } else {
      put_channels(sums, p, t, staging, consumer, thread);
    }
    fence_async();
    named_sync(3 + consumer, 128);
    if (thread == 0) {
      store_tile(y_map, t, staging, consumer);
      store_commit();
    }
  }

 private:
  static __device__ __forceinline__ void put_pixels(Sums& sums, const TensorMap& y_map, const Params& p,
                                                    const Tile& t, unsigned staging, int consumer,
                                                    int thread) {
    const int warp = thread / 32, lane = thread % 32;
    const int matrix = lane / 8, row = lane % 8;  // whose row's address this lane gives
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        OfChannel bias[4] = {};
        if constexpr (kOfChannel) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int k = t.k + nb * kN + (i + further(i, j)) * 8 + lane % 4 * 2 + j % 2;
            bias[j] = load_bias(p, k);
          }
        }
        const int chunk = nb * (kN / 8) + i + further(i, matrix);
        [[maybe_unused]] const int unit = (nb * (kN / 8) + i) / (kUnit / 8), in_unit = i % (kUnit / 8);
        if (kUnitsInTurn && unit >= kStagedUnits && in_unit == 0) {
          if (thread == 0) store_wait_read<kStagedUnits - 1>();
          named_sync(3 + consumer, 128);
        }
#pragma unroll
        for (int mt = 0; mt < kMBlocks; ++mt) {
          const int pixel = mt * 64 + warp * 16 + (matrix & 1) * 8 + row;
          const unsigned address =
              staging + chunk / (kUnit / 8) % kStagedUnits * kUnitBytes + staged(pixel, chunk % (kUnit / 8));
          unsigned r[4] = {};
          if constexpr (kResidual) load_matrices(address, r[0], r[1], r[2], r[3]);
          unsigned out[4];
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            out[m] = finish_pair(sums_of(sums[mt][nb], i, m), bias[(m >> 1) * 2], bias[(m >> 1) * 2 + 1], low(r[m]),
                                 high(r[m]), p.slope);
          }
          store_matrices(address, out[0], out[1], out[2], out[3]);
#pragma unroll
          for (int m = 0; m < 4; ++m) keep_stored(sums_of(sums[mt][nb], i, m), out[m]);
        }
        if (kUnitsInTurn && in_unit + 2 == kUnit / 8) {
          fence_async();
          named_sync(3 + consumer, 128);
          if (thread == 0) {
            store_unit(y_map, t, staging, unit, consumer);
            store_commit();
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void put_channels(Sums& sums, const Params& p, const Tile& t,
                                                      unsigned staging, int consumer, int thread) {
    const int warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int mt = 0; mt < kMBlocks; ++mt) {
      const RowBias bias = row_bias(p, my_first_channel(t, consumer) + mt * 64 + warp * 16 + lane / 4);
      const unsigned unit = staging + mt * kUnitBytes;
      if constexpr (kWindow == 3) {
        pool_overlapping(sums, p, t, mt, bias.of, thread, [&](int in_block, int pixel, float value) {
          store_shared_16(unit + staged(pixel, in_block / 8) + in_block % 8 * 2, pack(value, 0.0f));
        });
      } else if constexpr (kWindow == 2) {
        put_pooled(sums, p, mt, bias, unit, warp, lane);
      } else {
        put(sums, p, mt, bias, unit, warp, lane);
      }
    }
  }

  // Four rows of 8 pixels make two rows of 4: as matrices, column 2 x + y is pixel x of row y.
  static __device__ __forceinline__ void put_pooled(Sums& sums, const Params& p, int mt, const RowBias& bias,
                                                    unsigned unit, int warp, int lane) {
    const int matrix = lane / 8, row = lane % 8, chunk = warp * 2 + (matrix & 1);
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 8) {
        const int further = i + 4 < kN / 8 ? 4 : 0;
        const int pixel = ((i + (matrix >> 1) * further) / 2 + row % 2) * (4 * kNBlocks) + nb * 4 + row / 2;
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          float v[2];
#pragma unroll
          for (int y = 0; y < 2; ++y) {
            v[y] = pool_sums(&sums[mt][nb][(i + (m >> 1) * further + 2 * y) * 4 + (m & 1) * 2],
                             bias.of[m & 1], p);
          }
          out[m] = pack(v[0], v[1]);
        }
        store_matrices_transposed(unit + staged(pixel, chunk), out[0], out[1], out[2], out[3]);
      }
    }
  }

  static __device__ __forceinline__ void put(Sums& sums, const Params& p, int mt, const RowBias& bias,
                                             unsigned unit, int warp, int lane) {
    const int matrix = lane / 8, row = lane % 8, chunk = warp * 2 + (matrix & 1);
#pragma unroll
    for (int nb = 0; nb < kNBlocks; ++nb) {
#pragma unroll
      for (int i = 0; i < kN / 8; i += 2) {
        const int pixel = pixel_of(nb, i + further(i, matrix)) + row;
        const unsigned address = unit + staged(pixel, chunk);
        unsigned r[4] = {};
        if constexpr (kResidual) load_matrices_transposed(address, r[0], r[1], r[2], r[3]);
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const OfChannel of = bias.of[m & 1];
          out[m] = finish_pair(sums_of(sums[mt][nb], i, m), of, of, low(r[m]), high(r[m]), p.slope);
        }
        store_matrices_transposed(address, out[0], out[1], out[2], out[3]);
#pragma unroll
        for (int m = 0; m < 4; ++m) keep_stored(sums_of(sums[mt][nb], i, m), out[m]);
      }
    }
  }
};
