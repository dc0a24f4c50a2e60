// Hopper's instructions that have no C++ spelling of their own, one small function each.
#pragma once

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

__device__ __forceinline__ unsigned smem_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ------------------------------------------------------------------------------------------- mbarriers

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Named barriers among some of a block's warps.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// -------------------------------------------------------------------------------- the bulk copy engine

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

// Contiguous bytes; addresses and count are multiples of 16.
__device__ __forceinline__ void store_5d(const TensorMap* map, unsigned from, int c0, int c1, int c2, int c3,
                                         int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

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

// --------------------------------------------------------------------------- ordinary shared memory

__device__ __forceinline__ void store_shared_16(unsigned address, unsigned value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(static_cast<unsigned short>(value)) : "memory");
}

__device__ __forceinline__ void store_shared_32(unsigned address, unsigned value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared_64(unsigned address, unsigned first, unsigned second) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}
__device__ __forceinline__ void store_shared_64(unsigned address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}
__device__ __forceinline__ void load_shared_128(unsigned address, unsigned (&v)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_shared_128(unsigned address, const unsigned (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]),
               "r"(v[3])
               : "memory");
}

// Without a branch.
__device__ __forceinline__ void store_shared_128_if(unsigned address, const unsigned (&v)[4], bool condition) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p st.shared.v4.b32 [%0], {%1, %2, %3, %4};}" ::"r"(address),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(static_cast<int>(condition))
               : "memory");
}
__device__ __forceinline__ void store_shared_32_if(unsigned address, unsigned v, bool condition) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p st.shared.b32 [%0], %1;}" ::"r"(address), "r"(v),
               "r"(static_cast<int>(condition))
               : "memory");
}

// From global memory that nothing writes, or zeros.
__device__ __forceinline__ void load_global_128_if(const float* from, unsigned (&v)[4], bool condition) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
      "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
      : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
      : "l"(from), "r"(static_cast<int>(condition)));
}

__device__ __forceinline__ void store_shared_16_if(unsigned address, unsigned v, bool condition) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p st.shared.b16 [%0], %1;}" ::"r"(address),
               "h"(static_cast<unsigned short>(v)), "r"(static_cast<int>(condition))
               : "memory");
}

// Words of kBytes, a power of two up to 16.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = unsigned;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <int kBytes>
using Word = typename WordOf<kBytes>::Type;

// 2 or 4 bytes.
template <int kBytes>
__device__ __forceinline__ void load_shared(unsigned address, unsigned& v) {
  if constexpr (kBytes == 4) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  } else {
    asm volatile("{.reg .b16 h; ld.shared.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "r"(address) : "memory");
  }
}

// From global memory that nothing writes, or zeros; kBytes / 4 registers, at least one.
template <int kBytes>
__device__ __forceinline__ void load_global_if(const void* from, unsigned (&v)[kBytes < 4 ? 1 : kBytes / 4],
                                               bool condition) {
  const int yes = condition;
  if constexpr (kBytes == 16) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
        "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
        : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
        : "l"(from), "r"(yes));
  } else if constexpr (kBytes == 8) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; @p ld.global.nc.v2.b32 {%0, %1}, "
        "[%2];}"
        : "=&r"(v[0]), "=&r"(v[1])
        : "l"(from), "r"(yes));
  } else if constexpr (kBytes == 4) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.nc.b32 %0, [%1];}"
                 : "=&r"(v[0])
                 : "l"(from), "r"(yes));
  } else {
    asm volatile(
        "{.reg .pred p; .reg .b16 h; setp.ne.b32 p, %2, 0; mov.b16 h, 0; @p ld.global.nc.b16 h, [%1];\n"
        "cvt.u32.u16 %0, h;}"
        : "=&r"(v[0])
        : "l"(from), "r"(yes));
  }
}

// From global to shared memory without waiting, 4 or 8 bytes, or zeros; in groups, whose last so many may be under way.
template <int kBytes>
__device__ __forceinline__ void load_async(unsigned to, const void* from, bool condition) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
               "r"(condition ? kBytes : 0)
               : "memory");
}
__device__ __forceinline__ void load_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void load_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// From shared memory.
template <int kBytes>
__device__ __forceinline__ Word<kBytes> load_word(unsigned from) {
  Word<kBytes> v;
  if constexpr (kBytes == 16) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  } else {
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
  }
  return v;
}

// ------------------------------------------------------------------------------------- matrix fragments

__device__ __forceinline__ void store_matrices(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_matrices_transposed(unsigned address, unsigned a, unsigned b, unsigned c,
                                                          unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void load_matrices(unsigned address, unsigned& a, unsigned& b, unsigned& c,
                                              unsigned& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(unsigned address, unsigned& a, unsigned& b, unsigned& c,
                                                         unsigned& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// ------------------------------------------------------------------------------------------ the cluster

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Among the threads of all its blocks that have not ended; what they wrote to shared memory before is seen after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}
// At the barrier that the cluster's block `rank` has in this one's place.
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(
          barrier),
      "r"(rank)
      : "memory");
}
// Words of the shared memory of the cluster's block `rank`, where this block has them at `from`.
template <int kCount>
__device__ __forceinline__ void load_cluster(unsigned from, unsigned rank, float (&v)[kCount]) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(rank));
  if constexpr (kCount == 4) {
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(there)
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(there) : "memory");
  } else {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v[0]) : "r"(there) : "memory");
  }
}

// ------------------------------------------------------------------------------------------- the block

template <int kRegisters>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic dependent launch: the next kernel may begin; wait for the one before.
__device__ __forceinline__ void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
