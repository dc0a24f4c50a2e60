// A linear layer of few rows: y[row][n] = ACTIVATED(bias[n] + the sum over k of weights[n][k] x[row][k]), in fp32.
//
// LANES threads share a result of all rows, each with every LANES-th run of V terms; a block has THREADS / LANES results.
// The first AHEAD runs of the weights, which no kernel writes, are on their way before the kernel in front has ended. The
// host defines THREADS, LANES, ROWS and AHEAD; FROM_TYPE, WEIGHT_TYPE, TO_TYPE; ACTIVATED(x) in the words of chain.h; and
// what elements.h asks for.
#include "kernels/gpu/elements.h"
#include "kernels/gpu/chain.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

#define RESULTS (THREADS / LANES)
#define LINE (LANES + 1)
#define BEGIN(run) ((lane + (run) * LANES) * V)
// What is read before and behind a wait. Not restricted: CUDA's compiler takes that for constants, and moves loads of
// weights behind the wait and those of x before it.
#ifdef __CUDA_ARCH__
#define F_IN_ORDER(type, name) const type* name##_buffer
#else
#define F_IN_ORDER F_INPUT
#endif

// To each row's sum: a run of weights times its terms.
#define ADD_RUN(w, k)                                         \
  F_UNROLL                                                    \
  for (int r = 0; r < ROWS; ++r) {                            \
    float terms_of_row[V];                                    \
    JOINED(read_, FROM_TYPE)(x + r * terms + k, terms_of_row); \
    F_UNROLL                                                  \
    for (int j = 0; j < V; ++j) sums[r] += (w)[j] * terms_of_row[j]; \
  }

F_KERNEL(THREADS)
layer(F_IN_ORDER(JOINED(FROM_TYPE, _t), x), F_IN_ORDER(JOINED(WEIGHT_TYPE, _t), weights), F_IN_ORDER(float, bias),
      F_OUTPUT(JOINED(TO_TYPE, _t), y), i64 size_of_terms, i64 size_of_results) {
  F_LOCAL_ARRAY(float, parts, ROWS * RESULTS * LINE);
  F_LET_NEXT_BEGIN();
  F_OPEN_INPUT(JOINED(FROM_TYPE, _t), x);
  F_OPEN_INPUT(JOINED(WEIGHT_TYPE, _t), weights);
  F_OPEN_INPUT(float, bias);
  F_OPEN_OUTPUT(JOINED(TO_TYPE, _t), y);
  const index_t terms = (index_t)size_of_terms, results = (index_t)size_of_results;
  const int t = F_THREAD(), lane = t % LANES, own = t / LANES;
  const index_t begin = (index_t)F_BLOCK(0) * RESULTS, result = begin + own;
  const index_t line = (result < results ? result : 0) * terms;
  // Of the sum that this thread completes.
  const index_t last = begin + t % RESULTS;
  const bool completes = t < ROWS * RESULTS && last < results;

  float ahead[AHEAD * V];
  F_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (BEGIN(i) < terms) JOINED(read_, WEIGHT_TYPE)(weights + line + BEGIN(i), ahead + i * V);
  }
  const float from = completes ? bias[last] : 0.0f;
  F_WAIT_FOR_PREVIOUS();

  float sums[ROWS];
  F_UNROLL
  for (int r = 0; r < ROWS; ++r) sums[r] = 0.0f;
  F_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (BEGIN(i) < terms) ADD_RUN(ahead + i * V, BEGIN(i))
  }
  for (index_t k = BEGIN(AHEAD); k < terms; k += LANES * V) {
    float w[V];
    JOINED(read_, WEIGHT_TYPE)(weights + line + k, w);
    ADD_RUN(w, k)
  }
  F_UNROLL
  for (int r = 0; r < ROWS; ++r) parts[(r * RESULTS + own) * LINE + lane] = sums[r];
  F_BARRIER();
  if (completes) {
    float sum = from;
    F_UNROLL
    for (int l = 0; l < LANES; ++l) sum += parts[t * LINE + l];
    JOINED(put_, TO_TYPE)(y, (t / RESULTS) * results + last, ACTIVATED(sum));
  }
}
