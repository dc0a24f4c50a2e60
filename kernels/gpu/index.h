// Where an element lies. The host defines WIDE, 1 where a tensor has 2^30 elements or more.
#pragma once

#if WIDE
typedef i64 index_t;
#else
typedef int index_t;
#endif

// Adds to two tensors' places what has this index in the row-major order of z.sizes: RANK digits, a stride
// each.
#define F_ADD_DIGITS(index, z, here, there)                                                  \
  {                                                                                          \
    index_t rest = index;                                                                    \
    F_UNROLL                                                                                 \
    for (int d = RANK - 1; d >= 0; --d) {                                                    \
      const index_t next = d == 0 ? 0 : rest / z.sizes[d], digit = rest - next * z.sizes[d]; \
      rest = next;                                                                           \
      here += digit * z.strides[0][d];                                                       \
      there += digit * z.strides[1][d];                                                      \
    }                                                                                        \
  }
