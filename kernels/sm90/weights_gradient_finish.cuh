// What becomes of a block's sums. Part of the kernels of the weights' gradient, which define Sums and for_each_pair(sums,
// visit(pair, first, second)), of this thread.
#pragma once

#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/weights_gradient_store.cuh"
#include "kernels/sm90/words.cuh"

// The gradient itself, or the block's part of it, which weights_gradient_sum.cu puts where it belongs: as the threads have
// it, but of groups, whose sums are few of the block's, as the filter has them.
__device__ __forceinline__ void put_pair(const Params& p, const Work& work, int consumer, int pair, float first,
                                         float second) {
  const int thread = threadIdx.x % 128;
  float2* const part = static_cast<float2*>(p.parts) + work.share / kCluster * p.part_pairs;
  if constexpr (kConfig.result == Result::parts && !kConfig.grouped()) {
    const int within = (consumer * kPairs + pair) * 128 + thread;
    part[static_cast<long long>(work.result) * kPartPairs + within] = float2{first, second};
    return;
  }
  Place at;
  if (!in_filter(p, work, place_of(consumer, thread, pair), at)) return;
  if constexpr (kConfig.result == Result::parts) {
    const int tap = (at.k * kConfig.r + at.r) * kConfig.s + at.s;  // of 2^30 at most
    float* const to = reinterpret_cast<float*>(part) + static_cast<long long>(tap) * p.c_pitch + at.c;
    if (at.c >= 0) to[0] = first;
    if (at.c + 1 < p.c_pitch) to[1] = second;
  } else {
    store_pair(p, at, first, second);
  }
}

constexpr bool kStoresRuns = kConfig.result == Result::whole && stores_runs(kConfig);

// A thread's pairs from kFirst on.
template <int kFirst, int kCount>
__device__ __forceinline__ void store_runs(const float2 (&sums)[kCount], const Params& p, const Work& work,
                                           int consumer) {
  unsigned words[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = round_to_elements(sums[i].x, sums[i].y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i % 8 > 1) continue;
    unsigned run[4] = {words[i], words[i + 2], words[i + 4], words[i + 6]};
    store_run(p, work, consumer, threadIdx.x % 128, kFirst + i, run);
  }
}

constexpr int kEveryConsumer = 1;  // a named barrier

__device__ __forceinline__ void store_filters(const Sums& sums, const Params& p, const Work& work, unsigned memory,
                                              int consumer) {
  constexpr int kPitch = filter_pitch(kConfig), kChunks = filter_chunks(kConfig);
  named_sync(kEveryConsumer, kConsumers * 128);  // all have read their operands
  for_each_pair(sums, [&](int pair, float first, float second) {
    const Place at = place_of(consumer, threadIdx.x % 128, pair);
    const unsigned to = memory + at.k * kPitch + (at.c * kTaps + at.r * kConfig.s + at.s) * 2;
    store_shared_16(to, round_to_element(first));
    store_shared_16(to + kTaps * 2, round_to_element(second));
  });
  named_sync(kEveryConsumer, kConsumers * 128);
  const int chunks = (p.c - work.c) * kTaps / 8;  // of the filter's channels from here on
  for (int i = threadIdx.x; i < kConfig.k_blocks * kOutChannels * kChunks; i += kConsumers * 128) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (work.k + row >= work.k_end || chunk >= chunks) continue;
    unsigned v[4];
    load_shared_128(memory + row * kPitch + chunk * 16, v);
    const long long to = (static_cast<long long>(work.k + row) * p.c + work.c) * kTaps / 8 + chunk;
    static_cast<uint4*>(p.dw)[to] = uint4{v[0], v[1], v[2], v[3]};
  }
}

__device__ __forceinline__ void load_pairs(unsigned at, float2& first, float2& second) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(first.x), "=f"(first.y), "=f"(second.x), "=f"(second.y)
               : "r"(at)
               : "memory");
}

__device__ __forceinline__ void init_join(unsigned memory) {
  if constexpr (kCluster > 1) {
    const JoinBarriers barriers = join_barriers(memory);
    barrier_init(barriers.read, kConsumers);
    barrier_init(barriers.joined, 1);
    barrier_expect(barriers.joined, sum_bytes(kConfig));
  }
}
// After a thread has made them: this block's, and where others use them the cluster's. That needs no more than
// the barriers' own fence: one for all memory takes a microsecond.
template <bool kOfCluster>
__device__ __forceinline__ void barriers_are_there() {
  if constexpr (kOfCluster) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  } else {
    __syncthreads();
  }
}

// Of two blocks' sums each adds up half of the pairs: the other block puts its own of these into this one's shared memory,
// where the operands were, when this one's consumers have read them.
template <int kRank>
__device__ __forceinline__ void join(const Sums& sums, const Params& p, const Work& work, unsigned memory,
                                     int consumer) {
  static_assert(kPairs % 4 == 0, "each block adds up as many sums, by fours");
  constexpr int kHalf = kPairs / 2, kFirst = kRank * kHalf, kOther = kHalf - kFirst;
  const JoinBarriers barriers = join_barriers(memory);
  const unsigned mine = memory + (consumer * kHalf / 2 * 128 + threadIdx.x % 128) * 16;
  const unsigned theirs = in_cluster(mine, 1 - kRank), joined = in_cluster(barriers.joined, 1 - kRank);
  float2 all[kPairs];
  for_each_pair(sums, [&](int pair, float first, float second) { all[pair] = {first, second}; });
  if (threadIdx.x % 128 == 0) barrier_arrive_at(barriers.read, 1 - kRank);
  barrier_wait(barriers.read, 0);
#pragma unroll
  for (int i = 0; i < kHalf; i += 2) {
    const float2 one = all[kOther + i], other = all[kOther + i + 1];
    store_async(theirs + i / 2 * 128 * 16, one.x, one.y, other.x, other.y, joined);
  }
  barrier_wait(barriers.joined, 0);
  float2 own[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; i += 2) {
    load_pairs(mine + i / 2 * 128 * 16, own[i], own[i + 1]);
    own[i].x += all[kFirst + i].x, own[i].y += all[kFirst + i].y;
    own[i + 1].x += all[kFirst + i + 1].x, own[i + 1].y += all[kFirst + i + 1].y;
  }
  if constexpr (kStoresRuns && kHalf % 8 == 0) {
    if (p.c % 8 == 0) {
      store_runs<kFirst>(own, p, work, consumer);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kHalf; ++i) put_pair(p, work, consumer, kFirst + i, own[i].x, own[i].y);
}

__device__ __forceinline__ void finish(const Sums& sums, const Params& p, const Work& work, unsigned memory,
                                       int consumer) {
  if constexpr (kCluster > 1) {
    if (cluster_rank() == 0) {
      join<0>(sums, p, work, memory, consumer);
    } else {
      join<1>(sums, p, work, memory, consumer);
    }
    return;
  }
  if constexpr (kStoresRuns) {
    if (p.c % 8 == 0) {
      float2 all[kPairs];
      for_each_pair(sums, [&](int pair, float first, float second) { all[pair] = {first, second}; });
      store_runs<0>(all, p, work, consumer);
      return;
    }
  }
  if constexpr (has_filters(kConfig)) {
    if (p.c % 8 == 0) {
      store_filters(sums, p, work, memory, consumer);
      return;
    }
  }
  for_each_pair(sums,
                [&](int pair, float first, float second) { put_pair(p, work, consumer, pair, first, second); });
}
