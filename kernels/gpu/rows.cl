// Along the middle one of three dimensions (outer, length, inner), in fp32: reductions, softmax, standardizing.
//
// A block takes COLS columns, each shared by THREADS / COLS threads, whose parts meet in local memory; both are powers of
// two. Of reductions of columns whose V is 4 at least a cluster of CLUSTER blocks may share them, too. A column is V
// neighbours of the inner dimension; where INNER_IS_ONE it is one, and a thread reads V of its rows at once. The host
// defines THREADS, COLS, CLUSTER, FROM_TYPE, TO_TYPE; one of OP_sum, OP_max, OP_min, OP_sum_of_squares, OP_sum_of_sizes,
// OP_product (reductions), OP_softmax, OP_log_softmax and OP_standardize; INNER_IS_ONE as 0 or 1; and what elements.h asks for. For
// standardizing rows (INNER_IS_ONE) in parts also OP_sum_of_deviations, of squares about the means of the rows that
// `parts_of_one` neighbours in the outer dimension are the parts of, and OP_inverse, 1 / sqrt(sum + epsilon).
#define PARTS (THREADS / COLS)  // which meet.h asks
#include "kernels/gpu/cluster_meet.h"
#include "kernels/gpu/elements.h"
#include "kernels/gpu/meet.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define FROM_T JOINED(FROM_TYPE, _t)
#define TO_T JOINED(TO_TYPE, _t)
#define READ JOINED(read_, FROM_TYPE)
#define WRITE JOINED(write_, TO_TYPE)

#if INNER_IS_ONE
// Of a column, what all of its V have in all of its threads.
#define MEET_ALL(number, join, all)                                  \
  F_UNROLL                                                           \
  for (int j = 1; j < V; ++j) all[0] = join(all[0], all[j]);         \
  MEET(number, join, all[0])                                         \
  F_UNROLL                                                           \
  for (int j = 1; j < V; ++j) all[j] = all[0];
#else
// Of each of the block's WIDTH elements beside each other what all parts have. Elements are taken by neighbouring
// threads, as many SHARES of the parts as there are threads for, and the shares by who asks: ELEMENT is what all
// have of one.
#define WIDTH (COLS * V)
#define SHARES (PARTS < V ? 1 : PARTS / V < 16 ? PARTS / V : 16)
#if V >= 4
#define STORE_LOCAL(p, all) \
  F_UNROLL                  \
  for (int j = 0; j < V; j += 4) store4_local(p + j, all + j);
#else
#define STORE_LOCAL(p, all) \
  F_UNROLL                  \
  for (int j = 0; j < V; ++j) (p)[j] = all[j];
#endif
#define ALONG_PARTS(join, all)                                                                                \
  STORE_LOCAL(parts + F_THREAD() * V, all)                                                                    \
  F_BARRIER();                                                                                                \
  F_UNROLL                                                                                                    \
  for (int e = F_THREAD(); e < WIDTH * SHARES; e += THREADS) {                                                \
    float of_share = parts[e];                                                                                \
    F_UNROLL                                                                                                  \
    for (int p = SHARES; p < PARTS; p += SHARES) of_share = join(of_share, parts[p * WIDTH + e]);             \
    shares[e] = of_share;                                                                                     \
  }                                                                                                           \
  F_BARRIER();
#define ELEMENT(join, value, e)  \
  value = shares[e];             \
  F_UNROLL                       \
  for (int s = 1; s < SHARES; ++s) value = join(value, shares[s * WIDTH + (e)]);
#define MEET_ALL(number, join, all) \
  ALONG_PARTS(join, all)            \
  F_UNROLL                          \
  for (int j = 0; j < V; ++j) {     \
    ELEMENT(join, all[j], column * V + j) \
  }
#endif

// ..., for all of the part's rows, some of which are on their way at once: ahead[AHEAD][V], behind the end the first of
// them once more.
#define AHEAD 4
#define STEP (PARTS * CLUSTER)
#define EACH_ROWS_AHEAD(statements)                                         \
  for (index_t row = first_row; row < length; row += AHEAD * STEP) {        \
    float ahead[AHEAD][V];                                                  \
    F_UNROLL                                                                \
    for (int k = 0; k < AHEAD; ++k) {                                       \
      const index_t next = row + k * STEP;                                  \
      READ(from + begin + (next < length ? next : row) * stride, ahead[k]); \
    }                                                                       \
    statements                                                              \
  }
// ..., with x[V] the elements of each row.
#define EACH_AHEAD(statement)                       \
  F_UNROLL                                          \
  for (int k = 0; k < AHEAD; ++k) {                 \
    if (row + k * STEP < length) {                  \
      const float* const x = ahead[k];              \
      F_UNROLL                                      \
      for (int j = 0; j < V; ++j) {                 \
        statement                                   \
      }                                             \
    }                                               \
  }
#define EACH_ROW(statement) EACH_ROWS_AHEAD(EACH_AHEAD(statement))
#define EACH_RESULT(value)                                \
  for (index_t row = first_row; row < length; row += STEP) { \
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

#ifdef __OPENCL_VERSION__
#define INVERSE(v) (1.0f / sqrt((v)*scale + epsilon))
#else
#define INVERSE(v) (1.0f / sqrtf((v)*scale + epsilon))
#endif

// rows_of_one: of a column, in units of V where INNER_IS_ONE; units: of V in the inner dimension.
F_KERNEL(THREADS)
#ifdef OP_sum_of_deviations
rows(F_INPUT(FROM_T, from), F_INPUT(float, means), F_OUTPUT(TO_T, to), i64 parts_of_one, i64 columns, i64 rows_of_one,
     i64 units, float scale, float epsilon) {
#else
rows(F_INPUT(FROM_T, from), F_OUTPUT(TO_T, to), i64 columns, i64 rows_of_one, i64 units, float scale, float epsilon) {
#endif
#if INNER_IS_ONE
  F_LOCAL_ARRAY(float, met, MET);
#else
  F_LOCAL_ARRAY(float, parts, THREADS* V);
  F_LOCAL_ARRAY(float, shares, WIDTH* SHARES);
#endif
#if CLUSTER > 1
  F_LOCAL_ARRAY(float, of_blocks, CLUSTER* WIDTH);
  F_LOCAL_ARRAY(i64, of_blocks_known, 1);
  if (RANK_OF_BLOCK == 0 && F_THREAD() == 0) expect_sent(address_of(of_blocks_known), CLUSTER * WIDTH * 4);
  greet_cluster();
#endif
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(FROM_T, from);
  F_OPEN_OUTPUT(TO_T, to);
#if INNER_IS_ONE
  const int part = F_THREAD() % PARTS, own = F_THREAD() / PARTS, column = own;
#else
  const int part = F_THREAD() / COLS, column = F_THREAD() % COLS;
#endif
  const index_t length = (index_t)rows_of_one, inner = (index_t)units, stride = inner * V;
  const index_t first_row = part + RANK_OF_BLOCK * PARTS, first = (index_t)F_BLOCK(0) / CLUSTER * COLS;
  const index_t wanted = first + column, last = (index_t)columns - 1;
  const bool there = wanted <= last;
  const index_t mine = there ? wanted : last, outer = mine / inner;
  const index_t begin = (outer * length * inner + (mine - outer * inner)) * V;
  F_ALIGNED16 float all[V];
#if defined(OP_softmax) || defined(OP_log_softmax)
  // In one reading: the powers are of what is above the largest element so far, and scaled as a larger one comes.
  F_ALIGNED16 float most[V];
  float largest[V];
  FILL(largest, -F_INFINITY)
  FILL(all, 0.0f)
  EACH_ROWS_AHEAD(FILL(most, largest[j]) EACH_AHEAD(largest[j] = larger(largest[j], x[j]);)
                  FILL(all, all[j] * F_EXP(most[j] - ABOVE(largest[j])))
                  EACH_AHEAD(all[j] += F_EXP(x[j] - ABOVE(largest[j]));))
  FILL(most, largest[j])
  MEET_ALL(0, larger, most)
  FILL(all, all[j] * F_EXP(largest[j] - ABOVE(most[j])))
  MEET_ALL(1, plus, all)
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
  F_ALIGNED16 float mean[V];
  FILL(mean, 0.0f)
  EACH_ROW(mean[j] += x[j];)
  MEET_ALL(0, plus, mean)
  FILL(mean, mean[j] * scale)
  FILL(all, 0.0f)
  EACH_ROW(all[j] += (x[j] - mean[j]) * (x[j] - mean[j]);)
  MEET_ALL(1, plus, all)
  FILL(all, INVERSE(all[j]))
  EACH_RESULT((x[j] - mean[j]) * all[j])
#else
#if defined(OP_max)
#define JOIN larger
#define FINISHED(v) (v)
  FILL(all, -F_INFINITY)
  EACH_ROW(all[j] = larger(all[j], x[j]);)
#elif defined(OP_min)
#define JOIN smaller
#define FINISHED(v) (v)
  FILL(all, F_INFINITY)
  EACH_ROW(all[j] = smaller(all[j], x[j]);)
#elif defined(OP_product)
#define JOIN times
#define FINISHED(v) (v)
  FILL(all, 1.0f)
  EACH_ROW(all[j] *= x[j];)
#else
#define JOIN plus
#ifdef OP_inverse
#define FINISHED(v) INVERSE(v)
#else
#define FINISHED(v) ((v)*scale)
#endif
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
#endif
#if INNER_IS_ONE
  MEET_ALL(0, JOIN, all)
  if (there && part == 0) JOINED(put_, TO_TYPE)(to, mine, FINISHED(all[0]));
#else
  ALONG_PARTS(JOIN, all)
#if CLUSTER > 1
  // To the first block, which joins what all have.
  meet_cluster();
  for (int e = F_THREAD() * 4; e < WIDTH; e += THREADS * 4) {
    float four[4];
    F_UNROLL
    for (int j = 0; j < 4; ++j) {
      ELEMENT(JOIN, four[j], e + j)
    }
    send_four(four, address_of(of_blocks + RANK_OF_BLOCK * WIDTH + e), address_of(of_blocks_known), 0);
  }
  if (RANK_OF_BLOCK > 0) return;
  wait_for_sent(address_of(of_blocks_known));
#endif
  for (int e = F_THREAD(); e < WIDTH; e += THREADS) {
    float value;
#if CLUSTER > 1
    value = of_blocks[e];
    F_UNROLL
    for (int b = 1; b < CLUSTER; ++b) value = JOIN(value, of_blocks[b * WIDTH + e]);
#else
    ELEMENT(JOIN, value, e)
#endif
    if (first + e / V <= last) JOINED(put_, TO_TYPE)(to, first * V + e, FINISHED(value));
  }
#endif
#endif
}
