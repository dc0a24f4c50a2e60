// What the blocks of a cluster (of Hopper's and later chips) send each other: a barrier of the block that
// gets it counts its bytes. Without a fence for all memory, which takes a microsecond.
#pragma once

// By one thread: so many bytes will come. The barrier has 8 bytes of local memory.
F_DEVICE void expect_sent(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// By all threads: after the second, what all blocks expected before the first is known.
F_DEVICE void greet_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
F_DEVICE void meet_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Four numbers to that place and barrier of the cluster's block `rank`.
F_DEVICE void send_four(const float* v, u32 to, u32 barrier, u32 rank) {
  u32 there, there_known;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there_known) : "r"(barrier), "r"(rank));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          there),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(there_known)
      : "memory");
}
F_DEVICE void wait_for_sent(u32 barrier) {
  asm volatile(
      "{.reg .pred done;\n"
      "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra WAIT;}" ::"r"(barrier)
      : "memory");
}
