// Rows of neighbours that registers hold, in fp32: reduced, or made a softmax or standard, with the elementwise chain
// behind that. A row is read once, all of it before the first sum, and written once.
//
// PARTS neighbouring threads of each of CLUSTER blocks share a row, each with K of its vectors of V elements; where
// blocks are several these are all of their threads. EDGES: V does not divide the rows, which begin anywhere; behind the
// vectors follow the single elements before the first and behind the last of them.
//
// The host defines THREADS; BLOCKS, of a unit; PARTS, CLUSTER, K, SURE, how many of these every thread has, and EDGES;
// FROM_TYPE, TO_TYPE; one of OP_sum, OP_max, OP_min, OP_sum_of_squares, OP_sum_of_sizes, OP_product (reductions), OP_softmax,
// OP_log_softmax and OP_standardize; and what elements.h asks for. Of the last three NORMALIZED, what the chain calls their
// result; INPUTS, what it reads beside that, and OPERANDS(X), an X(number, register, type, how) for each, how it lies along
// the row as in map.cl, or by_row: one number of each row; OUTER_RANK and ROW_RANK, of their places; CHAIN and RESULT
// (chain.h).
#include "kernels/gpu/elements.h"
#include "kernels/gpu/chain.h"
#include "kernels/gpu/digits.h"
#include "kernels/gpu/cluster_meet.h"
#include "kernels/gpu/meet.h"
#include "kernels/gpu/operands.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define FROM_T JOINED(FROM_TYPE, _t)
#define TO_T JOINED(TO_TYPE, _t)

// e to the x, for results of 16 bits by the chip's own power of two.
#if defined(__CUDA_ARCH__) && defined(RESULT_HAS_16_BITS)
F_DEVICE float power(float x) {
  float v;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x * 1.4426950408889634f));
  return v;
}
#else
#define power(x) F_EXP(x)
#endif

// By the chip's own, to an ulp; the exact one is a call, around which registers are wanted.
#ifdef __CUDA_ARCH__
F_DEVICE float inverse_of(float x) {
  float v;
  asm("rcp.approx.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
#else
#define inverse_of(x) (1.0f / (x))
#endif

// What adds nothing, where a thread has no element.
#if defined(OP_softmax) || defined(OP_log_softmax) || defined(OP_max)
#define NOTHING -F_INFINITY
#elif defined(OP_min)
#define NOTHING F_INFINITY
#elif defined(OP_product)
#define NOTHING 1.0f
#else
#define NOTHING 0.0f
#endif

// Whether the thread's k-th is a vector; or a single element, and where that lies in its row.
#define EVERY (PARTS * CLUSTER)
#define PLACE(k) (part + (k)*EVERY)
#define HAS(k) ((k) < SURE || PLACE(k) < vectors)
#if EDGES
#define HAS_ONE(k) ((k) >= SURE && PLACE(k) >= vectors && PLACE(k) < places)
#define ONE(k) (PLACE(k) < vectors + before ? PLACE(k) - vectors : PLACE(k) + vectors * (V - 1))
#else
#define HAS_ONE(k) false
#endif

// what(element, sum, whether there is one), of each that the thread has, its sum being that of its neighbours; what
// they come to met.
// So that adding need not wait.
#define SUMS (V < 4 ? V : 4)
#define SUM_UP(number, nothing, what, join, all)                      \
  F_UNROLL                                                            \
  for (int j = 0; j < SUMS; ++j) some[j] = nothing;                   \
  F_UNROLL                                                            \
  for (int k = 0; k < K; ++k) {                                       \
    F_UNROLL                                                          \
    for (int j = 0; j < V; ++j) what(x[k][j], some[j % SUMS], HAS(k) || (j == 0 && HAS_ONE(k))) \
  }                                                                   \
  F_UNROLL                                                            \
  for (int j = 1; j < SUMS; ++j) some[0] = join(some[0], some[j]);    \
  all = some[0];                                                      \
  MEET(number, join, all)                                             \
  MEET_BLOCKS(number, join, all)

#define ADD(e, sum, has) sum += e;
#define ADD_SQUARE(e, sum, has) sum += e * e;
#define MULTIPLY(e, product, has) product *= e;
#define ADD_SIZE(e, sum, has) sum += e < 0.0f ? -e : e;
#define BECOME_DEVIATION(e, sum, has) \
  {                                   \
    e -= mean;                        \
    if (has) sum += e * e;            \
  }
#define ADD_POWER(e, sum, has) sum += power(e - most);
#define BECOME_POWER(e, sum, has) \
  {                               \
    e = power(e - most);          \
    sum += e;                     \
  }
#define TAKE_LARGER(e, most, has) most = larger(most, e);
#define TAKE_SMALLER(e, least, has) least = smaller(least, e);

#if defined(OP_softmax) || defined(OP_log_softmax) || defined(OP_standardize)
#define NORMALIZES
#ifdef OP_log_softmax
#define VALUE(e) ((e)-most - logarithm)
#else
#define VALUE(e) ((e)*inverse)
#endif

// As in src/network/device_whole_rows.cpp.
#if INPUTS > 0
typedef struct {
  Divisor outer_sizes[OUTER_RANK], row_sizes[ROW_RANK];  // in which rows are counted, and a row's elements
  index_t begin[INPUTS];
  index_t outer_strides[INPUTS][OUTER_RANK], row_strides[INPUTS][ROW_RANK];
} RowOperands;
#define PARAMETER_OF_OPERANDS , RowOperands z
// To every operand's place: what has this index.
#define ADD_PLACES(to, index, RANK, sizes, strides)                                                      \
  {                                                                                                      \
    index_t rest = index;                                                                                \
    F_UNROLL                                                                                             \
    for (int d = RANK - 1; d >= 0; --d) {                                                                \
      const index_t next = d == 0 ? 0 : quotient(rest, sizes[d]), digit = rest - next * sizes[d].size;   \
      rest = next;                                                                                       \
      F_UNROLL                                                                                           \
      for (int o = 0; o < INPUTS; ++o) to[o] += digit * strides[o][d];                                   \
    }                                                                                                    \
  }
#define PLACES(at, position)                                      \
  index_t at[INPUTS];                                             \
  F_UNROLL                                                        \
  for (int o = 0; o < INPUTS; ++o) at[o] = of_row[o];             \
  ADD_PLACES(at, position, ROW_RANK, z.row_sizes, z.row_strides)
#else
#define PARAMETER_OF_OPERANDS
#define PLACES(at, position)
#endif

#define PARAMETER(i, r, type, how) F_INPUT(type##_t, x##i),
#define OPEN(i, r, type, how) F_OPEN_INPUT(type##_t, x##i);
// One number of the row is read before the sums, with the row itself.
#define READ_EARLY(i, r, type, how) EARLY_##how(i, type)
#define EARLY_together(i, type)
#define EARLY_alone(i, type)
#define EARLY_apart(i, type)
#define EARLY_by_row(i, type) const float early##i = get_##type(x##i, of_row[i]);
#define READ_OPERAND(i, r, type, how) \
  float all##i[V];                    \
  READ_##how(i, type)
#define READ_together(i, type) together(type, x##i + at[i], 1, all##i)
#define READ_alone(i, type) alone(type, x##i + at[i], 0, all##i)
#define READ_apart(i, type) apart(type, x##i + at[i], z.row_strides[i][ROW_RANK - 1], all##i)
#define READ_by_row(i, type) \
  F_UNROLL                   \
  for (int j = 0; j < V; ++j) all##i[j] = early##i;
#define TAKE(i, r, type, how) const float v##r = all##i[j];
#define TAKE_ONE(i, r, type, how) const float v##r = get_##type(x##i, at[i]);
#else
#define OPERANDS(X)
#define PARAMETER(i, r, type, how)
#define PARAMETER_OF_OPERANDS
#endif

F_DENSE_KERNEL(THREADS, BLOCKS)
whole_rows(F_INPUT(FROM_T, from), OPERANDS(PARAMETER) F_OUTPUT(TO_T, to), i64 rows_in_all, i64 length_of_row, float scale,
           float epsilon PARAMETER_OF_OPERANDS) {
  F_LOCAL_ARRAY(float, met, MET);
  MEETING_ARRAYS()
  GREET_BLOCKS()
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(FROM_T, from);
  F_OPEN_OUTPUT(TO_T, to);
  const int part = F_THREAD() % PARTS + RANK_OF_BLOCK * PARTS, own = F_THREAD() / PARTS;
  const index_t wanted = (index_t)F_BLOCK(0) / CLUSTER * (THREADS / PARTS) + own, last = (index_t)rows_in_all - 1;
  const bool there = wanted <= last;
  const index_t row = there ? wanted : last, length = (index_t)length_of_row, begin = row * length;
#if EDGES
  const int before = (int)(-begin & (V - 1)), vectors = (int)(length - before) / V;
  const int places = (int)length - vectors * (V - 1);
#else
  const int before = 0, vectors = (int)length / V;
#endif
  float x[K][V], some[SUMS];
  F_UNROLL
  for (int k = 0; k < K; ++k) {
    F_UNROLL
    for (int j = 0; j < V; ++j) x[k][j] = NOTHING;
    if (HAS(k)) JOINED(read_, FROM_TYPE)(from + (begin + before + PLACE(k) * V), x[k]);
#if EDGES
    if (HAS_ONE(k)) x[k][0] = JOINED(get_, FROM_TYPE)(from, begin + ONE(k));
#endif
  }
#ifdef NORMALIZES
  OPERANDS(OPEN)
#if INPUTS > 0
  index_t of_row[INPUTS];
  F_UNROLL
  for (int o = 0; o < INPUTS; ++o) of_row[o] = z.begin[o];
  ADD_PLACES(of_row, row, OUTER_RANK, z.outer_sizes, z.outer_strides)
  OPERANDS(READ_EARLY)
#endif
#endif

#if defined(OP_softmax) || defined(OP_log_softmax)
  float most, sum;
  SUM_UP(0, NOTHING, TAKE_LARGER, larger, most)
#ifdef OP_softmax
  SUM_UP(1, 0.0f, BECOME_POWER, plus, sum)
  const float inverse = inverse_of(sum);
#else
  SUM_UP(1, 0.0f, ADD_POWER, plus, sum)
  const float logarithm = F_LOG(sum);
#endif
#elif defined(OP_standardize)
  float mean, sum;
  SUM_UP(0, NOTHING, ADD, plus, mean)
  mean = mean * scale;
  SUM_UP(1, 0.0f, BECOME_DEVIATION, plus, sum)
  const float inverse = 1.0f / F_SQRT(sum * scale + epsilon);
#else
  float all;
#if defined(OP_max)
  SUM_UP(0, NOTHING, TAKE_LARGER, larger, all)
#elif defined(OP_min)
  SUM_UP(0, NOTHING, TAKE_SMALLER, smaller, all)
#elif defined(OP_sum_of_squares)
  SUM_UP(0, NOTHING, ADD_SQUARE, plus, all)
#elif defined(OP_sum_of_sizes)
  SUM_UP(0, NOTHING, ADD_SIZE, plus, all)
#elif defined(OP_product)
  SUM_UP(0, NOTHING, MULTIPLY, times, all)
#else
  SUM_UP(0, NOTHING, ADD, plus, all)
#endif
#if !defined(OP_max) && !defined(OP_min)
  all = all * scale;
#endif
  if (there && part == 0) JOINED(put_, TO_TYPE)(to, row, all);
#endif

#ifdef NORMALIZES
  F_UNROLL
  for (int k = 0; k < K; ++k) {
    if (there && HAS(k)) {
      const index_t position = before + PLACE(k) * V;
      PLACES(at, position)
      OPERANDS(READ_OPERAND)
      float results[V];
      F_UNROLL
      for (int j = 0; j < V; ++j) {
        OPERANDS(TAKE)
        const float NORMALIZED = VALUE(x[k][j]);
        CHAIN
        results[j] = RESULT;
      }
      JOINED(write_, TO_TYPE)(to + (begin + position), results);
    }
#if EDGES
    if (there && HAS_ONE(k)) {
      const index_t position = ONE(k);
      PLACES(at, position)
      OPERANDS(TAKE_ONE)
      const float NORMALIZED = VALUE(x[k][0]);
      CHAIN
      JOINED(put_, TO_TYPE)(to, begin + position, RESULT);
    }
#endif
  }
#endif
}
