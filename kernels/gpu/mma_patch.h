// What the kernels on the matrix units (mma.sync) share whose blocks bring patches of CHANNELS channels of
// nhwc to local memory: groups of few channels, and depthwise convolutions.
//
// The host defines one DIRECTION_, CHANNELS (a multiple of 8), COLUMNS (of places that a block has in an
// image, a multiple of 8), ROWS, IMAGES, THREADS, BLOCKS (that fit on a multiprocessor), and what
// convolution.h asks for. A place is a result of forward or a pixel of the output's gradient; backward_data
// has as many results of each as its strides.
#pragma once
#include "kernels/gpu/mma_patch_units.h"
#include "kernels/gpu/sides.h"

#define CHUNK 8  // elements of 16 bytes
#define OCTETS (CHANNELS / CHUNK)
#define EIGHTS (COLUMNS / 8)               // of an image's places
#define TILES ((IMAGES * EIGHTS + 1) / 2)  // of 16 places

F_ALL_LOCAL_MEMORY(local_memory);

// Without strides: from a result's place to the first row and column that it reads, and the filter's tap that
// the place (r, s) from there meets.
#ifdef DIRECTION_bwd_d
#define FIRST_ROW (PAD_TOP - (R - 1))
#define FIRST_COLUMN (PAD_LEFT - (S - 1))
#define TAP(r, s) ((R - 1 - (r)) * S + S - 1 - (s))
#else
#define FIRST_ROW (-(PAD_TOP))
#define FIRST_COLUMN (-(PAD_LEFT))
#define TAP(r, s) ((r)*S + (s))
#endif

// The filters of the block's channels, kElements each, which lie together: a group of copies.
template <int kElements>
F_DEVICE void bring_filters(unsigned char* to, const element_t* w, int first_channel, int channels) {
  const int chunks = F_MIN(channels - first_channel, CHANNELS) * kElements / CHUNK;
  F_UNROLL
  for (int turn = 0; turn < (OCTETS * kElements + THREADS - 1) / THREADS; ++turn) {
    const int i = F_THREAD() + turn * THREADS;
    copy_chunk_if(i < chunks, local_address(to) + i * 16, w + (index_t)first_channel * kElements + i * CHUNK,
                  true);
  }
  close_copies();
}

// All groups of copies but the last so many are there, of every thread's. (The instruction takes a constant
// alone; where loops are unrolled, `pending` is one, at most kMost.)
template <int kMost>
F_DEVICE void wait_for_rows(int pending) {
  if (pending == kMost) {
    wait_for_copies<kMost>();
    F_BARRIER();
  } else if constexpr (kMost > 0) {
    wait_for_rows<kMost - 1>(pending);
  }
}

// Down a patch of kRows rows, of which kTogether are a group of copies. A row of results takes part in kSpan
// of them, and begins kStep below the one before: with the last of them it is put into local memory, and
// stored after the next barrier. So local memory has room for two groups' rows of results.
template <int kRows, int kSpan, int kStep, int kTogether, class Add, class Put, class Store>
F_DEVICE void walk_down(const Add& add_row, const Put& put_row, const Store& store_row) {
  constexpr int kGroups = (kRows + kTogether - 1) / kTogether;
  const auto is_last = [](int i) { return i >= kSpan - 1 && (i - (kSpan - 1)) % kStep == 0; };
  const auto result = [](int i) { return (i - (kSpan - 1)) / kStep; };
  const auto store_group = [&](int group) {
    F_UNROLL
    for (int i = group * kTogether; i < (group + 1) * kTogether && i < kRows; ++i) {
      if (is_last(i)) store_row(result(i));
    }
  };
  F_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    wait_for_rows<kGroups>(kGroups - 1 - group);
    if (group > 0) store_group(group - 1);
    F_UNROLL
    for (int i = group * kTogether; i < (group + 1) * kTogether && i < kRows; ++i) {
      add_row(i);
      if (is_last(i)) put_row(result(i));
    }
  }
  F_BARRIER();
  store_group(kGroups - 1);
}
