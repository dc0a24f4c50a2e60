// A stage's tile of the sum in local memory: where its chunks lie, what the matrix units take of it, and how
// rows of few channels come to it. A part of implicit_gemm_mma.cu, whose definitions it uses.
#pragma once

// Where a chunk lies in a stage. Eight rows of pixels with the same chunk fill all banks; so do eight rows of
// 16-bit weights, and four rows of 32-bit weights eight channels each.
F_DEVICE u32 pixel_chunk(int pixel, int chunk) {
  return pixel * (CHUNKS_P * 16) + (chunk ^ (pixel & 7)) * 16;
}
#ifdef DTYPE_f32
#define WEIGHT_TURN(step) (((step)&3) << 1)
#else
#define WEIGHT_TURN(step) ((step)&7)
#endif
F_DEVICE u32 weight_chunk(int step, int chunk) {
  return PIXEL_BYTES + (step * CHUNKS_C + (chunk ^ WEIGHT_TURN(step))) * 16;
}

// What the matrix units take of a stage for its MMA_STEPS steps from k * MMA_STEPS on: a of the warp's
// pixels, b of its channels. The rows of a warp begin on multiples of eight, so that only the lane decides
// how chunks are turned.
F_DEVICE void load_operands(u32 stage, int k, int warp_p, int warp_c, int lane, u32 a[TILES_P][4],
                            u32 b[TILES_C][2]) {
  const u32 row = stage + (warp_p + lane % 16) * (CHUNKS_P * 16) + ((k * 2 + lane / 16) ^ (lane & 7)) * 16;
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) load_matrices(row + i * 16 * CHUNKS_P * 16, a[i]);
#ifdef DTYPE_f32
  F_UNROLL
  for (int v = 0; v < 2; ++v) {
    const int step = k * 8 + v * 4 + lane % 4, turn = WEIGHT_TURN(lane % 4);
    const u32 words = stage + PIXEL_BYTES + (step * CHUNKS_C + warp_c / 4) * 16 + lane / 4 % 4 * 4;
    F_UNROLL
    for (int j = 0; j < TILES_C; ++j)
      b[j][v] = to_tf32(load_word(words + (((j * 2 + lane / 16) ^ turn) * 16)));
  }
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) {
    F_UNROLL
    for (int v = 0; v < 4; ++v) a[i][v] = to_tf32(a[i][v]);
  }
#else
  const u32 line = stage + PIXEL_BYTES + (k * 16 + lane % 16) * (CHUNKS_C * 16);
  F_UNROLL
  for (int j = 0; j < TILES_C; j += 2) {
    u32 four[4];
    load_matrices_transposed(line + ((warp_c / 8 + j + lane / 16) ^ (lane & 7)) * 16, four);
    b[j][0] = four[0], b[j][1] = four[1], b[j + 1][0] = four[2], b[j + 1][1] = four[3];
  }
#endif
}

#if ROW_CHANNELS
// The chunk of a pixel's steps from `step` on. What lies in a filter's row together does so in the image's
// row, off any alignment; a chunk of zeros where the row is out of the image or the filter.
F_DEVICE void gathered_row(const element_t* in, Pixel pixel, int step, element_t* chunk, Sizes z) {
  const int r = step / ROW_STEPS, j = step % ROW_STEPS;
  const int h = pixel.row * STRIDE_H - z.pad_top + r * DILATION_H;
  const int first = (pixel.column * STRIDE_W - z.pad_left) * ROW_CHANNELS + j;  // element of the image's row
  const int begin = first < 0 ? -first : 0;
  const int end = F_MIN(RUN - j, IN_W * ROW_CHANNELS - first);
  const bool inside = pixel.n >= 0 && r < R && h >= 0 && h < IN_H && begin < end;
  const u32 length = inside ? end - begin : 0;
  const element_t* const from = in + (((index_t)pixel.n * IN_H + h) * IN_W * ROW_CHANNELS + first);
  F_UNROLL
  for (int i = 0; i < CHUNK; ++i) chunk[i] = (u32)(i - begin) < length ? from[i] : (element_t)0;
}
#endif
