// A copy between strides. The host defines THREADS, RANK, BYTES of an element (1, 2, 4, 8 or 16), and WIDE as
// elements.h has it.
#if WIDE
typedef i64 index_t;
#else
typedef int index_t;
#endif
#if BYTES == 1
typedef char element_t;
#elif BYTES == 2
typedef u16 element_t;
#elif BYTES == 4
typedef u32 element_t;
#elif BYTES == 8
typedef i64 element_t;
#else
typedef uint4 element_t;
#endif

// As in src/network/device_map.cpp.
typedef struct {
  index_t count;
  index_t sizes[RANK];
  index_t begin[2];
  index_t strides[2][RANK];
} CopySizes;

F_KERNEL(THREADS)
copy(F_INPUT(element_t, from), F_OUTPUT(element_t, to), CopySizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < z.count; i += (index_t)F_BLOCKS(0) * THREADS) {
    index_t rest = i, here = z.begin[0], there = z.begin[1];
    F_UNROLL
    for (int d = RANK - 1; d >= 0; --d) {
      const index_t next = d == 0 ? 0 : rest / z.sizes[d], digit = rest - next * z.sizes[d];
      rest = next;
      here += digit * z.strides[0][d];
      there += digit * z.strides[1][d];
    }
    to[there] = from[here];
  }
}
