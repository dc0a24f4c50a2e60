// backward_weights as a matrix product whose operands are never written out: output channels x columns of a filter,
// summed over pixels. Tiles of both operands go through local memory; the taps are gathered on the way there.
//
// The host defines THREADS and what convolution.h and tile_product.h ask for.
#include "kernels/gpu/convolution.h"
#define BS BP  // output channels
#define BV BC  // columns
#include "kernels/gpu/tile_product.h"

#define TAPS (R * S)

// One block: BS output channels x BV columns of a filter (in the filter's memory order), summed over the pixels of
// one of `splits` parts. partial: [split][the whole filter tensor].
F_KERNEL(THREADS)
implicit_gemm_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(float, partial), int splits, Sizes z) {
  F_LOCAL_ARRAY(float, scalars, BK * BS);
  F_LOCAL_ARRAY(F_VECTOR, vectors, BK * BV / VW);
  F_LOCAL_ARRAY(int, places, BK * 5);  // of each pixel of the tile: n, p, q, and what its first tap reads
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(float, partial);
  const int thread = F_THREAD();
  const int filter = TAPS * z.group_c;
  const int first_column = F_BLOCK(0) * BV, first_k = F_BLOCK(1) * BS;
  const int group = F_BLOCK(2) / splits, split = F_BLOCK(2) % splits;
  const index_t count = (index_t)z.n * z.p * z.q;
  // Whole tiles; one at least, which may lie beyond the last pixel.
  const index_t part = ((count + splits - 1) / splits + BK - 1) / BK * BK, end = part * (split + 1);
  index_t first = part * split;
  F_VECTOR sums[TS][VN];
  clear_tile(sums);
  do {
    F_EACH(i, BK) {
      const index_t pixel = first + i;
      const int q = (int)(pixel % z.q), p = (int)(pixel / z.q % z.p);
      places[i * 5] = pixel < count ? (int)(pixel / z.q / z.p) : -1;
      places[i * 5 + 1] = p;
      places[i * 5 + 2] = q;
      places[i * 5 + 3] = p * STRIDE_H - z.pad_top;
      places[i * 5 + 4] = q * STRIDE_W - z.pad_left;
    }
    F_BARRIER();
    F_EACH(e, BS * BK) {
#ifdef LAYOUT_nchw
      const int step = e % BK, k = e / BK;
#else
      const int step = e / BS, k = e % BS;
#endif
      const int n = places[step * 5];
      float value = 0.0f;
      if (n >= 0 && first_k + k < z.group_k) {
        value = F_LOAD(y, F_OFFSET(n, group * z.group_k + first_k + k, places[step * 5 + 1], places[step * 5 + 2], z.k,
                                   z.p, z.q));
      }
      scalars[step * BS + k] = value;
    }
    F_EACH(e, BV * BK) {
#ifdef LAYOUT_nchw
      const int step = e % BK, column = first_column + e / BK;
      const int c = column / TAPS, r = column / S % R, s = column % S;
#else
      const int step = e / BV, column = first_column + e % BV;
      const int c = column % z.group_c, r = column / z.group_c / S, s = column / z.group_c % S;
#endif
      const int n = places[step * 5];
      const int h = places[step * 5 + 3] + r * DILATION_H, w = places[step * 5 + 4] + s * DILATION_W;
      float value = 0.0f;
      if (n >= 0 && column < filter && h >= 0 && h < z.h && w >= 0 && w < z.w) {
        value = F_LOAD(x, F_OFFSET(n, group * z.group_c + c, h, w, z.c, z.h, z.w));
      }
      ((F_LOCAL float*)vectors)[step * BV + column - first_column] = value;
    }
    F_BARRIER();
    add_products(scalars, vectors, thread, sums);
    F_BARRIER();
    first += BK;
  } while (first != end);
  F_UNROLL_RESULTS
  for (int i = 0; i < TS; ++i) {
    const int k = first_k + F_SCALAR_BEGIN(thread) + i;
    F_UNROLL_RESULTS
    for (int v = 0; v < VN; ++v) {
      F_UNROLL_RESULTS
      for (int lane = 0; lane < VW; ++lane) {
        const int column = first_column + F_VECTOR_POSITION(thread, v) + lane;
        if (k < z.group_k && column < filter) {
          partial[((index_t)split * z.k + group * z.group_k + k) * filter + column] = F_LANE(sums[i][v], lane);
        }
      }
    }
  }
}
