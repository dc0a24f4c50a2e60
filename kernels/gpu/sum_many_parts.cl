// The host defines THREADS and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define ELEMENTS 32  // of a block; so many threads side by side
#define ROWS (THREADS / ELEMENTS)
#define AT_ONCE 8  // so many loads are under way

// The sum of many parts of a filter's gradient, [split][the filter as it lies in memory], always in the same order:
// each row of a block adds up every ROWS-th part, then the rows are added up.
F_KERNEL(THREADS)
sum_many_parts(F_INPUT(float, partial), F_OUTPUT(element_t, w), int splits, Sizes z) {
  F_LOCAL_ARRAY(float, parts, THREADS);
  F_OPEN_INPUT(float, partial);
  F_OPEN_OUTPUT(element_t, w);
  const index_t count = (index_t)z.k * R * S * z.group_c;
  const index_t element = (index_t)F_BLOCK(0) * ELEMENTS + F_THREAD() % ELEMENTS;
  const int row = F_THREAD() / ELEMENTS;
  float sum = 0.0f;
  F_WAIT_FOR_PREVIOUS();
  for (int split = row; split < splits; split += ROWS * AT_ONCE) {
    float loaded[AT_ONCE];
    F_UNROLL
    for (int i = 0; i < AT_ONCE; ++i) {
      const int from = split + i * ROWS;
      loaded[i] = element < count && from < splits ? partial[(size_t)from * count + element] : 0.0f;
    }
    F_UNROLL
    for (int i = 0; i < AT_ONCE; ++i) sum += loaded[i];
  }
  parts[F_THREAD()] = sum;
  F_BARRIER();
  if (row > 0 || element >= count) return;
  float total = 0.0f;
  F_UNROLL
  for (int i = 0; i < ROWS; ++i) total += parts[i * ELEMENTS + F_THREAD()];
  F_STORE(w, element, total);
}
