#include "kernels/gpu/gathered_product.h"

// The weights as implicit_gemm_matrix.cl reads them: [group][tap][chunk of in channels][out channel][in channel of the
// chunk], a chunk of 16 bytes; zeros beyond the channels that there are.
#define CHUNK ((int)(16 / sizeof(element_t)))

F_KERNEL(THREADS)
pack_chunks(F_INPUT(element_t, w), F_OUTPUT(element_t, packed), int out_pad, Sizes z) {
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(element_t, packed);
  const int chunks = (IN_GROUP + CHUNK - 1) / CHUNK;
  const index_t count = (index_t)z.groups * TAPS * chunks * out_pad * CHUNK;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const int out = (int)(i / CHUNK % out_pad), in = (int)(i / CHUNK / out_pad % chunks) * CHUNK + (int)(i % CHUNK);
    const int tap = (int)(i / CHUNK / out_pad / chunks % TAPS), group = (int)(i / CHUNK / out_pad / chunks / TAPS);
    element_t value = 0;
    if (out < OUT_GROUP && in < IN_GROUP) {
#ifdef DIRECTION_fwd
      value = w[F_OFFSET(group * z.group_k + out, in, tap / S, tap % S, z.group_c, R, S)];
#else
      value = w[F_OFFSET(group * z.group_k + in, out, tap / S, tap % S, z.group_c, R, S)];
#endif
    }
    packed[i] = value;
  }
}
