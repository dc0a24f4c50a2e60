// As epilogue.cuh, for 32-bit tensors: no matrix stores, a value at a time through the staging area.
#pragma once

#if F_TURNED
// By ordinary stores: the two pixels that a thread holds of eight make 8 bytes, four threads a sector.
__device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t, unsigned, unsigned,
                                       unsigned&, int consumer, int thread) {
  constexpr int kShrink = F_POOL ? 2 : 1;
  const int warp = thread / 32, lane = thread % 32;
  const int k0 = t.k + (F_COOP ? consumer * kMyChannels : 0) + warp * 16 + lane / 4;
  const int w = t.w + lane % 4 * 2, height = p.p / kShrink, width = p.q / kShrink;
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + mt * 64 + half * 8;
      if (k >= p.k) continue;
      const float bias = F_BIAS ? load_element(p.bias, k) : 0.0f;
      const long long first =
          ((static_cast<long long>(t.n) * p.k + k) * height + t.h / kShrink) * width + w / kShrink;
      float* const y = static_cast<float*>(p.y) + first;
      [[maybe_unused]] const float* const residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
      for (int i = 0; i < F_N / 8; i += kShrink) {
        if (t.h / kShrink + i / kShrink >= height) break;
#pragma unroll
        for (int nb = 0; nb < F_NB; ++nb) {
          const float* s = &sums[mt][nb][i * 4 + half * 2];
          const int at = i / kShrink * width + nb * 8 / kShrink;
#if F_POOL
          if (w / 2 + nb * 4 < width) {
            y[at] = pooled(finish_value(s[0], bias, 0.0f, p.slope), finish_value(s[1], bias, 0.0f, p.slope),
                           finish_value(s[4], bias, 0.0f, p.slope), finish_value(s[5], bias, 0.0f, p.slope));
          }
#else
          if (w + nb * 8 >= width) continue;
#if F_V > 1
          const float2 r = F_RESIDUAL ? *reinterpret_cast<const float2*>(residual + at) : float2{0.0f, 0.0f};
          *reinterpret_cast<float2*>(y + at) =
              float2{finish_value(s[0], bias, r.x, p.slope), finish_value(s[1], bias, r.y, p.slope)};
#else
          y[at] = finish_value(s[0], bias, F_RESIDUAL ? residual[at] : 0.0f, p.slope);
          if (w + nb * 8 + 1 < width) {
            y[at + 1] = finish_value(s[1], bias, F_RESIDUAL ? residual[at + 1] : 0.0f, p.slope);
          }
#endif
#endif
        }
      }
    }
  }
}
#elif F_DIRECT
// By ordinary stores: a warp holds eight neighbouring channels, a sector, of each of its pixels.
__device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t, unsigned, unsigned,
                                       unsigned&, int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  const int k0 = t.k + (F_COOP ? consumer * kMyChannels : 0) + warp * 16 + lane / 4;
  const int w = t.w + lane % 4 * 2;
  const long long row = static_cast<long long>(p.q) * p.k;
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + mt * 64 + half * 8;
      if (k >= p.k) continue;
      const float bias = F_BIAS ? load_element(p.bias, k) : 0.0f;
      const long long first = (static_cast<long long>(t.n) * p.p + t.h) * row + static_cast<long long>(w) * p.k + k;
      float* y = static_cast<float*>(p.y) + first;
      [[maybe_unused]] const float* residual = static_cast<const float*>(p.residual) + first;
#pragma unroll
      for (int i = 0; i < F_N / 8; ++i) {
        if (t.h + i >= p.p) break;
#pragma unroll
        for (int nb = 0; nb < F_NB; ++nb) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (w + nb * 8 + j >= p.q) continue;
            const int at = (nb * 8 + j) * p.k;
            y[at] = finish_value(sums[mt][nb][i * 4 + half * 2 + j], bias, F_RESIDUAL ? residual[at] : 0.0f, p.slope);
          }
        }
        y += row;
        if (F_RESIDUAL) residual += row;
      }
    }
  }
}
#elif !F_PLAIN
// Where in the staging area a value lies: by the copy engine's swizzle, or with F_NCHW a row a channel.
__device__ __forceinline__ unsigned staged(int channel, int pixel) {
#if F_NCHW
  return channel * kChannelPitch + pixel * 4;
#else
  const int in_unit = channel % kUnit;
  return channel / kUnit * kUnitBytes + pixel * 128 + (((in_unit / 4) ^ (pixel & 7)) << 4) + in_unit % 4 * 4;
#endif
}

__device__ __forceinline__ void finish(Sums& sums, const TensorMap& y_map, const Params& p, const Tile& t,
                                       unsigned staging, unsigned, unsigned&, int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  const int k0 = t.k + (F_COOP && !F_SWAP ? consumer * kMyChannels : 0);
  const int pixel0 = F_COOP && F_SWAP ? consumer * kMyPixels : 0;
#if !F_NCHW
  if (thread == 0) store_wait_read();
  named_sync(3 + consumer, 128);
#endif
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = mt * 64 + warp * 16 + half * 8 + lane / 4;
      const float row_bias = F_BIAS && !F_SWAP && k0 + m < p.k ? load_element(p.bias, k0 + m) : 0.0f;
#pragma unroll
      for (int nb = 0; nb < F_NB; ++nb) {
#if F_POOL
#pragma unroll
        for (int i = 0; i < F_N / 8; i += 2) {
          const float* s = &sums[mt][nb][i * 4 + half * 2];
          const float value =
              pooled(finish_value(s[0], row_bias, 0.0f, p.slope), finish_value(s[1], row_bias, 0.0f, p.slope),
                     finish_value(s[4], row_bias, 0.0f, p.slope), finish_value(s[5], row_bias, 0.0f, p.slope));
          store_shared_32(staging + staged(m, i / 2 * (4 * F_NB) + nb * 4 + lane % 4), __float_as_uint(value));
        }
#else
#pragma unroll
        for (int i = 0; i < F_N / 8; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int column = lane % 4 * 2 + j;
#if F_SWAP
            const int channel = nb * F_N + i * 8 + column, pixel = m;
            const float bias = F_BIAS && k0 + channel < p.k ? load_element(p.bias, k0 + channel) : 0.0f;
#else
            const int channel = m, pixel = (F_IM2COL ? nb * F_N + i * 8 : (i * F_NB + nb) * 8) + column;
            const float bias = row_bias;
#endif
            float residual = 0.0f;
            if (F_RESIDUAL) {
              const long long at = locate_output(p, t, k0 + channel, pixel0 + pixel, false);
              if (at >= 0) residual = load_element(p.residual, at);
            }
            const float value = finish_value(sums[mt][nb][i * 4 + half * 2 + j], bias, residual, p.slope);
            store_shared_32(staging + staged(channel, pixel), __float_as_uint(value));
          }
        }
#endif
      }
    }
  }
#if F_NCHW
  named_sync(3 + consumer, 128);
  store_rows(p, t, k0, staging, thread);
  named_sync(3 + consumer, 128);
#else
  fence_async();
  named_sync(3 + consumer, 128);
  if (thread == 0) {
    store_tile(y_map, t, staging, consumer);
    store_commit();
  }
#endif
}
#endif
