// Words of shared and of global memory, as instructions that have no C++ spelling of their own: where compilers would make
// a branch, or other words, of what was written.
#pragma once

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

// 16 bytes as elements.
template <class Element>
union Chunk {
  Element e[16 / sizeof(Element)];
  unsigned words[4];
  uint4 all;
};

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
