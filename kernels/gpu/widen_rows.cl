// Rows of memory, each continued by zeros to a multiple of 16 bytes: as a copy engine takes them that counts rows in those.
// A thread writes 16 bytes at a time. The host defines THREADS, BYTES of a word (2 or 4) that a row has whole ones of, and
// WIDE as index.h has it.
#include "kernels/gpu/index.h"
#include "kernels/gpu/raw_element.h"

#define WORDS (16 / BYTES)
#if BYTES == 4
#define STORE store4_u32
#else
#define STORE store8_u16
#endif

// units: of 16 bytes, in all and of a row; words_of_row: before.
F_KERNEL(THREADS)
widen_rows(F_INPUT(element_t, from), F_OUTPUT(element_t, to), i64 units, i64 units_of_row, i64 words_of_row) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, from);
  F_OPEN_OUTPUT(element_t, to);
  const index_t count = (index_t)units, across = (index_t)units_of_row, words = (index_t)words_of_row;
  F_UNROLL_TWICE
  for (index_t i = (index_t)F_BLOCK(0) * THREADS + F_THREAD(); i < count; i += (index_t)F_BLOCKS(0) * THREADS) {
    const index_t row = i / across, first = (i - row * across) * WORDS;
    F_ALIGNED16 element_t moved[WORDS];
    F_UNROLL
    for (int j = 0; j < WORDS; ++j) moved[j] = first + j < words ? from[row * words + first + j] : (element_t)0;
    STORE(to + i * WORDS, moved);
  }
}
