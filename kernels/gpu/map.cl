// An elementwise chain over broadcast and strided tensors: a thread computes V neighbours along the last dimension, in
// ROWS indices of the dimension before that, which it reads before it computes. What is the same in all of those (a
// bias, the moments of a group) it reads once.
//
// The host defines THREADS; RANK; ROWS; INPUTS, how many; OPERANDS(X), an X(number, type, how, rows) for each: how it
// lies along the last dimension: `together`, `alone` (one element for all) or `apart` (with a stride), and in how many of
// the rows it differs, ROWS or 1; RESULT_TYPE, and RESULT_APART where it has a stride; CHAIN and RESULT (chain.h); and
// what elements.h asks for.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/chain.h"
#include "kernels/gpu/digits.h"
#include "kernels/gpu/operands.h"

// As in src/network/device_map.cpp. The last size is in units of V, and so are the last strides; the dimension before it
// in units of ROWS; steps and rows: between neighbours, and from row to row. The result is the last operand.
typedef struct {
  index_t count;  // of units
  Divisor sizes[RANK];
  index_t begin[INPUTS + 1], steps[INPUTS + 1], rows[INPUTS + 1];
  index_t strides[INPUTS + 1][RANK];
} MapSizes;

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define RESULT_T JOINED(RESULT_TYPE, _t)

#define PARAMETER(i, type, how, count) F_INPUT(type##_t, x##i),
#define OPEN(i, type, how, count) F_OPEN_INPUT(type##_t, x##i);
#define READ(i, type, how, count)         \
  float all##i[count][V];                 \
  F_UNROLL                                \
  for (int row = 0; row < count; ++row) { \
    how(type, x##i + (at[i] + row * z.rows[i]), z.steps[i], all##i[row]) \
  }
#define TAKE(i, type, how, count) const float v##i = all##i[count == 1 ? 0 : row][j];

// Blocks of a unit, so that some compute while others wait; more rows would leave two, by their registers.
#if ROWS > 1
#define BLOCKS 3
#else
#define BLOCKS 1
#endif

F_DENSE_KERNEL(THREADS, BLOCKS)
map(OPERANDS(PARAMETER) F_OUTPUT(RESULT_T, y), MapSizes z) {
  F_FOLLOW_PREVIOUS();
  OPERANDS(OPEN)
  F_OPEN_OUTPUT(RESULT_T, y);
  F_NO_UNROLL  // most threads have one turn
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < z.count; i += (index_t)F_BLOCKS(0) * THREADS) {
    index_t rest = i, at[INPUTS + 1];
    F_UNROLL
    for (int o = 0; o <= INPUTS; ++o) at[o] = z.begin[o];
    F_UNROLL
    for (int d = RANK - 1; d >= 0; --d) {
      const index_t next = d == 0 ? 0 : quotient(rest, z.sizes[d]), digit = rest - next * z.sizes[d].size;
      rest = next;
      F_UNROLL
      for (int o = 0; o <= INPUTS; ++o) at[o] += digit * z.strides[o][d];
    }
    OPERANDS(READ)
    F_UNROLL
    for (int row = 0; row < ROWS; ++row) {
      float results[V];
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        OPERANDS(TAKE)
        CHAIN
        results[j] = RESULT;
      }
      const index_t to = at[INPUTS] + row * z.rows[INPUTS];
#ifdef RESULT_APART
      F_UNROLL
      for (int j = 0; j < V; ++j) JOINED(put_, RESULT_TYPE)(y, to + j * z.steps[INPUTS], results[j]);
#else
      JOINED(write_, RESULT_TYPE)(y + to, results);
#endif
    }
  }
}
