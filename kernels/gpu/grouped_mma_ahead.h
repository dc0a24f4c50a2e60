// What a block of grouped_mma.cu reads is asked into the cache while the kernel before still runs, before it
// may be read.
#pragma once
#include "kernels/gpu/grouped_mma_patch.h"

// So many elements that lie together, by all threads.
F_DEVICE void ask_for_run(const element_t* from, int count) {
  constexpr int kLine = 64;  // of 128 bytes
  F_NO_UNROLL
  for (int i = F_THREAD() * kLine; i < count; i += THREADS * kLine) ask_for(from + i);
}

// Of nhwc: kRows rows of every image's kColumns pixels, as far as they are inside.
template <int kRows, int kColumns>
F_DEVICE void ask_for_pixels(const element_t* from, int first_image, int first_channel, int top, int left,
                             int channels, int height, int width, int images) {
  F_NO_UNROLL
  for (int i = F_THREAD(); i < kRows * IMAGES * kColumns; i += THREADS) {
    const int n = first_image + i / kColumns % IMAGES, row = top + i / kColumns / IMAGES,
              column = left + i % kColumns;
    if (n < images && (u32)row < (u32)height && (u32)column < (u32)width)
      ask_for(from + F_OFFSET(n, first_channel, row, column, channels, height, width));
  }
}
