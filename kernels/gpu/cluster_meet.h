// What the blocks of a cluster (of Hopper's and later chips) have of one thing, joined in one order. The host
// defines CLUSTER, how many blocks there are, which follow each other.
//
// In all of them: GREET_BLOCKS() first of all; MEET_BLOCKS(number, join, value), of what all threads of a
// block have alike: value becomes what join makes of all of theirs. number: of the meeting, of two, in turn
// from 0.
#pragma once

#if CLUSTER > 1
#include "kernels/gpu/cluster_units.h"

#define MEETINGS_OF_BLOCKS 2
#define RANK_OF_BLOCK (F_BLOCK(0) % CLUSTER)
F_DEVICE u32 address_of(const void* local) { return (u32)__cvta_generic_to_shared(local); }

// At the top of a kernel: from each block four numbers for each meeting, and what counts their bytes.
#define MEETING_ARRAYS()                                            \
  F_LOCAL_ARRAY(float, of_blocks, MEETINGS_OF_BLOCKS* CLUSTER * 4); \
  F_LOCAL_ARRAY(i64, of_blocks_known, MEETINGS_OF_BLOCKS);
#define GREET_BLOCKS()                                                                                       \
  if (F_THREAD() == 0) {                                                                                     \
    for (int i = 0; i < MEETINGS_OF_BLOCKS; ++i) expect_sent(address_of(of_blocks_known + i), CLUSTER * 16); \
  }                                                                                                          \
  greet_cluster();
#define MEET_BLOCKS(number, join, value)                                            \
  if ((number) == 0) meet_cluster();                                                \
  if (F_THREAD() < CLUSTER) {                                                       \
    const float four[4] = {value, value, value, value};                             \
    send_four(four, address_of(of_blocks + ((number)*CLUSTER + RANK_OF_BLOCK) * 4), \
              address_of(of_blocks_known + (number)), F_THREAD());                  \
  }                                                                                 \
  wait_for_sent(address_of(of_blocks_known + (number)));                            \
  value = of_blocks[(number)*CLUSTER * 4];                                          \
  F_UNROLL                                                                          \
  for (int b = 1; b < CLUSTER; ++b) value = join(value, of_blocks[((number)*CLUSTER + b) * 4]);
#else
#define RANK_OF_BLOCK 0
#define MEETING_ARRAYS()
#define GREET_BLOCKS()
#define MEET_BLOCKS(number, join, value)
#endif
