// Where implicit_gemm_matrix_weights.cl finds each output pixel, in bytes from where the tensor begins: in y's gradient; in
// x what the filter's first tap reads; and, a bit a tap, which taps read nothing. Of pixels beyond the last nothing is read.
//
// The host defines THREADS and what convolution.h asks for.
#include "kernels/gpu/convolution.h"

#define TAPS (R * S)

// places: y's place, y's bits, x's place, x's bits of each 32 taps; `padded` words of each.
F_KERNEL(THREADS)
matrix_places(F_OUTPUT(u32, places), int padded, Sizes z) {
  F_OPEN_OUTPUT(u32, places);
  for (int i = F_BLOCK(0) * THREADS + F_THREAD(); i < padded; i += F_BLOCKS(0) * THREADS) {
    const int q = i % z.q, p = i / z.q % z.p, n = i / z.q / z.p, exists = n < z.n;
    const int h = p * STRIDE_H - z.pad_top, w = q * STRIDE_W - z.pad_left;
    places[i] = (u32)F_OFFSET(n, 0, p, q, z.k, z.p, z.q) * (u32)sizeof(element_t);
    places[padded + i] = exists ? 0u : ~0u;
    places[2 * padded + i] = (u32)F_OFFSET(n, 0, h, w, z.c, z.h, z.w) * (u32)sizeof(element_t);
    for (int first = 0; first < TAPS; first += 32) {
      u32 missing = 0;
      for (int t = first; t < TAPS && t < first + 32; ++t) {
        const int row = h + t / S * DILATION_H, column = w + t % S * DILATION_W;
        const int inside = exists & (row >= 0) & (row < z.h) & (column >= 0) & (column < z.w);
        missing |= (u32)(1 - inside) << (t - first);
      }
      places[(size_t)(3 + first / 32) * padded + i] = missing;
    }
  }
}
