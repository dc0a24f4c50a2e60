// The staging area of a consumer in shared memory, through which its part of a tile goes to the output: units
// of channels as the copy engine stores them, or a row a channel.
#pragma once
#include "kernels/sm90/finish.cuh"
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kUnit = unit_channels(kConfig), kUnitBytes = unit_bytes(kConfig), kUnits = units(kConfig);
constexpr int kStagedUnits = staged_units(kConfig);  // that there is room for: stored in turn
constexpr int kStoredPixels = stored_pixels(kConfig), kChannelPitch = channel_pitch(kConfig);

// Before a residual is brought into an area: what was stored from there has been read.
__device__ __forceinline__ void expect_residual(unsigned barrier) {
  store_wait_read();
  barrier_expect(barrier, kUnitBytes * kUnits);
}
// Until the consumer may write its area: what was stored from there has been read, or the residual, which is
// brought only then, has come.
__device__ __forceinline__ void wait_for_area(unsigned residual_full, unsigned residual_parity, int consumer,
                                              int thread) {
  if constexpr (kResidual) {
    barrier_wait(residual_full, residual_parity);
  } else {
    if (thread == 0) store_wait_read();
    named_sync(3 + consumer, 128);
  }
}

// Rows of channels to NCHW. Neighbouring threads have neighbouring pixels; each keeps its pixels and goes
// through the channels.
__device__ __forceinline__ void store_rows(const Params& p, const Tile& t, int k0, unsigned staging,
                                           int thread) {
  constexpr int kChunks = kStoredPixels / kStore, kAcross = kChunks < 128 ? kChunks : 128,
                kDown = 128 / kAcross;
  const long long plane =
      kVolume ? channel_pixels(p) : static_cast<long long>(pooled_height(p)) * pooled_width(p);
  const int channels = p.k - k0 < kMyChannels ? p.k - k0 : kMyChannels;
  if (thread >= kAcross * kDown) return;
  for (int chunk = thread % kAcross; chunk < kChunks; chunk += kAcross) {
    const long long first = locate_output(p, t, k0, chunk * kStore, kPools);
    if (first < 0) continue;
    unsigned char* to = static_cast<unsigned char*>(p.y) + first * kElement;
    const unsigned from = staging + chunk * kStore * kElement;
#pragma unroll 8
    for (int channel = thread / kAcross; channel < channels; channel += kDown) {
      *reinterpret_cast<Word<kStore * kElement>*>(to + channel * plane * kElement) =
          load_word<kStore * kElement>(from + channel * kChannelPitch);
    }
  }
}

// Units to NHWC, by the copy engine.
__device__ __forceinline__ void store_unit(const TensorMap& map, const Tile& t, unsigned staging, int unit,
                                           int consumer) {
  const int k = my_first_channel(t, consumer) + unit * kUnit;
  const unsigned from = staging + unit % kStagedUnits * kUnitBytes;
  if constexpr (kFlat) {
    store_2d(&map, from, k, t.first + my_first_pixel(consumer));
  } else {
    const int h = t.h + (kCooperative && kPixelsOnM ? consumer * 8 * kMBlocks : 0);
    if constexpr (kVolume && kPhased) {
      store_5d(&map, from, k, t.w, h, t.z, t.volume);
      return;
    }
    store_4d(&map, from, k, kPools ? pooled_first(t.w) : t.w, kPools ? pooled_first(h) : h, t.n);
  }
}

__device__ __forceinline__ void store_tile(const TensorMap& map, const Tile& t, unsigned staging,
                                           int consumer) {
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) store_unit(map, t, staging, unit, consumer);
}

// The bias of a thread's two rows of a block of sums, where rows are channels: k and 8 further.
struct RowBias {
  OfChannel of[2];
};
__device__ __forceinline__ RowBias row_bias(const Params& p, int k) {
  return {{load_bias(p, k), load_bias(p, k + 8)}};
}

// Four neighbours, two in each of two rows of the tile, as a pool of 2 x 2 has them.
__device__ __forceinline__ float pool_sums(const float* s, OfChannel bias, const Params& p) {
  return pooled(finish_value(s[0], bias, 0.0f, p.slope), finish_value(s[1], bias, 0.0f, p.slope),
                finish_value(s[4], bias, 0.0f, p.slope), finish_value(s[5], bias, 0.0f, p.slope));
}
