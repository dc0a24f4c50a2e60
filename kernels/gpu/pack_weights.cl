#include "kernels/gpu/gathered_product.h"

// The weights as the product reads them: [group][tap][in channel][out channel], zeros up to out_pad channels;
// as floats for devices that convert slowly (COMPACT).
F_KERNEL(THREADS)
pack_weights(F_INPUT(element_t, w), F_OUTPUT(packed_t, packed), int out_pad, Sizes z) {
  F_OPEN_INPUT(element_t, w);
  F_OPEN_OUTPUT(packed_t, packed);
  const index_t count = (index_t)z.groups * TAPS * IN_GROUP * out_pad;
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count;
       i += (index_t)F_BLOCKS(0) * THREADS) {
    const int out = (int)(i % out_pad), in = (int)(i / out_pad % IN_GROUP);
    const int tap = (int)(i / out_pad / IN_GROUP % TAPS), group = (int)(i / out_pad / IN_GROUP / TAPS);
    packed_t value = 0;
    if (out < OUT_GROUP) {
#ifdef DIRECTION_fwd
      value = F_PACK(w, F_OFFSET(group * z.group_k + out, in, tap / S, tap % S, z.group_c, R, S));
#else
      value = F_PACK(w, F_OFFSET(group * z.group_k + in, out, tap / S, tap % S, z.group_c, R, S));
#endif
    }
    packed[i] = value;
  }
}
