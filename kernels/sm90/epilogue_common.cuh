// Where a tile goes. Part of implicit_gemm.cu.
#pragma once

// Of the output behind a pool.
__device__ __forceinline__ int pooled_height(const Params& p) {
  return F_POOL ? (p.p + F_POOL_PAD + F_POOL_END_H - F_WINDOW) / 2 + 1 : p.p;
}
__device__ __forceinline__ int pooled_width(const Params& p) {
  return F_POOL ? (p.q + F_POOL_PAD + F_POOL_END_W - F_WINDOW) / 2 + 1 : p.q;
}
__device__ __forceinline__ int pooled_first(int pixel) { return (pixel + kBefore) / 2; }

// The index in y (or, unpooled, in the residual) of a channel's pixel of the tile; negative outside.
__device__ __forceinline__ long long locate_output(const Params& p, const Tile& t, int k, int pixel, bool pool) {
  if (k >= p.k) return -1;
#if F_IM2COL
  const int flat = t.first + pixel;
  if (flat >= p.pixels || (F_FETCH && pixel >= p.step)) return -1;
#if F_NCHW
  const int image = p.p * p.q, n = flat / image;
  return (static_cast<long long>(n) * p.k + k) * image + (flat - n * image);
#else
  return static_cast<long long>(flat) * p.k + k;
#endif
#else
  const int width = pool ? kPoolWidth : kTileWidth;
  const int h = (pool ? pooled_first(t.h) : t.h) + pixel / width, w = (pool ? pooled_first(t.w) : t.w) + pixel % width;
  const int height = pool ? pooled_height(p) : p.p, columns = pool ? pooled_width(p) : p.q;
  if (h >= height || w >= columns) return -1;
#if F_NCHW
  return ((static_cast<long long>(t.n) * p.k + k) * height + h) * columns + w;
#else
  return ((static_cast<long long>(t.n) * height + h) * columns + w) * p.k + k;
#endif
#endif
}

#if F_NCHW && !F_PLAIN && !(F_TURNED && F_TF32) && !F_WHOLE && !F_BULK && F_SPLIT == 1
// The staging area's rows, a channel each, to the output. Neighbouring threads have neighbouring pixels; each keeps
// its pixels and goes through the channels.
__device__ __forceinline__ void store_rows(const Params& p, const Tile& t, int k0, unsigned staging, int thread) {
  constexpr int kChunks = kStoredPixels / F_V, kAcross = kChunks < 128 ? kChunks : 128, kDown = 128 / kAcross;
  const long long plane = static_cast<long long>(pooled_height(p)) * pooled_width(p);
  const int channels = p.k - k0 < kMyChannels ? p.k - k0 : kMyChannels;
  if (thread >= kAcross * kDown) return;
  for (int chunk = thread % kAcross; chunk < kChunks; chunk += kAcross) {
    const long long first = locate_output(p, t, k0, chunk * F_V, F_POOL != 0);
    if (first < 0) continue;
    unsigned char* to = static_cast<unsigned char*>(p.y) + first * kElement;
    const unsigned from = staging + chunk * F_V * kElement;
#pragma unroll 8
    for (int channel = thread / kAcross; channel < channels; channel += kDown) {
      *reinterpret_cast<Word<F_V * kElement>*>(to + channel * plane * kElement) =
          load_word<F_V * kElement>(from + channel * kChannelPitch);
    }
  }
}
#endif

#if F_BULK && !F_PLANES
__device__ __forceinline__ void store_unit(const TensorMap& map, const Tile& t, unsigned staging, int unit,
                                           int consumer) {
  const int k = t.k + (F_COOP && !F_SWAP ? consumer * kMyChannels : 0) + unit * kUnit;
  const unsigned from = staging + unit % kStagedUnits * kUnitBytes;
#if F_IM2COL
  store_2d(&map, from, k, t.first + (F_COOP && F_SWAP ? consumer * kMyPixels : 0));
#else
  const int h = t.h + (F_COOP && F_SWAP ? consumer * 8 * F_MT : 0);
  store_4d(&map, from, k, F_POOL ? pooled_first(t.w) : t.w, F_POOL ? pooled_first(h) : h, t.n);
#endif
}

__device__ __forceinline__ void store_tile(const TensorMap& map, const Tile& t, unsigned staging, int consumer) {
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) store_unit(map, t, staging, unit, consumer);
}
#endif

#if F_PLAIN && F_SPLIT == 1
// Ordinary stores; the pixels are on M.
__device__ __forceinline__ void finish(Sums& sums, const TensorMap&, const Params& p, const Tile& t, unsigned,
                                       unsigned, unsigned&, int consumer, int thread) {
  const int warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int mt = 0; mt < F_MT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (F_COOP ? consumer * kMyPixels : 0) + mt * 64 + warp * 16 + half * 8 + lane / 4;
#if F_IM2COL
      const bool inside = t.first + row < p.pixels;
      const long long pixel = t.first + row;
#else
      const int h = t.h + row / 8, w = t.w + row % 8;
      const bool inside = h < p.p && w < p.q;
      const long long pixel = (static_cast<long long>(t.n) * p.p + h) * p.q + w;
#endif
#pragma unroll
      for (int nb = 0; nb < F_NB; ++nb) {
#pragma unroll
        for (int i = 0; i < F_N / 8; ++i) {
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const int k = t.k + nb * F_N + i * 8 + lane % 4 * 2 + pair;
            if (inside && k < p.k) {
              const float bias = F_BIAS ? load_element(p.bias, k) : 0.0f;
              const float residual = F_RESIDUAL ? load_element(p.residual, pixel * p.k + k) : 0.0f;
              store_element(p.y, pixel * p.k + k,
                            finish_value(sums[mt][nb][i * 4 + half * 2 + pair], bias, residual, p.slope));
            }
          }
        }
      }
    }
  }
}
#endif
