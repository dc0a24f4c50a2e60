// What the kernels for groups of few channels share: a block's patches of 64 channels in local memory, pixels
// of 128 bytes, and how rows of them are brought.
//
// The host defines GROUP (channels of a group, in and out: a power of two) and what mma_patch.h asks for;
// CHANNELS is 64.
#pragma once
#include "kernels/gpu/mma_patch.h"

#define PIXEL_BYTES (CHANNELS * 2)
#define STEPS (GROUP > 8 ? GROUP : 8)  // channels that one is multiplied with
#define WORDS (STEPS / 8)

// In a pixel the chunks' order is changed, so that among eight pixels that a matrix' rows are no two share a
// bank: they are `step` columns apart.
#define CHUNK_PLACE(chunk, column, step) ((((chunk) ^ ((column) / (step))) & 7) * 16)

// A row of so many pixels, kColumns of each image from the first one on, zeros outside.
template <int kPixels, int kColumns, int kStep>
F_DEVICE void bring_row(u32 to, const element_t* from, int first_image, int first_channel, int row, int left,
                        int channels, int height, int width, int images) {
  const int chunk = F_THREAD() % 8, channel = first_channel + chunk * CHUNK;
  const bool is_row = (u32)row < (u32)height && channel < channels;
  F_UNROLL
  for (int turn = 0; turn < (kPixels + THREADS / 8 - 1) / (THREADS / 8); ++turn) {
    const int pixel = F_THREAD() / 8 + turn * (THREADS / 8), column = pixel % kColumns,
              image = pixel / kColumns;
    const int n = first_image + image;
    const bool wanted = is_row && (u32)(left + column) < (u32)width && image < IMAGES && n < images;
    const index_t at = wanted ? F_OFFSET(n, channel, row, left + column, channels, height, width) : 0;
    copy_chunk_if(pixel < kPixels, to + pixel * PIXEL_BYTES + CHUNK_PLACE(chunk, column, kStep), from + at,
                  wanted);
  }
}
