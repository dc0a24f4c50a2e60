// Groups of 2 to 32 channels on the matrix units (mma.sync), forward and backward_data. A block brings a halo
// patch of 64 channels to local memory, a row of it after the other; a warp has 16 of the results' channels, and walks
// down the patch with 16 places: what it reads of a row meets every row of the filter at once, each in the sums of
// another row of results. A row of results goes through local memory, so that whole lines are stored. Of 8 channels the
// filter's registers have all that they meet, zeros between groups. A place is a result of forward, and STRIDE_H x
// STRIDE_W results of backward_data.
//
// The host defines what grouped_mma_patch.h asks for, for nchw grouped_mma_planes.h, or grouped_mma_whole.h and WHOLE;
// THREADS is 128 for each 16 places. PHASE_H and PHASE_W (backward_data): what remains of the padding divided by the
// strides. ASKS_AHEAD: 1 where what is read is asked for while the kernel before still runs (but of planes by runs).
#include "kernels/gpu/grouped_mma_ahead.h"
#define FILTER_BYTES (R * S * GROUP * 2)  // of one of the 64 channels
#ifdef WHOLE
#include "kernels/gpu/grouped_mma_whole.h"
#elif defined(LAYOUT_nchw)
#include "kernels/gpu/grouped_mma_planes.h"
#endif

// Result `phase` of place i reads the row i * STEP + FIRST + AT by a tap, if it HAS one.
#ifdef DIRECTION_bwd_d
#define REACH(taps, stride, rest) (((taps)-1 - (rest) + (stride)) / (stride))
#define HAS(phase, tap, stride, rest) (((phase) + (rest) - (tap)) % (stride) == 0)
#define AT(phase, tap, taps, stride, rest) (((phase) + (rest) - (tap)) / (stride) + REACH(taps, stride, rest) - 1)
#define SPAN(taps, stride, rest) (REACH(taps, stride, rest) + ((rest) > 0))
#define FIRST(pad, taps, stride, rest) ((pad) / (stride) + 1 - REACH(taps, stride, rest))
#define PHASES(stride) (stride)
#define STEP(stride) 1
#else
#define HAS(phase, tap, stride, rest) 1
#define AT(phase, tap, taps, stride, rest) (tap)
#define SPAN(taps, stride, rest) (taps)
#define FIRST(pad, taps, stride, rest) (-(pad))
#define PHASES(stride) 1
#define STEP(stride) (stride)
#endif
#define SPAN_H SPAN(R, STRIDE_H, PHASE_H)
#define SPAN_W SPAN(S, STRIDE_W, PHASE_W)
#define PATCH_ROWS ((ROWS - 1) * STEP(STRIDE_H) + SPAN_H)
#define PATCH_COLUMNS ((COLUMNS - 1) * STEP(STRIDE_W) + SPAN_W)
#define ROW_PIXELS (IMAGES * PATCH_COLUMNS)
#define SUM_ROWS ((SPAN_H + STEP(STRIDE_H) - 1) / STEP(STRIDE_H))  // that a row of the patch is part of

// 16 x 8 sums += 16 places x STEPS channels x 8 channels; a is what a warp has of 16 places' channels, two words of
// each eight.
F_DEVICE void multiply_steps(const u32* a, const u32* b, float* d) {
#if WORDS > 1
  F_UNROLL
  for (int i = 0; i < WORDS; i += 2) multiply(a + 2 * i, b + i, d);
#else
  multiply_eight(a, b, d);
#endif
}

#ifndef WHOLE
#define FILTER_PITCH FILTER_BYTES
#if GROUP >= 8
// Matrices of eight results' channels by eight of those that they meet, in the order of the words.
F_DEVICE void read_filter(u32 filters, int warp_channel, int lane, u32* words) {
  const int read_channel = warp_channel / STEPS * STEPS, matrices = R * S * 2 * WORDS;
  F_UNROLL
  for (int first = 0; first < matrices; first += 4) {
    const int matrix = F_MIN(first + lane / 8, matrices - 1);
    const int tap = matrix / (2 * WORDS), eight = matrix / WORDS % 2 * 8, word = matrix % WORDS * 8;
    const int to = warp_channel + eight, from = WORDS == 1 ? to : read_channel + word;
    u32 read[4];
#ifdef DIRECTION_bwd_d
    load_matrices_transposed(filters + (from + lane % 8) * FILTER_BYTES + tap * GROUP * 2 + to % GROUP * 2, read);
#else
    load_matrices(filters + (to + lane % 8) * FILTER_BYTES + tap * GROUP * 2 + from % GROUP * 2, read);
#endif
    F_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (first + i < matrices) words[first + i] = read[i];
    }
  }
}
#else
// Zeros between groups. (What reads does not depend on which: all are read at once.)
F_DEVICE void read_filter(const element_t* filters, int warp_channel, int lane, u32* words) {
  const u32 mask = lane / 4 / GROUP == lane % 4 * 2 / GROUP ? ~0u : 0;
  F_UNROLL
  for (int i = 0; i < R * S * 2; ++i) {
    const int tap = i / 2, to = warp_channel + i % 2 * 8 + lane / 4, from = warp_channel + i % 2 * 8 + lane % 4 * 2;
#ifdef DIRECTION_bwd_d
    const element_t* const low = filters + (from * R * S + tap) * GROUP + to % GROUP;
    words[i] = (low[0] | (u32)low[R * S * GROUP] << 16) & mask;
#else
    words[i] = *(const u32*)(filters + (to * R * S + tap) * GROUP + from % GROUP) & mask;
#endif
  }
}
#endif
#endif

// Whole planes of results are stored at the end, from where they are put.
//
// Else: pixels of a row of results, in local memory; a turn stores as many as there are eight threads. Of nchw a channel's
// lie side by side, an odd number of 16 bytes from the next one's, and are stored by runs.
#define TURN (THREADS / 8)
#define RESULT_PIXELS (TURN * PHASES(STRIDE_W))
#ifdef WHOLE
#define TOGETHER PATCH_ROWS  // that are waited for at once
#elif defined(LAYOUT_nchw)
#define RESULT_PITCH (RESULT_PIXELS * 2 + 16)
#define RESULT_BYTES (PHASES(STRIDE_H) * CHANNELS * RESULT_PITCH)
#define IMAGE_RUNS (COLUMNS * PHASES(STRIDE_W) / STORE_RUN)
#define RUNS (CHANNELS * IMAGES * IMAGE_RUNS)
#define TURNS ((RUNS + THREADS - 1) / THREADS)
#else
#define RESULT_BYTES (PHASES(STRIDE_H) * RESULT_PIXELS * PIXEL_BYTES)
#define TURNS PHASES(STRIDE_W)
#endif
#ifndef WHOLE
#define TOGETHER 1
#endif

F_DENSE_KERNEL(THREADS, BLOCKS)
grouped_mma(F_TENSORS(in, w, out), Sizes z) {
  F_LET_NEXT_BEGIN();
  F_OPEN_TENSORS(in, w, out)
  const int thread = F_THREAD(), lane = thread % 32, tile = thread / 128;
  const int chunks = (OUT_C + CHANNELS - 1) / CHANNELS;
  const int strips = (OUT_W + COLUMNS * PHASES(STRIDE_W) - 1) / (COLUMNS * PHASES(STRIDE_W));
  const int bands = (OUT_H + ROWS * PHASES(STRIDE_H) - 1) / (ROWS * PHASES(STRIDE_H));
  const int block = F_BLOCK(0), first_channel = block % chunks * CHANNELS;
  const int first_column = block / chunks % strips * COLUMNS, first_row = block / chunks / strips % bands * ROWS;
  const int first_image = block / chunks / strips / bands * IMAGES;
  const u32 patch = local_address(local_memory);

  unsigned char* const filters = local_memory + PATCH_ROWS * ROW_PIXELS * PIXEL_BYTES;
  unsigned char* const result = filters + CHANNELS * FILTER_PITCH;
  const int top = first_row * STEP(STRIDE_H) + FIRST(z.pad_top, R, STRIDE_H, PHASE_H);
  const int left = first_column * STEP(STRIDE_W) + FIRST(z.pad_left, S, STRIDE_W, PHASE_W);
  if (ASKS_AHEAD) {
    ask_for_run(w + (index_t)first_channel * (R * S * GROUP), F_MIN(OUT_C - first_channel, CHANNELS) * (R * S * GROUP));
#ifdef WHOLE
    ask_for_planes(in, first_image, first_channel, IN_C, z.n);
#elif defined(LAYOUT_nhwc)
    ask_for_pixels<PATCH_ROWS, PATCH_COLUMNS>(in, first_image, first_channel, top, left, IN_C, IN_H, IN_W, z.n);
#endif
  }
  F_WAIT_FOR_PREVIOUS();
#ifdef WHOLE  // results are put where what was brought lay
  bring_planes(local_address(result), in, first_image, first_channel, IN_C, z.n);
  bring_filters_apart(filters, w, first_channel, OUT_C);
#elif defined(LAYOUT_nchw)
  turn_filters(filters, w, first_channel, OUT_C);
  bring_planes<PATCH_ROWS, PATCH_COLUMNS, STEP(STRIDE_W)>(local_memory, in, first_image, first_channel, top, left, IN_C, IN_H,
                                                          IN_W, z.n);
#else
  bring_filters<R * S * GROUP>(filters, w, first_channel, OUT_C);
  F_NO_UNROLL
  for (int row = 0; row < PATCH_ROWS; ++row) {
    bring_row<ROW_PIXELS, PATCH_COLUMNS, STEP(STRIDE_W)>(patch + row * ROW_PIXELS * PIXEL_BYTES, in, first_image,
                                                         first_channel, top + row, left, IN_C, IN_H, IN_W, z.n);
    close_copies();
  }
#endif

  // What the warp reads. Where eights are odd the last one has both halves. What its results sum over begins with a
  // group.
  const int warp_channel = thread / 32 % 4 * 16, own = first_channel + warp_channel;
  const int chunk = warp_channel / STEPS * STEPS / CHUNK + lane / 16;
  const int eight = F_MIN(tile * 2 + lane / 8 % 2, IMAGES * EIGHTS - 1);
  const int column = (eight % EIGHTS * 8 + lane % 8) * STEP(STRIDE_W);
  const u32 pixels = patch + (eight / EIGHTS * PATCH_COLUMNS + column) * PIXEL_BYTES;
#ifndef WHOLE
  // What the thread stores, from the first row of results on, and where it lies; -1 where there is no pixel.
  index_t stores[TURNS];
  int from[TURNS];
  F_UNROLL
  for (int turn = 0; turn < TURNS; ++turn) {
#ifdef LAYOUT_nchw  // runs of a channel's pixels
    const int item = turn * THREADS + thread, run = item % IMAGE_RUNS, image = item / IMAGE_RUNS % IMAGES;
    const int of = item / IMAGE_RUNS / IMAGES, channel = of < CHANNELS ? first_channel + of : OUT_C;
    const int to = first_column * PHASES(STRIDE_W) + run * STORE_RUN;
    from[turn] = of * RESULT_PITCH + (image * COLUMNS * PHASES(STRIDE_W) + run * STORE_RUN) * 2;
#else  // chunks of pixels
    const int pixel = turn * TURN + thread / 8, place = pixel / PHASES(STRIDE_W), image = place / COLUMNS;
    const int channel = first_channel + thread % 8 * CHUNK;
    const int to = (first_column + place % COLUMNS) * PHASES(STRIDE_W) + pixel % PHASES(STRIDE_W);
    from[turn] = pixel * PIXEL_BYTES + CHUNK_PLACE(thread % 8, pixel, PHASES(STRIDE_W));
#endif
    const bool is_pixel = image < IMAGES && first_image + image < z.n && to < OUT_W && channel < OUT_C;
    stores[turn] = is_pixel ? F_OFFSET(first_image + image, channel, 0, to, OUT_C, OUT_H, OUT_W) : -1;
  }
#endif
  u32 filter[R * S][2][WORDS];
#ifdef WHOLE
  wait_for_rows<1>(1);
  turn_planes<PATCH_ROWS, PATCH_COLUMNS, STEP(STRIDE_W)>(local_memory, result, top, left, IN_H, IN_W);
  wait_for_rows<0>(0);
  read_filter(filters, warp_channel, lane, &filter[0][0][0]);
#else
  wait_for_rows<PATCH_ROWS>(PATCH_ROWS);
#if GROUP >= 8
  read_filter(local_address(filters), warp_channel, lane, &filter[0][0][0]);
#else
  read_filter((const element_t*)filters, warp_channel, lane, &filter[0][0][0]);
#endif
#endif

  float sums[SUM_ROWS][PHASES(STRIDE_H)][PHASES(STRIDE_W)][2][4];
  const auto add_row = [&](int i) {
    if (i % STEP(STRIDE_H) == 0) {
      float* const fresh = &sums[i / STEP(STRIDE_H) % SUM_ROWS][0][0][0][0];
      F_UNROLL
      for (int j = 0; j < PHASES(STRIDE_H) * PHASES(STRIDE_W) * 8; ++j) fresh[j] = 0.0f;
    }
    F_UNROLL
    for (int at = 0; at < SPAN_W; ++at) {
      u32 a[WORDS == 1 ? 4 : 2 * WORDS];
      F_UNROLL
      for (int two = 0; two < (WORDS + 1) / 2; ++two)
        load_matrices(pixels + (i * ROW_PIXELS + at) * PIXEL_BYTES +
                          CHUNK_PLACE(chunk + 2 * two, column + at, STEP(STRIDE_W)),
                      a + 4 * two);
      F_UNROLL
      for (int tap = 0; tap < R * S; ++tap) {
        F_UNROLL
        for (int phase = 0; phase < PHASES(STRIDE_H) * PHASES(STRIDE_W); ++phase) {
          const int r = tap / S, s = tap % S, ph = phase / PHASES(STRIDE_W), pw = phase % PHASES(STRIDE_W);
          if (!HAS(ph, r, STRIDE_H, PHASE_H) || !HAS(pw, s, STRIDE_W, PHASE_W)) continue;
          const int below = i - AT(ph, r, R, STRIDE_H, PHASE_H), m = below / STEP(STRIDE_H);
          if (AT(pw, s, S, STRIDE_W, PHASE_W) != at || below < 0 || below % STEP(STRIDE_H) != 0 || m >= ROWS)
            continue;
          F_UNROLL
          for (int e = 0; e < 2; ++e)
            multiply_steps(WORDS > 1 ? a : a + 2 * e, filter[tap][e], sums[m % SUM_ROWS][ph][pw][e]);
        }
      }
    }
  };
  // Row m of places, as it is stored: 16 places by 16 channels a warp.
  const auto put_row = [&](int m) {
    F_UNROLL
    for (int i = 0; i < PHASES(STRIDE_H) * PHASES(STRIDE_W) * 4; ++i) {
      const int ph = i / 4 / PHASES(STRIDE_W), pw = i / 4 % PHASES(STRIDE_W), half = i / 2 % 2, e = i % 2;
      const int place = tile * 16 + half * 8 + lane / 4, pixel = place * PHASES(STRIDE_W) + pw;
      const float* const sum = sums[m % SUM_ROWS][ph][pw][e] + half * 2;
      float v[2] = {sum[0], sum[1]};
#ifdef DIRECTION_fwd
      const int n = first_image + place / COLUMNS, row = first_row + m, to = first_column + place % COLUMNS;
      const int channel = own + e * 8 + lane % 4 * 2;
      if (place < IMAGES * COLUMNS && n < z.n && row < OUT_H && to < OUT_W && own < OUT_C) {
        const index_t offset = F_OFFSET(n, channel, row, to, OUT_C, OUT_H, OUT_W);
        const index_t next = F_OFFSET(n, channel + 1, row, to, OUT_C, OUT_H, OUT_W);
        v[0] = F_EPILOGUE(v[0], channel, offset), v[1] = F_EPILOGUE(v[1], channel + 1, next);
      }
#endif
      const u32 pair = F_PAIR(v[0], v[1]);
#ifdef WHOLE
      const int image = place / COLUMNS, of = image * CHANNELS + warp_channel + e * 8 + lane % 4 * 2;
      const int down = m * PHASES(STRIDE_H) + ph, across = place % COLUMNS * PHASES(STRIDE_W) + pw;
      unsigned char* const line = result + (of * OUT_PLANE + down * OUT_W + across) * 2;
      if (image < IMAGES && down < OUT_H && across < OUT_W)
        *(u16*)line = (u16)pair, *(u16*)(line + OUT_PLANE * 2) = (u16)(pair >> 16);
#elif defined(LAYOUT_nchw)
      const int of = ph * CHANNELS + warp_channel + e * 8 + lane % 4 * 2;
      unsigned char* const line = result + m % 2 * RESULT_BYTES + of * RESULT_PITCH + pixel * 2;
      *(u16*)line = (u16)pair, *(u16*)(line + RESULT_PITCH) = (u16)(pair >> 16);
#else
      unsigned char* const line = result + m % 2 * RESULT_BYTES + (ph * RESULT_PIXELS + pixel) * PIXEL_BYTES;
      *(u32*)(line + CHUNK_PLACE(warp_channel / CHUNK + e, pixel, PHASES(STRIDE_W)) + lane % 4 * 4) = pair;
#endif
    }
  };
  const auto store_row = [&](int m) {
#ifdef WHOLE
    if (m == ROWS - 1) store_planes(out, result, first_image, first_channel, OUT_C, z.n);
#else
    F_UNROLL
    for (int ph = 0; ph < PHASES(STRIDE_H); ++ph) {
      const int row = (first_row + m) * PHASES(STRIDE_H) + ph;
      const unsigned char* const results = result + m % 2 * RESULT_BYTES + ph * (RESULT_BYTES / PHASES(STRIDE_H));
      F_UNROLL
      for (int turn = 0; turn < TURNS; ++turn) {
        if (row >= OUT_H || stores[turn] < 0) continue;
#ifdef LAYOUT_nchw
        *(Run<STORE_RUN>*)(out + stores[turn] + (index_t)row * OUT_W) = *(const Run<STORE_RUN>*)(results + from[turn]);
#else
        *(uint4*)(out + stores[turn] + (index_t)row * OUT_W * OUT_C) = *(const uint4*)(results + from[turn]);
#endif
      }
    }
#endif
  };
  walk_down<PATCH_ROWS, SPAN_H, STEP(STRIDE_H), TOGETHER>(add_row, put_row, store_row);
}
