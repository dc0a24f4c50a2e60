// A product of matrices that lie in memory: result[s][v] = sum over steps of scalars[step][s] * vectors[step][v], for
// each group. While a tile is multiplied, registers bring the next one.
//
// Rows of both matrices start on a multiple of 4 elements and go on to the end of the last tile. `parts` blocks share
// the steps of a result.
//
// The host defines TO_OUTPUT (1: the results are forward's, and go through the epilogue into y; VECTOR_PIXELS 1:
// vectors run along pixels; 0: they stay a matrix of floats), THREADS, and what convolution.h and tile_product.h ask
// for. THREADS divides BS * BK / 4 and BV * BK / 4, or is a multiple of them.
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/tile_product.h"

#define QUADS_S (BS * BK / 4)
#define QUADS_V (BV * BK / 4)
#define OWN_S ((QUADS_S + THREADS - 1) / THREADS)
#define OWN_V ((QUADS_V + THREADS - 1) / THREADS)

// A tile's quads that are a thread's, as floats; zeros beyond the last step.
F_DEVICE void bring(F_GLOBAL const element_t* matrix, int pitch, int first, int end, int width, int own, float* quads) {
  const int thread = F_THREAD();
  F_UNROLL
  for (int i = 0; i < own; ++i) {
    const int quad = thread + i * THREADS, step = first + quad / (width / 4);
    F_UNROLL
    for (int j = 0; j < 4; ++j) quads[i * 4 + j] = 0.0f;
    if (quad < width * BK / 4 && step < end) {
      F_LOAD4(matrix, (index_t)step * pitch + quad % (width / 4) * 4, quads + i * 4);
    }
  }
}

F_DEVICE void put(const float* quads, int width, int own, F_LOCAL float* to) {
  const int thread = F_THREAD();
  F_UNROLL
  for (int i = 0; i < own; ++i) {
    F_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (thread + i * THREADS < width * BK / 4) to[(thread + i * THREADS) * 4 + j] = quads[i * 4 + j];
    }
  }
}

F_KERNEL(THREADS)
matrix_product(F_INPUT(element_t, scalars), F_INPUT(element_t, vectors), F_OUTPUT(RESULT_T, out),
               F_INPUT(element_t, bias), F_INPUT(element_t, residual), F_INPUT(float, slopes),
               int steps, int pitch_s, int pitch_v, int rows,
               int columns, int pitch_out, int first_part, int parts, int first_image, Sizes z) {
  F_LOCAL_ARRAY(float, local_s, 2 * BK * BS);
  F_LOCAL_ARRAY(float, local_v, 2 * BK * BV);
  F_OPEN_INPUT(element_t, scalars);
  F_OPEN_INPUT(element_t, vectors);
  F_OPEN_OUTPUT(RESULT_T, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  const int thread = F_THREAD(), blocks_s = (rows + BS - 1) / BS;
  const int first_s = F_BLOCK(0) % blocks_s * BS, first_v = F_BLOCK(0) / blocks_s * BV;
  const int group = F_BLOCK(1) / parts, part = F_BLOCK(1) % parts;
  // Whole tiles; one at least, which may lie beyond the last step.
  const int each = ((steps + parts - 1) / parts + BK - 1) / BK * BK, end = each * (part + 1);
  const int limit = F_MIN(steps, end);
  int first = each * part, slot = 0;
  F_GLOBAL const element_t* const from_s = scalars + (index_t)group * steps * pitch_s + first_s;
  F_GLOBAL const element_t* const from_v = vectors + (index_t)group * steps * pitch_v + first_v;

  F_VECTOR sums[TS][VN];
  clear_tile(sums);
  float next_s[OWN_S * 4], next_v[OWN_V * 4];
  bring(from_s, pitch_s, first, limit, BS, OWN_S, next_s);
  bring(from_v, pitch_v, first, limit, BV, OWN_V, next_v);
  do {
    put(next_s, BS, OWN_S, local_s + slot * BK * BS);
    put(next_v, BV, OWN_V, local_v + slot * BK * BV);
    F_BARRIER();
    first += BK;
    bring(from_s, pitch_s, first, limit, BS, OWN_S, next_s);
    bring(from_v, pitch_v, first, limit, BV, OWN_V, next_v);
    add_products(local_s + slot * BK * BS, (F_LOCAL const F_VECTOR*)(local_v + slot * BK * BV), thread, sums);
    slot = 1 - slot;
  } while (first != end);

  F_UNROLL_RESULTS
  for (int i = 0; i < TS; ++i) {
    const int s = first_s + F_SCALAR_BEGIN(thread) + i;
    F_UNROLL_RESULTS
    for (int j = 0; j < VN * VW; ++j) {
      const int v = first_v + F_VECTOR_POSITION(thread, j / VW) + j % VW;
      if (s >= rows || v >= columns) continue;
      const float sum = F_LANE(sums[i][j / VW], j % VW);
#if TO_OUTPUT
      const int pixel = VECTOR_PIXELS ? v : s, channel = group * z.group_k + (VECTOR_PIXELS ? s : v);
      const index_t offset = F_OFFSET(first_image + pixel / z.q / z.p, channel, pixel / z.q % z.p, pixel % z.q, z.k,
                                      z.p, z.q);
      F_STORE(out, offset, F_EPILOGUE(sum, channel, offset));
#else
      out[(((index_t)first_part + part) * z.groups + group) * rows * pitch_out + (index_t)s * pitch_out + v] = sum;
#endif
    }
  }
}
