// The filters' gradient of a depthwise convolution on the matrix units (mma.sync), nhwc, without strides. Of one channel
// a row of x meets as many rows of the output's gradient as the filter has, and each tap across is a shift of x: the
// product of these rows with the shifts of 16 columns, a matrix whose columns are x from the next pixel on (a Hankel
// matrix), is part of all taps' sums at once. The 16 columns are eight of each of two rows of x.
//
// A block brings halo patches of CHANNELS channels of x, twice, and tiles of the gradient, one after the other, and turns
// them: local memory has a plane a channel. The second patch is a column to the right, for shifts by odd numbers. A warp
// has some of the channels.
//
// The host defines what mma_patch.h asks for, and SPLIT: 1 where blocks share the pixels (then the result is [split][the
// whole filter] in floats). Filters have up to 8 x 8 taps.
#include "kernels/gpu/depthwise_mma_planes.h"
#include "kernels/gpu/parts.h"

#define PATCH_ROWS ((ROWS + R - 1 + 3) / 4 * 4)  // what an instruction reads: four
#define PATCH_PAIRS (EIGHTS * 4 + 4)
#define PATCH_PITCH (PATCH_PAIRS * 4)
#define PATCH_IMAGE (PATCH_ROWS * PATCH_PITCH)
#define PATCH_BYTES (OCTETS * CHUNK_BYTES(IMAGES * PATCH_IMAGE) + 64)  // the second one's banks are others
#define TILE_PITCH ((EIGHTS | 1) * 16)                                 // eight rows share no bank
#define TILE_IMAGE (ROWS * TILE_PITCH)
#define TILE_BYTES (OCTETS * CHUNK_BYTES(IMAGES * TILE_IMAGE))
#define OWN (CHANNELS / (THREADS / 32))  // channels of a warp

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_mma_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(result_t, w), int splits, Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(result_t, w);
  const int thread = F_THREAD(), lane = thread % 32;
  const int chunks = (z.c + CHANNELS - 1) / CHANNELS, across = (z.q + COLUMNS - 1) / COLUMNS;
  const int down = (z.p + ROWS - 1) / ROWS, tiles = across * down * ((z.n + IMAGES - 1) / IMAGES);
  const int first_channel = F_BLOCK(0) % chunks * CHANNELS, split = F_BLOCK(0) / chunks;
  unsigned char* const gradient = local_memory + 2 * PATCH_BYTES;
  unsigned char* const zeros = gradient + TILE_BYTES;
  if (thread < 4) ((u32*)zeros)[thread] = 0;

  // The lane's shift of x, from its patch, and its row of the four that a quarter of the warp reads of the gradient.
  const int shift = lane / 4, behind = lane / 8 - lane % 8;
  const int from_patch = shift % 2 * PATCH_BYTES + (shift / 2 + lane % 4) * 4;
  float sums[OWN][4];
  F_UNROLL
  for (int i = 0; i < OWN * 4; ++i) sums[i / 4][i % 4] = 0.0f;
  F_NO_UNROLL
  for (int at = split; at < tiles; at += splits) {
    const int first_column = at % across * COLUMNS, first_row = at / across % down * ROWS;
    const int first_image = at / across / down * IMAGES;
    F_BARRIER();
    bring_planes<IMAGES, ROWS, EIGHTS * 4, TILE_PITCH, TILE_IMAGE, 0>(gradient, y, first_image, first_channel, first_row,
                                                                       first_column, z.k, z.p, z.q, z.n);
    bring_planes<IMAGES, PATCH_ROWS, PATCH_PAIRS, PATCH_PITCH, PATCH_IMAGE, PATCH_BYTES>(
        local_memory, x, first_image, first_channel, first_row - z.pad_top, first_column - z.pad_left, z.c, z.h, z.w, z.n);
    F_BARRIER();
    F_UNROLL
    for (int own = 0; own < OWN; ++own) {
      const int channel = thread / 32 * OWN + own, chunk = channel / CHUNK;
      const unsigned char* patch = local_memory + chunk * CHUNK_BYTES(IMAGES * PATCH_IMAGE) +
                                   channel % CHUNK * (IMAGES * PATCH_IMAGE) + from_patch;
      u32 tile = local_address(gradient) + chunk * CHUNK_BYTES(IMAGES * TILE_IMAGE) +
                 channel % CHUNK * (IMAGES * TILE_IMAGE);
      F_NO_UNROLL
      for (int strip = 0; strip < IMAGES * EIGHTS; ++strip) {
        const int image = IMAGES == 1 ? 0 : strip / EIGHTS, column = strip - image * EIGHTS;
        const unsigned char* const words = patch + image * PATCH_IMAGE + column * 16;
        const u32 rows = tile + image * TILE_IMAGE + column * 16;
        F_UNROLL
        for (int i = 0; i < PATCH_ROWS; i += 4) {
          u32 read[4];
          load_matrices((u32)(i + behind) < (u32)ROWS ? rows + (i + behind) * TILE_PITCH : local_address(zeros), read);
          F_UNROLL
          for (int two = 0; two < 2; ++two) {
            const unsigned char* const row = words + (i + two * 2) * PATCH_PITCH;
            const u32 a[4] = {read[two * 2], 0, read[two * 2 + 1], 0};
            const u32 b[2] = {*(const u32*)row, *(const u32*)(row + PATCH_PITCH)};
            multiply(a, b, sums[own]);
          }
        }
      }
    }
  }

  result_t* const part = w + (SPLIT ? (size_t)split * z.c * (R * S) : 0);
  const int r = lane / 4, s = lane % 4 * 2;
  F_UNROLL
  for (int own = 0; own < OWN; ++own) {
    const int c = first_channel + thread / 32 * OWN + own;
    if (c >= z.c || r >= R) continue;
    const index_t to = (index_t)c * (R * S) + r * S + s;
    if (s < S) STORE_RESULT(part, to, sums[own][0]);
    if (s + 1 < S) STORE_RESULT(part, to + 1, sums[own][1]);
  }
}
