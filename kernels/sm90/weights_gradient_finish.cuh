// What becomes of a block's sums. Part of the kernels of the weights' gradient, which define Sums and for_each_pair(sums,
// visit(pair, first, second)), of this thread.
#pragma once

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
    float* const to = reinterpret_cast<float*>(part) + tap_of(at) * p.c_pitch + at.c;
    if (at.c >= 0) to[0] = first;
    if (at.c + 1 < p.c_pitch) to[1] = second;
  } else {
    store_pair(p, at, first, second);
  }
}

__device__ __forceinline__ void store_runs(const Sums& sums, const Params& p, const Work& work, int consumer) {
  unsigned words[kPairs];
  for_each_pair(sums, [&](int pair, float first, float second) { words[pair] = round_to_elements(first, second); });
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    if (pair % 8 > 1) continue;
    unsigned run[4] = {words[pair], words[pair + 2], words[pair + 4], words[pair + 6]};
    store_run(p, work, consumer, threadIdx.x % 128, pair, run);
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

__device__ __forceinline__ void finish(const Sums& sums, const Params& p, const Work& work, unsigned memory,
                                       int consumer) {
  if constexpr (kCluster == 1) {
    if constexpr (kConfig.result == Result::whole && stores_runs(kConfig)) {
      if (p.c % 8 == 0) {
        store_runs(sums, p, work, consumer);
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
      put_pair(p, work, consumer, pair, first, second);
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
