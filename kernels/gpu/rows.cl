// Along the middle one of three dimensions (outer, length, inner), in fp32: reductions, softmax, standardizing.
//
// A block takes COLS columns, each shared by THREADS / COLS threads, whose parts meet in local memory; both are powers of
// two. A column is V neighbours of the inner dimension; where INNER_IS_ONE it is one, and a thread reads V of its rows at
// once. The host defines THREADS, COLS, FROM_TYPE, TO_TYPE; one of OP_sum, OP_max, OP_min, OP_sum_of_squares,
// OP_sum_of_sizes (reductions), OP_softmax, OP_log_softmax and OP_standardize; INNER_IS_ONE as 0 or 1; and what
// elements.h asks for. For standardizing rows (INNER_IS_ONE) in parts also OP_sum_of_deviations, of squares about the means
// of the rows that `parts_of_one` neighbours in the outer dimension are the parts of, and OP_inverse, 1 / sqrt(sum +
// epsilon).
#include "kernels/gpu/elements.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define FROM_T JOINED(FROM_TYPE, _t)
#define TO_T JOINED(TO_TYPE, _t)
#define READ JOINED(read_, FROM_TYPE)
#define WRITE JOINED(write_, TO_TYPE)

// A NaN on either side comes out.
F_DEVICE float larger(float a, float b) { return F_ISNAN(b) || b > a ? b : a; }
F_DEVICE float smaller(float a, float b) { return F_ISNAN(b) || b < a ? b : a; }
F_DEVICE float plus(float a, float b) { return a + b; }

#define PARTS (THREADS / COLS)
#define GROUPS (PARTS < 16 ? PARTS : 16)
// Neighbours that are columns of their own.
#if INNER_IS_ONE
#define LANES 1
#else
#define LANES V
#endif

// Of what each part has of a column, what all have, in all of them, and in each of the V. In two turns, neither with a
// loop around a barrier.
#define MEET(join, all)                                                                                               \
  F_UNROLL                                                                                                            \
  for (int j = LANES; j < V; ++j) all[0] = join(all[0], all[j]);                                                      \
  F_UNROLL                                                                                                            \
  for (int j = 0; j < LANES; ++j) parts[(part * COLS + column) * LANES + j] = all[j];                                 \
  F_BARRIER();                                                                                                        \
  if (part < GROUPS) {                                                                                                \
    F_UNROLL                                                                                                          \
    for (int j = 0; j < LANES; ++j) {                                                                                 \
      float met = all[j];                                                                                             \
      for (int p = part + GROUPS; p < PARTS; p += GROUPS) met = join(met, parts[(p * COLS + column) * LANES + j]);    \
      groups[(part * COLS + column) * LANES + j] = met;                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  F_BARRIER();                                                                                                        \
  F_UNROLL                                                                                                            \
  for (int j = 0; j < LANES; ++j) {                                                                                   \
    all[j] = groups[column * LANES + j];                                                                              \
    for (int p = 1; p < GROUPS; ++p) all[j] = join(all[j], groups[(p * COLS + column) * LANES + j]);                  \
  }                                                                                                                   \
  F_UNROLL                                                                                                            \
  for (int j = LANES; j < V; ++j) all[j] = all[0];

// ..., for all of the part's rows, some of which are on their way at once: ahead[AHEAD][V], behind the end the first of
// them once more.
#define AHEAD 4
#define EACH_ROWS_AHEAD(statements)                                         \
  for (index_t row = part; row < length; row += AHEAD * PARTS) {            \
    float ahead[AHEAD][V];                                                  \
    F_UNROLL                                                                \
    for (int k = 0; k < AHEAD; ++k) {                                       \
      const index_t next = row + k * PARTS;                                 \
      READ(from + begin + (next < length ? next : row) * stride, ahead[k]); \
    }                                                                       \
    statements                                                              \
  }
// ..., with x[V] the elements of each row.
#define EACH_AHEAD(statement)                       \
  F_UNROLL                                          \
  for (int k = 0; k < AHEAD; ++k) {                 \
    if (row + k * PARTS < length) {                 \
      const float* const x = ahead[k];              \
      F_UNROLL                                      \
      for (int j = 0; j < V; ++j) {                 \
        statement                                   \
      }                                             \
    }                                               \
  }
#define EACH_ROW(statement) EACH_ROWS_AHEAD(EACH_AHEAD(statement))
#define EACH_RESULT(value)                                \
  for (index_t row = part; row < length; row += PARTS) {  \
    float x[V];                                           \
    READ(from + begin + row * stride, x);                 \
    F_UNROLL                                              \
    for (int j = 0; j < V; ++j) x[j] = value;             \
    if (there) WRITE(to + begin + row * stride, x);       \
  }
// Where there is nothing but -Inf above it nothing is to be counted.
#define ABOVE(most) ((most) == -F_INFINITY ? 0.0f : (most))
#define FILL(array, value) \
  F_UNROLL                 \
  for (int j = 0; j < V; ++j) array[j] = value;

// rows_of_one: of a column, in units of V where INNER_IS_ONE; units: of V in the inner dimension.
F_KERNEL(THREADS)
#ifdef OP_sum_of_deviations
rows(F_INPUT(FROM_T, from), F_INPUT(float, means), F_OUTPUT(TO_T, to), i64 parts_of_one, i64 columns, i64 rows_of_one,
     i64 units, float scale, float epsilon) {
#else
rows(F_INPUT(FROM_T, from), F_OUTPUT(TO_T, to), i64 columns, i64 rows_of_one, i64 units, float scale, float epsilon) {
#endif
  F_LOCAL_ARRAY(float, parts, THREADS * LANES);
  F_LOCAL_ARRAY(float, groups, GROUPS * COLS * LANES);
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(FROM_T, from);
  F_OPEN_OUTPUT(TO_T, to);
#if INNER_IS_ONE
  const int part = F_THREAD() % PARTS, column = F_THREAD() / PARTS;
#else
  const int part = F_THREAD() / COLS, column = F_THREAD() % COLS;
#endif
  const index_t length = (index_t)rows_of_one, inner = (index_t)units, stride = inner * V;
  const index_t wanted = (index_t)F_BLOCK(0) * COLS + column, last = (index_t)columns - 1;
  const bool there = wanted <= last;
  const index_t mine = there ? wanted : last, outer = mine / inner;
  const index_t begin = (outer * length * inner + (mine - outer * inner)) * V;
  float all[V];
#if defined(OP_softmax) || defined(OP_log_softmax)
  // In one reading: the powers are of what is above the largest element so far, and scaled as a larger one comes.
  float most[V], own[V];
  FILL(own, -F_INFINITY)
  FILL(all, 0.0f)
  EACH_ROWS_AHEAD(FILL(most, own[j]) EACH_AHEAD(own[j] = larger(own[j], x[j]);)
                  FILL(all, all[j] * F_EXP(most[j] - ABOVE(own[j])))
                  EACH_AHEAD(all[j] += F_EXP(x[j] - ABOVE(own[j]));))
  FILL(most, own[j])
  MEET(larger, most)
  FILL(all, all[j] * F_EXP(own[j] - ABOVE(most[j])))
  MEET(plus, all)
#ifdef OP_softmax
  EACH_RESULT(F_EXP(x[j] - most[j]) / all[j])
#else
#ifdef __OPENCL_VERSION__
  FILL(all, log(all[j]))
#else
  FILL(all, logf(all[j]))
#endif
  EACH_RESULT(x[j] - most[j] - all[j])
#endif
#elif defined(OP_standardize)
  float mean[V];
  FILL(mean, 0.0f)
  EACH_ROW(mean[j] += x[j];)
  MEET(plus, mean)
  FILL(mean, mean[j] * scale)
  FILL(all, 0.0f)
  EACH_ROW(all[j] += (x[j] - mean[j]) * (x[j] - mean[j]);)
  MEET(plus, all)
#ifdef __OPENCL_VERSION__
  FILL(all, 1.0f / sqrt(all[j] * scale + epsilon))
#else
  FILL(all, 1.0f / sqrtf(all[j] * scale + epsilon))
#endif
  EACH_RESULT((x[j] - mean[j]) * all[j])
#else
#if defined(OP_max)
  FILL(all, -F_INFINITY)
  EACH_ROW(all[j] = larger(all[j], x[j]);)
  MEET(larger, all)
#elif defined(OP_min)
  FILL(all, F_INFINITY)
  EACH_ROW(all[j] = smaller(all[j], x[j]);)
  MEET(smaller, all)
#else
  FILL(all, 0.0f)
#if defined(OP_sum_of_squares)
  EACH_ROW(all[j] += x[j] * x[j];)
#elif defined(OP_sum_of_deviations)
  F_OPEN_INPUT(float, means);
  float mean[V];
  FILL(mean, means[mine / (index_t)parts_of_one])
  EACH_ROW(all[j] += (x[j] - mean[j]) * (x[j] - mean[j]);)
#elif defined(OP_sum_of_sizes)
  EACH_ROW(all[j] += x[j] < 0.0f ? -x[j] : x[j];)
#else
  EACH_ROW(all[j] += x[j];)
#endif
  MEET(plus, all)
#ifndef OP_inverse
  FILL(all, all[j] * scale)
#elif defined(__OPENCL_VERSION__)
  FILL(all, 1.0f / sqrt(all[j] * scale + epsilon))
#else
  FILL(all, 1.0f / sqrtf(all[j] * scale + epsilon))
#endif
#endif
#if INNER_IS_ONE
  if (there && part == 0) JOINED(put_, TO_TYPE)(to, mine, all[0]);
#else
  if (there && part == 0) WRITE(to + mine * V, all);
#endif
#endif
}
