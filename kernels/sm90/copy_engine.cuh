// Hopper's bulk copy engine: boxes of tensors and runs of bytes between global and shared memory.
#pragma once

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void load_2d(unsigned to, const TensorMap* map, unsigned barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void load_3d(unsigned to, const TensorMap* map, unsigned barrier, int c0, int c1,
                                        int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void load_4d(unsigned to, const TensorMap* map, unsigned barrier, int c0, int c1,
                                        int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// To the same place of every block of the cluster whose rank is in the mask, and its barrier there.
__device__ __forceinline__ void load_4d_multicast(unsigned to, const TensorMap* map, unsigned barrier,
                                                  unsigned short ranks, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ void load_5d_multicast(unsigned to, const TensorMap* map, unsigned barrier,
                                                  unsigned short ranks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ void load_5d(unsigned to, const TensorMap* map, unsigned barrier, int c0, int c1,
                                        int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// A column of pixels from the base pixel (w, h, n) on, each moved by (dw, dh): one filter tap.
__device__ __forceinline__ void load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int c, int w,
                                            int h, int n, unsigned short dw, unsigned short dh) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6}], [%2], {%7, %8};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
      : "memory");
}

// The same of volumes, from (w, h, d, n) on.
__device__ __forceinline__ void load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int c, int w,
                                            int h, int d, int n, unsigned short dw, unsigned short dh,
                                            unsigned short dd) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "h"(dw), "h"(dh), "h"(dd)
      : "memory");
}

// Into the cache of all multiprocessors alone: what is written there meanwhile is not missed.
__device__ __forceinline__ void prefetch_3d(const TensorMap* map, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(c0),
               "r"(c1), "r"(c2)
               : "memory");
}

__device__ __forceinline__ void store_2d(const TensorMap* map, unsigned from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1)
               : "memory");
}

__device__ __forceinline__ void store_3d(const TensorMap* map, unsigned from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

__device__ __forceinline__ void store_4d(const TensorMap* map, unsigned from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

__device__ __forceinline__ void store_5d(const TensorMap* map, unsigned from, int c0, int c1, int c2, int c3,
                                         int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Contiguous bytes; addresses and count are multiples of 16.
__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_bytes(void* to, unsigned from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the copy engine has read what was to be stored, but for the last so many groups.
template <int kPending = 0>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Ordinary writes to shared memory before it are seen by the copy engine and the matrix units after it.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
