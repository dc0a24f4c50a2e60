// Where a block's sums go in the gradient. Part of the kernels of the weights' gradient, and of the sum of their parts.
#pragma once

__device__ __forceinline__ unsigned short round_to_element(float value) {
  unsigned short element;
  if constexpr (kConfig.element == Element::bf16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element) : "f"(value));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
  }
  return element;
}
__device__ __forceinline__ unsigned round_to_elements(float first, float second) {
  return round_to_element(first) | static_cast<unsigned>(round_to_element(second)) << 16;
}
__device__ __forceinline__ void store_weight(void* dw, long long index, float value) {
  if constexpr (kConfig.element == Element::f32) {
    static_cast<float*>(dw)[index] = value;
  } else {
    static_cast<unsigned short*>(dw)[index] = round_to_element(value);
  }
}

constexpr int kTaps = kConfig.r * kConfig.s, kGroupK = kConfig.grouped() ? kConfig.group_k : 1;
// Whether a pair's first channel may be one group's last, and its second the next one's first.
constexpr bool kPairsCross = kConfig.group_c % 2 == 1;
// Whether a filter's channels lie side by side.
constexpr bool kAlong = kConfig.filter == Order::nhwc || kTaps == 1;

// Where in the filter a pair of sums belongs, c within its group: nowhere between groups, and beyond the filter.
__device__ __forceinline__ bool in_filter(const Params& p, const Work& work, const Place& place, Place& at) {
  at = {work.k + place.k, work.r + place.r, work.s + place.s, work.c + place.c};
  if constexpr (kConfig.grouped()) at.c -= at.k / kGroupK * kConfig.group_c;
  return at.k < work.k_end && at.r < kConfig.r && at.s < kConfig.s && at.c < p.c && at.c >= (kPairsCross ? -1 : 0);
}
__device__ __forceinline__ long long tap_of(const Place& at) {
  return (static_cast<long long>(at.k) * kConfig.r + at.r) * kConfig.s + at.s;
}

__device__ __forceinline__ void store_pair(const Params& p, const Place& at, float first, float second) {
  const long long to = kAlong ? tap_of(at) * p.c + at.c
                              : (static_cast<long long>(at.k) * p.c + at.c) * kTaps + at.r * kConfig.s + at.s;
  // Two elements that begin at 4 bytes, as they lie.
  if (kConfig.element != Element::f32 && kAlong && !kPairsCross && p.c % 2 == 0) {
    *reinterpret_cast<unsigned*>(static_cast<unsigned short*>(p.dw) + to) = round_to_elements(first, second);
    return;
  }
  if (at.c >= 0) store_weight(p.dw, to, first);
  if (at.c + 1 < p.c) store_weight(p.dw, to + (kAlong ? 1 : kTaps), second);
}

// The 4 x 4 words of four lanes, turned: each lane's are then what the four had at its place.
__device__ __forceinline__ void turn_quad(unsigned (&v)[4]) {
  constexpr unsigned kAll = 0xffffffff;
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned other = __shfl_xor_sync(kAll, odd ? v[i] : v[i + 1], 1);
    (odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned other = __shfl_xor_sync(kAll, high ? v[i] : v[i + 2], 2);
    (high ? v[i] : v[i + 2]) = other;
  }
}

// All sums of a block, 16 bytes at a time.
constexpr bool kStoresRuns = kConfig.element != Element::f32 && kAlong && !kConfig.grouped() && kConfig.kind != Kind::lines &&
                             kColumns % 32 == 0 && kChannels % 32 == 0 && short_columns(kConfig) % 32 == 0;
template <class Sums>
__device__ __forceinline__ void store_runs(const Sums& sums, const Params& p, const Work& work, int consumer) {
  unsigned words[kPairs];
  for_each_pair(sums, [&](int pair, float first, float second) { words[pair] = round_to_elements(first, second); });
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    if (pair % 8 > 1) continue;
    unsigned run[4] = {words[pair], words[pair + 2], words[pair + 4], words[pair + 6]};
    turn_quad(run);
    const int thread = threadIdx.x % 128;
    const Place place = place_of(consumer, thread & ~3, pair + thread % 4 * 2);
    Place at;
    if (!in_filter(p, work, place, at)) continue;
    const long long to = tap_of(at) * p.c + at.c;
    *reinterpret_cast<uint4*>(static_cast<unsigned short*>(p.dw) + to) = uint4{run[0], run[1], run[2], run[3]};
  }
}
