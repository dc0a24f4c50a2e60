// What implicit_gemm_matrix.cl asks of an NVIDIA chip since compute capability 8.0, in PTX, which NVIDIA's
// compiler for OpenCL C takes: matrix units, and the copies that feed them. After convolution.h, whose DTYPE
// decides the product.
#pragma once

// 16 x 8 results += 16 pixels x (16 or, of 32-bit elements, 8) steps x 8 channels.
#ifdef DTYPE_f16
#define F_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
#ifdef DTYPE_bf16
#define F_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
#ifdef DTYPE_f32
#define F_MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
F_DEVICE float4 multiply_words(uint4 pixels, uint2 channels, float4 d) {
  float d0 = d.x, d1 = d.y, d2 = d.z, d3 = d.w;
  __asm__(F_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
          : "r"(pixels.x), "r"(pixels.y), "r"(pixels.z), "r"(pixels.w), "r"(channels.x), "r"(channels.y));
  return (float4)(d0, d1, d2, d3);
}
#ifdef DTYPE_f32
F_DEVICE u32 to_tf32(u32 v) {
  u32 rounded;
  __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "r"(v));
  return rounded;
}
#endif
// A row of this lane's to a lane each of its warp; all four matrices together.
F_DEVICE uint4 load_matrices(F_LOCAL const uint4* from) {
  u32 x, y, z, w;
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                   : "r"((u32)(size_t)from)
                   : "memory");
  return (uint4)(x, y, z, w);
}
// 16 bytes to local memory behind the caller's back, until it waits for them; or zeros.
F_DEVICE void copy_or_zero(F_LOCAL uint4* to, F_GLOBAL const char* from, int wanted) {
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)(size_t)to), "l"((ulong)from),
                   "r"(wanted ? 16 : 0)
                   : "memory");
}
#define CLOSE_COPIES() __asm__ volatile("cp.async.commit_group;" ::: "memory")
#define WAIT_FOR_COPIES(open) __asm__ volatile("cp.async.wait_group %0;" ::"n"(open) : "memory")
// Without a branch: the compiler makes one load after the other of many.
F_DEVICE element_t load_or_zero(F_GLOBAL const char* from, int wanted) {
#ifdef DTYPE_f32
  float v;
  __asm__("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.f32 %0, 0f00000000; @p ld.global.nc.f32 %0, [%1];}"
          : "=f"(v)
          : "l"((ulong)from), "r"(wanted));
#else
  u16 v;
  __asm__("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.u16 %0, 0; @p ld.global.nc.u16 %0, [%1];}"
          : "=h"(v)
          : "l"((ulong)from), "r"(wanted));
#endif
  return v;
}
F_DEVICE uint4 chunk_or_zero(F_GLOBAL const element_t* from, int wanted) {
  u32 x, y, z, w;
  __asm__(
      "{.reg .pred p; setp.ne.u32 p, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;"
      "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
      : "l"((ulong)from), "r"(wanted));
  return (uint4)(x, y, z, w);
}
#ifndef DTYPE_f32
F_DEVICE u32 pair_of(float low, float high) {
  u32 word;
#ifdef DTYPE_f16
  __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
  __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
  return word;
}
#endif
