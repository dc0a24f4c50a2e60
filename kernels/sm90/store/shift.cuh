// From the sums of the horizontal taps to the output. Part of shift_gemm.cu.
//
// A thread holds, of a set of 64 channels by kN pixels: channels 16 warp + lane/4 and 8 further; of every
// group of 8 columns the two from 2 (lane % 4) on.
#pragma once
#include "kernels/sm90/words.cuh"

struct Pair {
  float a, b;
};

// No branches: each would cost more than what it saves.
__device__ __forceinline__ void store_carry(unsigned at, Pair v, bool mine) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; @p st.shared.v2.f32 [%0], {%1, %2};}" ::"r"(at),
               "f"(v.a), "f"(v.b), "r"(static_cast<int>(mine))
               : "memory");
}
__device__ __forceinline__ Pair load_carry(unsigned at) {
  Pair v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.a), "=f"(v.b) : "r"(at) : "memory");
  return v;
}

__device__ __forceinline__ float from_quad(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane, 4);
}

__device__ __forceinline__ float sum_at(const float (&sums)[kN / 2], int row, int group, int half, int j) {
  return sums[((row * kGroups + group) * 2 + half) * 2 + j];
}

// What the tap whose columns lie `by` to the right gives a thread's two columns of a group. right: the two
// first columns of the window to the right, in the first thread of a quad; what lies in the window to the
// left is left out.
__device__ __forceinline__ Pair shifted(const float (&sums)[kN / 2], int row, int group, int half, int by,
                                        Pair right, int quad) {
  const float a = sum_at(sums, row, group, half, 0), b = sum_at(sums, row, group, half, 1);
  if (by == 0) return {a, b};
  if (by > 0) {
    const bool last = group == kGroups - 1;
    const int to_right = (quad + 1) & 3, beyond = last ? group : group + 1;
    const float next_a =
        from_quad(quad == 0 ? (last ? right.a : sum_at(sums, row, beyond, half, 0)) : a, to_right);
    if (by == 1) return {b, next_a};
    return {next_a,
            from_quad(quad == 0 ? (last ? right.b : sum_at(sums, row, beyond, half, 1)) : b, to_right)};
  }
  const bool first = group == 0;
  const int to_left = (quad + 3) & 3, before = first ? group : group - 1;
  const float previous_b =
      from_quad(quad == 3 ? (first ? 0.0f : sum_at(sums, row, before, half, 1)) : b, to_left);
  if (by == -1) return {previous_b, a};
  return {from_quad(quad == 3 ? (first ? 0.0f : sum_at(sums, row, before, half, 0)) : a, to_left),
          previous_b};
}

__device__ __forceinline__ long long locate_output(const ShiftParams& p, const Tile& t, int k, int h, int q,
                                                   int shrink) {
  const long long channel = static_cast<long long>(t.n) * p.k + k;
  return ((kVolume ? channel * p.depth.out + t.z : channel) * (p.p / shrink) + h) * (p.q / shrink) + q;
}
// From one to the next, of the output unpooled.
__device__ __forceinline__ long long channel_pixels(const ShiftParams& p) {
  return static_cast<long long>(p.p) * p.q * (kVolume ? p.depth.out : 1);
}

// A box of a window's rows and channels, of the residual and of the output.
__device__ __forceinline__ void load_rows(unsigned to, const TensorMap* map, unsigned barrier, int q, int h,
                                          const Tile& t) {
  if constexpr (kVolume) {
    load_5d(to, map, barrier, q, t.k, h, t.z, t.n);
  } else {
    load_4d(to, map, barrier, q, t.k, h, t.n);
  }
}
__device__ __forceinline__ void store_rows(const TensorMap* map, unsigned from, int q, int h, const Tile& t) {
  if constexpr (kVolume) {
    store_5d(map, from, q, t.k, h, t.z, t.n);
  } else {
    store_4d(map, from, q, t.k, h, t.n);
  }
}

// Bias, residual, activation. brought: the residual, where the copy engine brings it; else it is read. at:
// the first column's index in the output; inside: whether there is such a channel and row; columns: so many
// of them are within the image.
__device__ __forceinline__ Pair finish_pair(Pair sum, OfChannel bias, const ShiftParams& p, unsigned brought,
                                            long long at, bool inside, int columns) {
  Pair residual = {low(brought), high(brought)};
  if (kResidual && !kBulk && inside && columns > 0) {
    if constexpr (kStore > 1) {
      const unsigned pair =
          *reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(p.residual) + at);
      residual = {low(pair), high(pair)};
    } else {
      residual.a = load_element(p.residual, at);
      if (columns > 1) residual.b = load_element(p.residual, at + 1);
    }
  }
  return {finish_value(sum.a, bias, residual.a, p.slope), finish_value(sum.b, bias, residual.b, p.slope)};
}

__device__ __forceinline__ float pool_pairs(Pair upper, Pair lower) {
  return pooled(upper.a, upper.b, lower.a, lower.b);
}

// Where things lie in the staging area.
struct Places {
  unsigned staging;  // of the consumer
  int origin;        // by rings: the place of the window's first group
  // By rings: of a group of this window or, from kGroups on, of its right neighbour.
  __device__ __forceinline__ unsigned in_ring(int row, int channel, int group) const {
    const int at = origin + group;
    return staging + (row * kChannels + channel) * kPitch + (at >= kRing ? at - kRing : at) * kGroupBytes;
  }
  // In bulk: of the group that is stored as number `group`, by the copy engine's swizzle.
  __device__ __forceinline__ unsigned in_bulk(int row, int channel, int group) const {
    const unsigned line = (row * kChannels + channel) * kPixelRow;
    return staging + line + ((group ^ (line >> 7 & (kGroups - 1))) << 4);
  }
  // The groups that are stored with the next window, 2 a row.
  __device__ __forceinline__ unsigned aside(int row, int channel, int group) const {
    const unsigned line = (row * kChannels + channel) * 32;
    return staging + kMainBytes + line + ((group ^ (line >> 7 & 1)) << 4);
  }
};

// The residual of what this window computes: of its first columns, and of the others with the right
// neighbour's first ones. Once the copy engine has read what lay there.
__device__ __forceinline__ void bring_residual(const Maps& maps, const Tile& t, int window, unsigned staging,
                                               unsigned barrier, int consumer) {
  const int h0 = t.h + consumer * kRows, q0 = window * kTileWidth;
  store_wait_read();
  barrier_expect(barrier, kMainBytes + kAsideBytes);
  load_rows(staging, &maps.residual, barrier, q0 + kLag, h0, t);
  if (kWalks) load_rows(staging + kMainBytes + kAsideBytes, &maps.residual_aside, barrier, q0, h0, t);
}

// The right neighbour's first groups, which this window stores last.
__device__ __forceinline__ void fetch_aside(const Places& places, int warp, int lane) {
  const int channel = warp * 16 + (lane / 8 & 1) * 8 + lane % 8, group = lane / 16;
  __syncwarp();
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    unsigned v[4];
    load_matrices(places.aside(row, channel, group), v[0], v[1], v[2], v[3]);
    store_matrices(places.in_bulk(row, channel, kGroups - 2 + group), v[0], v[1], v[2], v[3]);
  }
  __syncwarp();
}

// kCount columns of the consumer's rows from `first_column` on, at group `group` of the rings.
template <int kCount>
__device__ __forceinline__ void store_columns(const ShiftParams& p, const Tile& t, int h0, int first_column,
                                              int origin, unsigned staging, int thread) {
  constexpr int kUnits = kCount / kShrink / kStore, kAcross = kUnits < 128 ? kUnits : 128,
                kDown = 128 / kAcross;
  constexpr int kRingPixels = kRing * 8 / kShrink;
  constexpr int kBatch = kDown > kChannels ? 1 : kChannels / kDown < 8 ? kChannels / kDown : 8;
  const int channels = p.k - t.k;
  const int unit = thread % kAcross, first_channel = thread / kAcross;
  const int q = first_column / kShrink + unit * kStore;
  if (q >= p.q / kShrink) return;
  int place = origin * 8 / kShrink + unit * kStore;
  if (place >= kRingPixels) place -= kRingPixels;
  const int rows = p.p / kShrink - h0 / kShrink;
  const long long step =
      (kVolume ? channel_pixels(p) : static_cast<long long>(p.p / kShrink) * (p.q / kShrink)) * (kDown * 2);
  unsigned char* row_to = static_cast<unsigned char*>(p.y) +
                          locate_output(p, t, t.k + first_channel, h0 / kShrink, q, kShrink) * 2;
  unsigned from = staging + first_channel * kPitch + place * 2;
#pragma unroll 1
  for (int row = 0; row < kRows / kShrink && row < rows; ++row) {
    unsigned char* to = row_to;
#pragma unroll 1
    for (int channel = first_channel; channel < kChannels; channel += kDown * kBatch) {
      Word<kStore * 2> v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        v[i] = load_word<kStore * 2>(from + (channel - first_channel + i * kDown) * kPitch);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (channel + i * kDown < channels) *reinterpret_cast<Word<kStore * 2>*>(to) = v[i];
        to += step;
      }
    }
    row_to += p.q / kShrink * 2;
    from += kChannels * kPitch;
  }
}

// bias: of the thread's channel and of the one 8 further.
__device__ __forceinline__ void finish(Sums& sums, const Maps& maps, const ShiftParams& p, Tile t, int window,
                                       const OfChannel (&bias)[2], unsigned staging, unsigned carry, int consumer,
                                       int thread) {
  // Or addresses are computed before the products, whose sums leave no registers for them.
  asm volatile("" : "+r"(t.k), "+r"(t.n), "+r"(t.h), "+r"(staging), "+r"(carry), "+r"(thread));
  if constexpr (kVolume) asm volatile("" : "+r"(t.z));
  const int warp = thread / 32, lane = thread % 32, quad = lane % 4;
  [[maybe_unused]] const int matrix = lane / 8;
  const int h0 = t.h + consumer * kRows, q0 = window * kTileWidth;
  const Places places = {staging, kBulk ? 0 : window * kGroups % kRing};
  const int channel = warp * 16 + lane / 4, k = t.k + channel;
  const unsigned my_carry = carry + (warp * 8 + lane / 4) * 8;
  const auto carried = [&](int row, int half, int i) {
    return my_carry + ((row * 2 + half) * kCarried + i) * 256;
  };
  [[maybe_unused]] const long long first_index =
                                       kResidual && !kBulk ? locate_output(p, t, k, h0, q0 + quad * 2, 1) : 0,
                                   eight = channel_pixels(p) * 8;
  const auto index = [&](int row, int half) { return first_index + row * p.q + (half ? eight : 0); };
  const auto inside = [&](int row, int half) { return k + half * 8 < p.k && h0 + row < p.p; };
  constexpr int kLast = kGroups - 1;
  const bool holds_first = quad == 0;  // of the window's columns
  if constexpr (kBulk && !kBringsResidual) {
    if (thread == 0) store_wait_read();
    named_sync(3 + consumer, 128);
    if (kWalks) fetch_aside(places, warp, lane);
  }

  // The right neighbour's first columns get this window's last sums.
  const auto complete = [&](int row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned in_bulk = places.in_bulk(row, channel + half * 8, kGroups - 2);
      const unsigned residual = kBringsResidual ? load_word<4>(in_bulk) : 0;
      Pair done[kShrink];
#pragma unroll
      for (int i = 0; i < kShrink; ++i) {
        Pair sum = load_carry(carried(row + i, half, 0));
#pragma unroll
        for (int s = 0; s < kS; ++s) {
          const int by = s * kDilationW - kPadLeft;
          if (by >= 0) continue;
          const float last_b = from_quad(sum_at(sums[s], row + i, kLast, half, 1), 3);
          sum.a += by == -1 ? last_b : from_quad(sum_at(sums[s], row + i, kLast, half, 0), 3);
          if (by == -2) sum.b += last_b;
        }
        done[i] = finish_pair(sum, bias[half], p, residual, index(row + i, half) + kTileWidth,
                              inside(row + i, half), holds_first ? p.q - q0 - kTileWidth : 0);
      }
      if constexpr (kPools) {
        if (holds_first) {
          store_shared_16(places.in_ring(row / kShrink, channel + half * 8, kGroups),
                          pack(pool_pairs(done[0], done[kShrink - 1]), 0.0f));
        }
      } else {
        store_shared_32_if(kBringsResidual ? places.aside(row, channel + half * 8, 0)
                           : kBulk         ? in_bulk
                                           : places.in_ring(row, channel + half * 8, kGroups),
                           pack(done[0].a, done[0].b), holds_first);
      }
    }
  };
  if constexpr (kBringsResidual && kWalks) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (kReachLeft > 0) complete(row);
    }
    fetch_aside(places, warp, lane);
  }
#pragma unroll
  for (int row = 0; row < kRows; row += kShrink) {
    if (kWalks && kReachLeft > 0 && !kBringsResidual) complete(row);
#pragma unroll
    for (int group = kGroups - 2; group >= 0; group -= 2) {  // what is carried is read first, written last
      [[maybe_unused]] unsigned out[4];
      unsigned residual[4] = {};
      const int to_channel = warp * 16 + (matrix & 1) * 8 + lane % 8;
      const unsigned to = !kBulk ? places.in_ring(row, to_channel, group + (matrix >> 1))
                          : kWalks && group == 0
                              ? places.aside(row, to_channel, matrix >> 1)
                              : places.in_bulk(row, to_channel, group - kLag / 8 + (matrix >> 1));
      if (kBringsResidual) {
        load_matrices(kWalks && group == 0 ? to + kAsideBytes : to, residual[0], residual[1], residual[2],
                      residual[3]);
      }
#pragma unroll
      for (int m = 3; m >= 0; --m) {
        const int half = m & 1, g = group + (m >> 1);
        Pair done[kShrink];
#pragma unroll
        for (int i = 0; i < kShrink; ++i) {
          Pair sum;
#pragma unroll
          for (int s = 0; s < kS; ++s) {
            const int by = s * kDilationW - kPadLeft;
            Pair right = {0.0f, 0.0f};
            if (kWalks && g == kLast && by > 0) right = load_carry(carried(row + i, half, kS - s));
            const Pair part = shifted(sums[s], row + i, g, half, by, right, quad);
            sum = s == 0 ? part : Pair{sum.a + part.a, sum.b + part.b};
          }
          if (kWalks && g == 0) {
            if (kReachLeft > 0) store_carry(carried(row + i, half, 0), sum, holds_first);
#pragma unroll
            for (int s = 0; s < kS; ++s) {
              if (s * kDilationW - kPadLeft <= 0) continue;
              // Nothing lies to the right of the next strip's first window.
              const Pair mine = {window == 0 ? 0.0f : sum_at(sums[s], row + i, 0, half, 0),
                                 window == 0 ? 0.0f : sum_at(sums[s], row + i, 0, half, 1)};
              store_carry(carried(row + i, half, kS - s), mine, holds_first);
            }
          }
          done[i] = finish_pair(sum, bias[half], p, residual[m], index(row + i, half) + g * 8,
                                inside(row + i, half), p.q - q0 - quad * 2 - g * 8);
        }
        if constexpr (kPools) {
          store_shared_16(places.in_ring(row / kShrink, channel + half * 8, g) + quad * 2,
                          pack(pool_pairs(done[0], done[kShrink - 1]), 0.0f));
        } else {
          out[m] = pack(done[0].a, done[0].b);
        }
      }
      if constexpr (!kPools) store_matrices(to, out[0], out[1], out[2], out[3]);
    }
  }
  if constexpr (kBulk) {
    fence_async();
    named_sync(3 + consumer, 128);
    if (thread == 0) {
      if (q0 + kLag < p.q) store_rows(&maps.y, staging, q0 + kLag, h0, t);
      if (kWalks && window == 0) store_rows(&maps.y_aside, staging + kMainBytes, 0, h0, t);
      store_commit();
    }
  } else {
    named_sync(3 + consumer, 128);
    store_columns<kTileWidth>(p, t, h0, q0 + kLag, (places.origin + kLag / 8) % kRing, staging, thread);
    if (kWalks && window == 0) store_columns<16>(p, t, h0, 0, 0, staging, thread);
    named_sync(3 + consumer, 128);
  }
}
