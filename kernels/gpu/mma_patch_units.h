// What the kernels whose blocks bring patches ask of the matrix units and of the copies that feed them,
// beside what matrix_units.h has. After convolution.h.
#pragma once
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/matrix_units.h"

// At the top of a file: all local memory that a launch asks for.
#define F_ALL_LOCAL_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

// 16 x 8 sums += 16 pixels x 8 channels x 8 channels.
#ifdef DTYPE_f16
#define MMA_EIGHT "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
#else
#define MMA_EIGHT "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
#endif
F_DEVICE void multiply_eight(const u32* a, const u32* b, float* d) {
  asm(MMA_EIGHT " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

// copy_chunk_if, and all of its line into the cache: neighbouring blocks bring the rest.
F_DEVICE void copy_piece_if(bool may, u32 to, const void* from, bool wanted) {
  asm volatile(
      "{.reg .pred p; setp.ne.u32 p, %3, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;}" ::"r"(
          to),
      "l"(from), "r"(wanted ? 16 : 0), "r"((u32)may)
      : "memory");
}
// Into the cache of all multiprocessors alone: what is written there meanwhile is not missed.
F_DEVICE void ask_for(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// The copies since the last such call are one group. All of a thread's groups but the last so many are there.
F_DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
F_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
