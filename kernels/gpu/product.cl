// Products of matrices in batches, all contiguous: y[m][n] = the sum over k of a[m][k] b[k][n], in fp32. A thread computes
// V neighbours of a row. The host defines THREADS, A_TYPE, B_TYPE, TO_TYPE, and what elements.h asks for.
#include "kernels/gpu/elements.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

// begins: of each batch the first element of its a, and of its b.
F_KERNEL(THREADS)
product(F_INPUT(JOINED(A_TYPE, _t), a), F_INPUT(JOINED(B_TYPE, _t), b), F_INPUT(i64, begins),
        F_OUTPUT(JOINED(TO_TYPE, _t), y), i64 units, i64 rows, i64 columns, i64 terms) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(JOINED(A_TYPE, _t), a);
  F_OPEN_INPUT(JOINED(B_TYPE, _t), b);
  F_OPEN_INPUT(i64, begins);
  F_OPEN_OUTPUT(JOINED(TO_TYPE, _t), y);
  const index_t count = (index_t)units, across = (index_t)columns / V, depth = (index_t)terms;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t line = i / across, column = (i - line * across) * V, batch = line / (index_t)rows;
    const index_t row = (index_t)begins[2 * batch] + (line - batch * (index_t)rows) * depth;
    const index_t matrix = (index_t)begins[2 * batch + 1] + column;
    float sums[V];
    F_UNROLL
    for (int j = 0; j < V; ++j) sums[j] = 0.0f;
    for (index_t k = 0; k < depth; ++k) {
      const float x = JOINED(get_, A_TYPE)(a, row + k);
      float w[V];
      JOINED(read_, B_TYPE)(b + matrix + k * (index_t)columns, w);
      F_UNROLL
      for (int j = 0; j < V; ++j) sums[j] += x * w[j];
    }
    JOINED(write_, TO_TYPE)(y + i * V, sums);
  }
}
