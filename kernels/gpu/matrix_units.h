// NVIDIA's matrix units and the copies that feed them, as every chip since compute capability 8.0 has them.
//
// After convolution.h, whose DTYPE decides the product.
#pragma once

F_DEVICE u32 local_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// 16 bytes to local memory behind the caller's back, or zeros.
F_DEVICE void copy_chunk(u32 to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
}
F_DEVICE void copy_chunk_if(bool may, u32 to, const void* from, bool wanted) {
  asm volatile(
      "{.reg .pred p; setp.ne.u32 p, %3, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %2;}" ::"r"(to),
      "l"(from), "r"(wanted ? 16 : 0), "r"((u32)may)
      : "memory");
}
F_DEVICE void store_chunk(u32 to, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
F_DEVICE void load_matrices(u32 from, u32* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}
F_DEVICE void load_matrices_transposed(u32 from, u32* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}
F_DEVICE u32 load_word(u32 from) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
// An element of a tensor that is only read, or zero, without a branch: the compiler makes one load after the
// other of many, where it would else look at each path.
F_DEVICE element_t load_or_zero(const element_t* from, bool wanted) {
#ifdef DTYPE_f32
  float v;
  asm("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.f32 %0, 0f00000000; @p ld.global.nc.f32 %0, [%1];}"
      : "=f"(v)
      : "l"(from), "r"((u32)wanted));
#else
  u16 v;
  asm("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.u16 %0, 0; @p ld.global.nc.u16 %0, [%1];}"
      : "=h"(v)
      : "l"(from), "r"((u32)wanted));
#endif
  return v;
}
F_DEVICE u32 to_tf32(u32 v) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "r"(v));
  return v;
}

// 16 x 8 sums += 16 pixels x (16 or, of 32-bit elements, 8) steps x 8 channels.
#ifdef DTYPE_f16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
#ifdef DTYPE_bf16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
#ifdef DTYPE_f32
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
F_DEVICE void multiply(const u32* a, const u32* b, float* d) {
  asm(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
