// The index of the largest element along the middle one of three dimensions (of the smallest where SIGN is -1.0f); of equal
// ones the first, or the last where OF_EQUAL_last is defined. A thread a column. The host defines THREADS, FROM_TYPE and
// what elements.h asks for.
#include "kernels/gpu/elements.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

F_KERNEL(THREADS)
best(F_INPUT(JOINED(FROM_TYPE, _t), from), F_OUTPUT(i64, to), i64 columns, i64 length, i64 inner_size) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(JOINED(FROM_TYPE, _t), from);
  F_OPEN_OUTPUT(i64, to);
  const index_t count = (index_t)columns, inner = (index_t)inner_size;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t outer = i / inner, begin = outer * (index_t)length * inner + (i - outer * inner);
    float most = SIGN * JOINED(get_, FROM_TYPE)(from, begin);
    i64 at = 0;
    for (i64 row = 1; row < length; ++row) {
      const float x = SIGN * JOINED(get_, FROM_TYPE)(from, begin + (index_t)row * inner);
#ifdef OF_EQUAL_last
      const bool better = x >= most;
#else
      const bool better = x > most;
#endif
      most = better ? x : most;
      at = better ? row : at;
    }
    to[i] = at;
  }
}
