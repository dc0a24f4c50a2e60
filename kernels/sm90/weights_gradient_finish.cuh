// What becomes of a block's sums. Part of the kernels of the weights' gradient, which define Sums, for_each_pair(sums, visit(pair, first, second)) and place_of(pair), of this
// thread.
#pragma once

// From the block's first results.
struct Place {
  int k, r, s, c;
};
__device__ __forceinline__ Place place_of(int consumer, int pair);

__device__ __forceinline__ unsigned short round_to_element(float value) {
  unsigned short element;
  if constexpr (kConfig.element == Element::bf16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element) : "f"(value));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
  }
  return element;
}
__device__ __forceinline__ void store_weight(void* dw, long long index, float value) {
  if constexpr (kConfig.element == Element::f32) {
    static_cast<float*>(dw)[index] = value;
  } else {
    static_cast<unsigned short*>(dw)[index] = round_to_element(value);
  }
}

constexpr int kGroupK = kConfig.grouped() ? kConfig.group_k : 1;
// Whether a pair's first channel may be one group's last, and its second the next one's first.
constexpr bool kPairsCross = kConfig.group_c % 2 == 1;

// Those of the pair that are within the group of k; what is between groups is not stored.
__device__ __forceinline__ void store_pair(const Params& p, const Work& work, int consumer, int pair, float first,
                                           float second) {
  const Place place = place_of(consumer, pair);
  const int k = work.k + place.k, r = work.r + place.r, s = work.s + place.s;
  // Of its group.
  const int c = work.c + place.c - (kConfig.grouped() ? k / kGroupK * kConfig.group_c : 0);
  if (k >= work.k_end || r >= kConfig.r || s >= kConfig.s || c >= p.c) return;
  if (kConfig.grouped() && c < (kPairsCross ? -1 : 0)) return;
  const bool has_first = !kPairsCross || c >= 0, has_second = c + 1 < p.c;
  const long long tap = (static_cast<long long>(k) * kConfig.r + r) * kConfig.s + s;
  if constexpr (kConfig.result == Result::parts) {
    float* const to = p.parts + work.share / kCluster * p.weights + tap * p.c_pitch + c;
    if constexpr (kPairsCross) {
      if (has_first) to[0] = first;
      if (has_second) to[1] = second;
    } else {
      *reinterpret_cast<float2*>(to) = float2{first, second};
    }
  } else {
    constexpr int kTaps = kConfig.r * kConfig.s;
    const bool along = kConfig.filter == Order::nhwc;
    const long long to = along ? tap * p.c + c : (static_cast<long long>(k) * p.c + c) * kTaps + r * kConfig.s + s;
    // Two elements that begin at 4 bytes, as they lie.
    if (kConfig.element != Element::f32 && along && !kPairsCross && p.c % 2 == 0) {
      const unsigned both = round_to_element(first) | static_cast<unsigned>(round_to_element(second)) << 16;
      *reinterpret_cast<unsigned*>(static_cast<unsigned short*>(p.dw) + to) = both;
      return;
    }
    if (has_first) store_weight(p.dw, to, first);
    if (has_second) store_weight(p.dw, to + (along ? 1 : kTaps), second);
  }
}

constexpr int kEveryConsumer = 1;  // a named barrier

__device__ __forceinline__ void finish(const Sums& sums, const Params& p, const Work& work, unsigned memory,
                                       int consumer) {
  if constexpr (kCluster == 1) {
    for_each_pair(sums, [&](int pair, float first, float second) {
      store_pair(p, work, consumer, pair, first, second);
    });
  } else {
    named_sync(kEveryConsumer, kConsumers * 128);  // all have read their operands
    const unsigned mine = memory + (consumer * kPairs * 128 + threadIdx.x % 128) * 8;
    for_each_pair(sums, [&](int pair, float first, float second) {
      store_shared_64(mine + pair * 128 * 8, first, second);
    });
    cluster_sync();
    constexpr int kShare = kPairs / kCluster;
    static_assert(kPairs % kCluster == 0, "every block of a cluster adds up as many sums");
    const int begin = static_cast<int>(cluster_rank()) * kShare;
#pragma unroll 4
    for (int pair = begin; pair < begin + kShare; ++pair) {
      float v[kCluster][2];
#pragma unroll
      for (int rank = 0; rank < kCluster; ++rank) load_cluster(mine + pair * 128 * 8, rank, v[rank]);
      float first = v[0][0], second = v[0][1];
#pragma unroll
      for (int rank = 1; rank < kCluster; ++rank) first += v[rank][0], second += v[rank][1];
      store_pair(p, work, consumer, pair, first, second);
    }
    cluster_sync();  // the others have read what is here
  }
}

// A cluster's barriers count the producers' threads too.
__device__ __forceinline__ void help_finish() {
  if constexpr (kCluster > 1) {
    cluster_sync();
    cluster_sync();
  }
}
