// A copy between strides. The host defines THREADS, RANK, BYTES of an element (1, 2, 4, 8 or 16), and WIDE as
// index.h has it.
#include "kernels/gpu/index.h"
#include "kernels/gpu/raw_element.h"

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
    index_t here = z.begin[0], there = z.begin[1];
    F_ADD_DIGITS(i, z, here, there)
    to[there] = from[here];
  }
}
