// A copy between strides. The host defines THREADS, RANK, BYTES of an element (1, 2, 4, 8 or 16), TOGETHER: so many
// elements of a thread are on their way at once; and WIDE as index.h has it.
#include "kernels/gpu/digits.h"
#include "kernels/gpu/raw_element.h"

// As in src/network/device_map.cpp.
typedef struct {
  index_t count;
  Divisor sizes[RANK];
  index_t begin[2];
  index_t strides[2][RANK];
} CopySizes;

F_KERNEL(THREADS)
copy(F_INPUT(element_t, from), F_OUTPUT(element_t, to), CopySizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  const index_t step = (index_t)F_BLOCKS(0) * THREADS;
  F_NO_UNROLL  // most threads have one turn
  for (index_t first = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); first < z.count; first += TOGETHER * step) {
    element_t element[TOGETHER];
    index_t places[TOGETHER];
    F_UNROLL
    for (int j = 0; j < TOGETHER; ++j) {
      const index_t i = first + j * step < z.count ? first + j * step : first;
      index_t here = z.begin[0], there = z.begin[1];
      F_ADD_DIGITS(i, z, here, there)
      element[j] = from[here];
      places[j] = there;
    }
    F_UNROLL
    for (int j = 0; j < TOGETHER; ++j) {
      if (j == 0 || first + j * step < z.count) to[places[j]] = element[j];
    }
  }
}
