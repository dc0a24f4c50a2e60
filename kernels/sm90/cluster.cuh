// What the blocks of a cluster put into each other's shared memory, without a fence for all memory: one takes a
// microsecond, and what is stored so comes with a count of its bytes.
#pragma once

// The place that the cluster's block `rank` has where this one has `at`.
__device__ __forceinline__ unsigned in_cluster(unsigned at, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}
// Four words to there, and their bytes to that block's barrier.
__device__ __forceinline__ void store_async(unsigned there, float a, float b, float c, float d, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}
// Among the threads of all its blocks that have not ended. Of what they wrote before, barriers that a fence of their own
// made known are seen after, and nothing else.
__device__ __forceinline__ void cluster_meets() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
