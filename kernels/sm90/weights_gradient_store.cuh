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
  if constexpr (kConfig.deepened()) {
    const auto store = [&](int c, float value) {
      const long long to = c >= 0 && c < p.c ? from_depth(kConfig, at.k, at.r, at.s, c) : -1;
      if (to >= 0) store_weight(p.dw, to, value);
    };
    store(at.c, first);
    store(at.c + 1, second);
    return;
  }
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
  const unsigned quad = 0xfu << (threadIdx.x & 28);
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned other = __shfl_xor_sync(quad, odd ? v[i] : v[i + 1], 1);
    (odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned other = __shfl_xor_sync(quad, high ? v[i] : v[i + 2], 2);
    (high ? v[i] : v[i + 2]) = other;
  }
}

// Pairs pair, pair + 2, ... + 6 of four neighbouring threads, rounded: each stores eight channels.
__device__ __forceinline__ void store_run(const Params& p, const Work& work, int consumer, int thread, int pair,
                                          unsigned (&words)[4]) {
  turn_quad(words);
  Place at;
  if (!in_filter(p, work, place_of(consumer, thread & ~3, pair + thread % 4 * 2), at)) return;
  *reinterpret_cast<uint4*>(static_cast<unsigned short*>(p.dw) + tap_of(at) * p.c + at.c) =
      uint4{words[0], words[1], words[2], words[3]};
}
