// From a consumer's sums to the output: bias, residual, activation, pool, then through a swizzled staging area to
// the bulk copy engine; or, with F_PLAIN, by ordinary stores. Part of implicit_gemm.cu.
//
// A thread holds, of a block of 64 rows by F_N columns: rows 16 warp + lane/4 and 8 further; of every 8 columns the
// two from 2 (lane % 4) on.
#pragma once

// Where in a unit of the staging area 16 bytes (8 channels) of a pixel lie: the copy engine's swizzle.
__device__ __forceinline__ unsigned staged(int pixel, int chunk) {
  const int line = pixel * (kUnit * 2) >> 7;
  return pixel * (kUnit * 2) + ((chunk ^ (line & (kUnit / 8 - 1))) << 4);
}

#if F_RESIDUAL && F_BULK
__device__ __forceinline__ void load_residual(const TensorMap& map, const Tile& t, unsigned staging,
                                              unsigned barrier, int consumer) {
  store_wait_read();
  barrier_expect(barrier, kUnitBytes * kUnits);
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const int k = t.k + (F_COOP && !F_SWAP ? consumer * kMyChannels : 0) + unit * kUnit;
#if F_IM2COL
    load_2d(staging + unit * kUnitBytes, &map, barrier, k, t.first + (F_COOP && F_SWAP ? consumer * kMyPixels : 0));
#else
    const int h = t.h + (F_COOP && F_SWAP ? consumer * 8 * F_MT : 0);
    load_4d(staging + unit * kUnitBytes, &map, barrier, k, t.w, h, t.n);
#endif
  }
}
#endif

#if !F_PLAIN

#if F_NCHW
// Weights on M: a row of sums is a channel, as the output wants it.
__device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t,
                                       unsigned staging, unsigned, unsigned&, int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  const int matrix = lane / 8, row = lane % 8;
  const int k0 = t.k + (F_COOP ? consumer * kMyChannels : 0);
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
    const int channel = mt * 64 + warp * 16 + lane / 4, k = k0 + channel;
    const float bias[2] = {F_BIAS && k < p.k ? load_element(p.bias, k) : 0.0f,
                           F_BIAS && k + 8 < p.k ? load_element(p.bias, k + 8) : 0.0f};
#if F_POOL && F_WINDOW == 3
    pool_overlapping(sums, p, t, mt, bias, thread, [&](int in_block, int pixel, float value) {
      store_shared_16(staging + (mt * 64 + in_block) * kChannelPitch + pixel * 2, pack(value, 0.0f));
    });
#endif
#pragma unroll
    for (int nb = 0; nb < F_NB; ++nb) {
#if F_POOL && F_WINDOW == 2
#pragma unroll
      for (int i = 0; i < F_N / 8; i += 2) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* s = &sums[mt][nb][i * 4 + half * 2];
          const float value = pooled(finish_value(s[0], bias[half], 0.0f, p.slope),
                                     finish_value(s[1], bias[half], 0.0f, p.slope),
                                     finish_value(s[4], bias[half], 0.0f, p.slope),
                                     finish_value(s[5], bias[half], 0.0f, p.slope));
          const int pixel = i / 2 * (4 * F_NB) + nb * 4 + lane % 4;
          store_shared_16(staging + (channel + half * 8) * kChannelPitch + pixel * 2, pack(value, 0.0f));
        }
      }
#elif !F_POOL
#pragma unroll
      for (int i = 0; i < F_N / 8; i += 2) {
        const int next = i + 1 < F_N / 8 ? 1 : 0;  // an odd count writes its last matrices twice
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const int group = i + (m >> 1) * next;
          const float* s = &sums[mt][nb][group * 4 + (m & 1) * 2];
          float residual[2] = {};
          if (F_RESIDUAL) {
            const int pixel = (F_IM2COL ? nb * F_N + group * 8 : (group * F_NB + nb) * 8) + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const long long at = locate_output(p, t, k + (m & 1) * 8, pixel + j, false);
              residual[j] = at >= 0 ? load_element(p.residual, at) : 0.0f;
            }
          }
          out[m] = pack(finish_value(s[0], bias[m & 1], residual[0], p.slope),
                        finish_value(s[1], bias[m & 1], residual[1], p.slope));
        }
        const int group = i + (matrix >> 1) * next;
        const int pixel = F_IM2COL ? nb * F_N + group * 8 : (group * F_NB + nb) * 8;
        const int staged_channel = mt * 64 + warp * 16 + (matrix & 1) * 8 + row;
        store_matrices(staging + staged_channel * kChannelPitch + pixel * 2, out[0], out[1], out[2], out[3]);
      }
#endif
    }
  }
  named_sync(3 + consumer, 128);
  store_rows(p, t, k0, staging, thread);
  named_sync(3 + consumer, 128);
}

#else

__device__ __forceinline__ void finish(Sums& sums, const TensorMap& y_map, const Params& p, const Tile& t,
                                       unsigned staging, unsigned residual_full, unsigned& residual_parity,
                                       int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  const int matrix = lane / 8, row = lane % 8;  // whose row's address this lane gives
#if F_RESIDUAL
  barrier_wait(residual_full, residual_parity);
  residual_parity ^= 1;
#else
  if (thread == 0) store_wait_read();
  named_sync(3 + consumer, 128);
#endif
#if F_SWAP
#pragma unroll
  for (int nb = 0; nb < F_NB; ++nb) {
#pragma unroll
    for (int i = 0; i < F_N / 8; i += 2) {
      const int next = i + 1 < F_N / 8 ? 1 : 0;  // an odd count writes its last matrices twice, alike
      float bias[4] = {};
      if (F_BIAS) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int k = t.k + nb * F_N + (i + j / 2 * next) * 8 + lane % 4 * 2 + j % 2;
          bias[j] = k < p.k ? load_element(p.bias, k) : 0.0f;
        }
      }
      const int chunk = nb * (F_N / 8) + i + (matrix >> 1) * next;
      [[maybe_unused]] const int unit = (nb * (F_N / 8) + i) / (kUnit / 8), in_unit = i % (kUnit / 8);
      if (F_STAGED > 0 && unit >= kStagedUnits && in_unit == 0) {
        if (thread == 0) store_wait_read<kStagedUnits - 1>();
        named_sync(3 + consumer, 128);
      }
#pragma unroll
      for (int mt = 0; mt < F_MT; ++mt) {
        const int pixel = mt * 64 + warp * 16 + (matrix & 1) * 8 + row;
        const unsigned address =
            staging + chunk / (kUnit / 8) % kStagedUnits * kUnitBytes + staged(pixel, chunk % (kUnit / 8));
        unsigned r[4] = {};
#if F_RESIDUAL
        load_matrices(address, r[0], r[1], r[2], r[3]);
#endif
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const float* s = &sums[mt][nb][(i + (m >> 1) * next) * 4 + (m & 1) * 2];
          out[m] = pack(finish_value(s[0], bias[(m >> 1) * 2], low(r[m]), p.slope),
                        finish_value(s[1], bias[(m >> 1) * 2 + 1], high(r[m]), p.slope));
        }
        store_matrices(address, out[0], out[1], out[2], out[3]);
      }
      if (F_STAGED > 0 && in_unit + 2 == kUnit / 8) {
        fence_async();
        named_sync(3 + consumer, 128);
        if (thread == 0) {
          store_unit(y_map, t, staging, unit, consumer);
          store_commit();
        }
      }
    }
  }
  if (F_STAGED > 0) return;
#else
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
    const int k = t.k + (F_COOP ? consumer * kMyChannels : 0) + mt * 64 + warp * 16 + lane / 4;
    const float bias[2] = {F_BIAS && k < p.k ? load_element(p.bias, k) : 0.0f,
                           F_BIAS && k + 8 < p.k ? load_element(p.bias, k + 8) : 0.0f};
    const int chunk = warp * 2 + (matrix & 1);
#if F_POOL && F_WINDOW == 3
    pool_overlapping(sums, p, t, mt, bias, thread, [&](int in_block, int pixel, float value) {
      store_shared_16(staging + mt * kUnitBytes + staged(pixel, in_block / 8) + in_block % 8 * 2, pack(value, 0.0f));
    });
#endif
#pragma unroll
    for (int nb = 0; nb < F_NB; ++nb) {
#if F_POOL && F_WINDOW == 2
      // Four rows of 8 pixels make two rows of 4: as matrices, column 2 x + y is pixel x of row y.
#pragma unroll
      for (int i = 0; i < F_N / 8; i += 8) {
        const int further = i + 4 < F_N / 8 ? 4 : 0;
        const int pixel = ((i + (matrix >> 1) * further) / 2 + row % 2) * (4 * F_NB) + nb * 4 + row / 2;
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          float v[2];
#pragma unroll
          for (int y = 0; y < 2; ++y) {
            const float* s = &sums[mt][nb][(i + (m >> 1) * further + 2 * y) * 4 + (m & 1) * 2];
            v[y] = pooled(finish_value(s[0], bias[m & 1], 0.0f, p.slope),
                          finish_value(s[1], bias[m & 1], 0.0f, p.slope),
                          finish_value(s[4], bias[m & 1], 0.0f, p.slope),
                          finish_value(s[5], bias[m & 1], 0.0f, p.slope));
          }
          out[m] = pack(v[0], v[1]);
        }
        store_matrices_transposed(staging + mt * kUnitBytes + staged(pixel, chunk), out[0], out[1], out[2],
                                  out[3]);
      }
#elif !F_POOL
#pragma unroll
      for (int i = 0; i < F_N / 8; i += 2) {
        const int next = i + 1 < F_N / 8 ? 1 : 0;  // an odd count writes its last matrices twice
        const int group = i + (matrix >> 1) * next;
        const int pixel = F_IM2COL ? nb * F_N + group * 8 + row : (group * F_NB + nb) * 8 + row;
        const unsigned address = staging + mt * kUnitBytes + staged(pixel, chunk);
        unsigned r[4] = {};
#if F_RESIDUAL
        load_matrices_transposed(address, r[0], r[1], r[2], r[3]);
#endif
        unsigned out[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const float* s = &sums[mt][nb][(i + (m >> 1) * next) * 4 + (m & 1) * 2];
          out[m] = pack(finish_value(s[0], bias[m & 1], low(r[m]), p.slope),
                        finish_value(s[1], bias[m & 1], high(r[m]), p.slope));
        }
        store_matrices_transposed(address, out[0], out[1], out[2], out[3]);
      }
#endif
    }
  }
#endif
  fence_async();
  named_sync(3 + consumer, 128);
  if (thread == 0) {
    store_tile(y_map, t, staging, consumer);
    store_commit();
  }
}

#endif
#endif
