// The filter's transform G w G^T, in the order in which winograd.cl reads it:
//   [group][block of BK out channels][in channel, up to a multiple of BC][position][place in the block]
// zero where there is no such channel. Place (v * LK + thread) * 4 + e holds channel (v * 4 + e) * LK + thread of its
// block, so that a thread reads quads while neighbouring threads hold neighbouring channels.
//
// The host defines M, BK, BC, LK, THREADS, and what correlation.h asks for.
#include "kernels/gpu/correlation.h"
#include "kernels/gpu/winograd_transforms.h"

F_KERNEL(THREADS)
winograd_filter(F_INPUT(element_t, w), F_OUTPUT(float, filter), Sizes z) {
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(float, filter);
  const int channels = (IN_GROUP + BC - 1) / BC * BC, blocks = (OUT_GROUP + BK - 1) / BK;
  const index_t count = (index_t)z.groups * blocks * channels * BK;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const int place = (int)(i % BK), in = (int)(i / BK % channels), block = (int)(i / BK / channels % blocks);
    const int group = (int)(i / BK / channels / blocks);
    const int out = block * BK + (place / (4 * LK) * 4 + place % 4) * LK + place / 4 % LK;
    const int exists = in < IN_GROUP && out < OUT_GROUP;
    float taps[9], rows[A * 3], u[A * A];
    F_UNROLL
    for (int t = 0; t < 9; ++t) {
      taps[t] = 0.0f;
      if (exists) taps[t] = F_LOAD(w, FILTER_OFFSET(group, out, in, t / 3, t % 3));
    }
    F_UNROLL
    for (int s = 0; s < 3; ++s) transform_filter(taps + s, 3, rows + s, 3);
    F_UNROLL
    for (int r = 0; r < A; ++r) transform_filter(rows + 3 * r, 1, u + A * r, 1);
    F_UNROLL
    for (int j = 0; j < A * A; ++j) filter[(i / BK * (A * A) + j) * BK + place] = u[j];
  }
}
