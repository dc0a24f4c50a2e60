// The convolution as a matrix product on matrix units, AMD's or through OpenCL NVIDIA's, or by AMD's products of pairs: channels x pixels,
// summed over taps and channels. Tiles of both operands go through local memory as chunks of 16 bytes along the sum; while a tile is
// multiplied, registers bring the next one, or copies the next ones.
//
// The host defines DIRECTION_fwd or DIRECTION_bwd_d, BP and BC (pixels and channels of a block), WAVES_P and WAVES_C (its
// waves along each), CHUNKS (of a row of a tile of the sum), STAGES (tiles of the sum in local memory; 2 where registers
// bring them), EXACT (1: a tap's channels are whole tiles of the sum), GATHER (1: the steps of a pixel are no aligned chunks
// in memory and are brought one by one), WHOLE (1: a tap's channels are whole chunks), ROWS (1: forward in nhwc a row of the
// filter is one tap, for its elements lie together; then S is 1, and they are the group's channels), WHOLE_RUNS (1: a lane's
// results are whole chunks in memory), SPLIT (1: blocks share a sum), THREADS, COMPACT (0) and what convolution.h and the
// units' header ask for.
#include "kernels/gpu/gathered_product.h"
#include "kernels/gpu/parts.h"
#ifdef MATRIX_mma_ptx
#include "kernels/gpu/nvidia_matrix.h"
#include "kernels/gpu/matrix_runs.h"
#else
#include "kernels/gpu/amd_matrix.h"
#endif

#define BK (CHUNKS * CHUNK)
#define WAVE_P (BP / WAVES_P)
#define WAVE_C (BC / WAVES_C)
#define TILES_P (WAVE_P / 16)
#define TILES_C (WAVE_C / 16)
#define PIXEL_CHUNKS (BP * CHUNKS / THREADS)  // that a thread brings
#define CHANNEL_CHUNKS (BC * CHUNKS / THREADS)
// Where a pixel's chunk lies; base: a multiple of 16.
#if F_COPIES
// A pixel's chunks side by side, as in memory: copies bring what lies in one line there by one access if it does so here. Their order
// is the pixel's, so that eight pixels' chunks of one number lie in all banks.
#define PIXEL_AT(chunk, base, pixel) (((base) + (pixel)) * CHUNKS + ((chunk) ^ ((pixel)*CHUNKS / 8 & (CHUNKS - 1))))
#else
// Pixels of a row of chunks are turned, so that the chunks of a pixel, which neighbouring threads write, lie in other
// banks; 16 neighbouring pixels of a row still lie in all.
#define TURNED(chunk, pixel) ((pixel) ^ ((chunk)*8 / CHUNKS & 7))
#define PIXEL_AT(chunk, base, pixel) ((chunk)*BP + (base) + TURNED(chunk, pixel))
#endif

#if GATHER  // neighbouring threads bring neighbouring pixels
#define OWN_PIXEL(i) ((thread + (i)*THREADS) % BP)
#define OWN_CHUNK(i) ((thread + (i)*THREADS) / BP)
#else  // neighbouring threads bring neighbouring chunks of a pixel
#define OWN_PIXEL(i) ((thread + (i)*THREADS) / CHUNKS)
#define OWN_CHUNK(i) ((thread + (i)*THREADS) % CHUNKS)
#endif
// While one word has a bit for each tap, what a tap reads is a pixel's first tap's place and a shift that all share.
#define MASKED (TAPS <= 32)
#ifdef LAYOUT_nchw
#define IN_PIXEL_STRIDE 1
#else
#define IN_PIXEL_STRIDE IN_C
#endif
// Whether a pixel may read the one that has its number, which takes no division.
#if defined(LAYOUT_nhwc) && F_COPIES && TAPS == 1 && STRIDE_H * STRIDE_W == 1
#define LINEAR_INPUT 1
#else
#define LINEAR_INPUT 0
#endif
#define STAGE(turn) ((u32)(turn) % STAGES)
#define COPIES_PIXELS (F_COPIES && !GATHER)
// A tap that there is: behind the last comes none, and a phase may have none at all.
#if MASKED && PHASES_H * PHASES_W == 1
#define EXISTING(tap) min(tap, TAPS - 1)
#else
#define EXISTING(tap) max(tap, 0)
#endif
#define HAS_TAP(tap)                                                  \
  ((row_phase + z.pad_top - (tap) / S * DILATION_H) % PHASES_H == 0 && \
   (column_phase + z.pad_left - (tap) % S * DILATION_W) % PHASES_W == 0)

// A bit for each tap of the pixel that reads nothing: its row is outside the image, or its column.
#if MASKED
#define OF_ROW (~0u >> (32 - S))
F_DEVICE u32 missing_taps(Pixel p, Sizes z) {
  u32 rows = 0, columns = 0;
  F_UNROLL
  for (int r = 0; r < R; ++r) rows |= (u32)IN_ROW(p.row, r) < (u32)IN_H ? 0 : OF_ROW << (r * S);
#if !ROWS
  F_UNROLL
  for (int s = 0; s < S; ++s) {
    u32 column = 0;  // of each row
    F_UNROLL
    for (int r = 0; r < R; ++r) column |= 1u << (r * S);
    columns |= (u32)IN_COLUMN(p.column, s) < (u32)IN_W ? 0 : column << s;
  }
#endif
  return p.n < 0 ? ~0u : rows | columns;
}
#endif

// Where a pixel's results lie, the group's channel 0; -1 where there is no such pixel.
#define PLACED group, row_phase, column_phase, z
F_DEVICE index_t place_of(index_t pixel, int group, int row_phase, int column_phase, Sizes z) {
#if defined(LAYOUT_nhwc) && PHASES_H * PHASES_W == 1  // pixels lie one after the other
  return pixel < (index_t)z.n * OUT_H * OUT_W ? pixel * OUT_C + group * OUT_GROUP : -1;
#else
  const Pixel p = pixel_at(pixel, row_phase, column_phase, z);
  return p.n < 0 ? -1 : F_OFFSET(p.n, group * OUT_GROUP, p.row, p.column, OUT_C, OUT_H, OUT_W);
#endif
}

F_KERNEL(THREADS)
implicit_gemm_matrix(F_INPUT(element_t, in), F_INPUT(element_t, packed), F_OUTPUT(result_t, result),
                     F_INPUT(element_t, bias), F_INPUT(element_t, residual), F_INPUT(float, slopes),
                     int out_pad, int splits, Sizes z) {
  F_LOCAL_ARRAY(uint4, pixels, STAGES * CHUNKS * BP);
  F_LOCAL_ARRAY(uint4, channels, STAGES * CHUNKS * BC);
  const int thread = F_THREAD(), lane = thread % WAVE, wave = thread / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_c = wave / WAVES_P * WAVE_C;
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(element_t, packed);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  F_OPEN_OUTPUT(result_t, result);
  F_OPEN_PRODUCT(BP, BC)
  F_GLOBAL result_t* const out = F_OWN_RESULTS(result);
  const int in_chunks = (IN_GROUP + CHUNK - 1) / CHUNK;
  const buffer_t tensor = buffer_of(in, (u32)z.n * IN_C * IN_H * IN_W * sizeof(element_t));
  const buffer_t weights = buffer_of(packed + (index_t)group * TAPS * in_chunks * out_pad * CHUNK,
                                     (u32)TAPS * in_chunks * out_pad * 16);

#if MASKED
#if LINEAR_INPUT
  const int linear = OUT_H == IN_H && OUT_W == IN_W && z.pad_top == 0 && z.pad_left == 0;
#endif
  index_t bases[PIXEL_CHUNKS];
#if ROWS
  int row_begins[PIXEL_CHUNKS];  // elements from the image's left edge
#endif
  u32 missing[PIXEL_CHUNKS];  // a bit for each tap that reads nothing: outside the image
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) {
#if LINEAR_INPUT
    const index_t pixel = first_pixel + OWN_PIXEL(i);
    if (linear) {
      missing[i] = pixel < (index_t)z.n * OUT_H * OUT_W ? 0 : ~0u;
      bases[i] = pixel * IN_C + group * IN_GROUP;
    } else
#endif
    {
      const Pixel p = pixel_at(first_pixel + OWN_PIXEL(i), row_phase, column_phase, z);
      missing[i] = missing_taps(p, z);
#if ROWS
      row_begins[i] = FIRST_COLUMN(p.column) * IN_C;
#endif
      bases[i] = F_OFFSET(p.n, group * IN_GROUP, 0, 0, IN_C, IN_H, IN_W) +
                 ((index_t)FIRST_ROW(p.row) * IN_W + FIRST_COLUMN(p.column)) * IN_PIXEL_STRIDE;
    }
    F_KEEP(bases[i]);
  }
#else
  Pixel own[PIXEL_CHUNKS];
  index_t offsets[PIXEL_CHUNKS];  // of the first channel of what the tap reads; -1 in the padding
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) {
    own[i] = pixel_at(first_pixel + OWN_PIXEL(i), row_phase, column_phase, z);
    offsets[i] = -1;
  }
#endif

  const int tap_slabs = (in_chunks + CHUNKS - 1) / CHUNKS;  // tiles of the sum in one tap
  int slabs = 0;
  for (int t = 0; t < TAPS; ++t) slabs += HAS_TAP(t) ? tap_slabs : 0;
  int tap = -1, first = tap_slabs * CHUNKS;  // chunk of the newest tile; at first of the one before
#if SPLIT
  int skipped = (int)((i64)slabs * part / splits);
  slabs = (int)((i64)slabs * (part + 1) / splits) - skipped;
#else
  int skipped = 0;
#endif

#if !COPIES_PIXELS
  uint4 next_pixels[PIXEL_CHUNKS];
#endif
#if !F_COPIES
  uint4 next_channels[CHANNEL_CHUNKS];
#endif
  F_RESULTS sums[TILES_C][TILES_P];
  F_UNROLL
  for (int i = 0; i < TILES_C; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_P; ++j) sums[i][j] = (F_RESULTS)(0.0f);
  }

#if GATHER
  // All lanes of a wave bring the same chunk, of other pixels: the way from channel to channel is the wave's, and costs its
  // lanes nothing.
  int own_chunks[PIXEL_CHUNKS];
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) own_chunks[i] = F_OF_WAVE(OWN_CHUNK(i));
#define READ_CHUNK(i) own_chunks[i]
#else
#define READ_CHUNK(i) OWN_CHUNK(i)
#endif
#ifdef MATRIX_dot2
  // What the first turn multiplies: around so many instructions clang would leave a branch.
  F_EACH(i, CHUNKS * BP) pixels[CHUNKS * BP + i] = (uint4)(0);
  F_EACH(i, CHUNKS * BC) channels[CHUNKS * BC + i] = (uint4)(0);
  F_BARRIER();
#define MULTIPLIES(turn) 1
#else
#define MULTIPLIES(turn) ((turn) >= STAGES - 1)
#endif
  // Turn t brings tile t and multiplies tile t - (STAGES - 1).
  for (int turn = -skipped; turn < slabs + STAGES - 1; ++turn) {
    first += CHUNKS;
#if MASKED && PHASES_H * PHASES_W == 1
    const int ends = first >= in_chunks;
    tap += ends;
    first &= ends - 1;  // 0 where one ends, and no branch
#else
    if (first >= in_chunks) {
      if (turn < slabs) {
        do ++tap;
        while (!HAS_TAP(tap));
      }
      first = 0;
#if !MASKED
      F_UNROLL
      for (int i = 0; i < PIXEL_CHUNKS; ++i) offsets[i] = in_offset(own[i], tap, group * IN_GROUP, z);
#endif
    }
#endif
    if (turn < 0) continue;
#if F_COPIES
    WAIT_FOR_COPIES(STAGES - 2);
    F_BARRIER();
#endif
    F_LOCAL uint4* const to_pixels = pixels + STAGE(turn) * CHUNKS * BP;
    F_LOCAL uint4* const to_channels = channels + STAGE(turn) * CHUNKS * BC;
    // What the last turns bring is not used. Registers read it: of weights that there are, and of pixels within the tensor.
    if (!F_COPIES || turn < slabs) {
    const u32 tile = (u32)(EXISTING(tap)*in_chunks + first) * out_pad * 16;
#if MASKED
    const int read = GATHER ? EXISTING(tap) : tap;  // no tensor's end holds what is gathered
    const index_t shift = ((index_t)TAP_ROW(read) * IN_W + TAP_COLUMN(read)) * IN_PIXEL_STRIDE;
#endif
    F_UNROLL
    for (int i = 0; i < PIXEL_CHUNKS; ++i) {
      const int step = (first + READ_CHUNK(i)) * CHUNK;
      // Of bits, not of comparisons: no compiler makes a branch of them.
#if MASKED
      u32 nowhere = missing[i] << (31 - (read & 31)) & F_NOWHERE;
      const index_t begin = bases[i] + shift;
#else
      u32 nowhere = offsets[i] < 0 ? F_NOWHERE : 0;
      const index_t begin = offsets[i];
#endif
#if !EXACT
      nowhere |= first + READ_CHUNK(i) < in_chunks ? 0 : F_NOWHERE;
#endif
#if GATHER
      element_t chunk[CHUNK];
#if ROWS
      // Of the chunk's elements those of the filter's row and the image's.
      const int row_begin = row_begins[i] + step, left = max(-row_begin, 0);
      const int right = min(IN_W * IN_C - row_begin, IN_GROUP - step);
      const u32 length = nowhere != 0 ? 0 : (u32)max(right - left, 0);
      F_UNROLL
      for (int j = 0; j < CHUNK; ++j) chunk[j] = load_neighbour(tensor, begin + step, j, (u32)(j - left) < length);
#else
      // What is added for a channel is not held to the tensor's end: behind the last channel it stays there.
      const u32 pixel = (u32)begin * sizeof(element_t) | nowhere;
      F_UNROLL
      for (int j = 0; j < CHUNK; ++j) {
        const u32 to_channel = (u32)(min(step + j, IN_GROUP - 1) * IN_CHANNEL_STRIDE) * sizeof(element_t);
        const u32 behind = WHOLE ? 0 : (u32)(IN_GROUP - 1 - step - j) & F_NOWHERE;
        chunk[j] = load_element_of(tensor, pixel | behind, to_channel);
      }
#endif
      next_pixels[i] = chunk_of(chunk);
#elif F_COPIES
      copy_chunk(to_pixels + PIXEL_AT(OWN_CHUNK(i), 0, OWN_PIXEL(i)), tensor,
                 (u32)(begin + step) * sizeof(element_t) | nowhere, 0);
#else
      next_pixels[i] = load_chunk(tensor, (u32)(begin + step) * sizeof(element_t) | nowhere);
#endif
    }
    F_UNROLL
    for (int i = 0; i < CHANNEL_CHUNKS; ++i) {
      const int chunk = (thread + i * THREADS) / BC, c = (thread + i * THREADS) % BC;
      const u32 at = (u32)(chunk * out_pad + first_out + c) * 16;
      const u32 from = EXACT || first + chunk < in_chunks ? at : F_NOWHERE;
#if F_COPIES
      copy_chunk(to_channels + chunk * BC + TURNED_CHANNEL(chunk, c), weights, from, tile);
#else
      next_channels[i] = load_chunk_of(weights, from, tile);
#endif
    }
    }
#if F_COPIES
    CLOSE_COPIES();
#endif
    if (MULTIPLIES(turn)) {
      F_LOCAL const uint4* const from_pixels = pixels + STAGE(turn + 1) * CHUNKS * BP;
      F_LOCAL const uint4* const from_channels = channels + STAGE(turn + 1) * CHUNKS * BC + wave_c;
      F_UNROLL
      for (int k = 0; k < CHUNKS; k += FRAGMENT_CHUNKS) {
        uint4 a[TILES_C][LEFT_READS], b[TILES_P][RIGHT_READS];
        F_UNROLL
        for (int v = 0; v < LEFT_READS; ++v) {  // of which the right operand has no more
          const int left = k + LEFT_CHUNK(lane, v), right = k + RIGHT_CHUNK(lane, v);
          F_UNROLL
          for (int i = 0; i < TILES_C; ++i)
            a[i][v] = F_READ(from_channels[left * BC + TURNED_CHANNEL(left, LEFT_PLACE(i, lane, v))]);
          if (v >= RIGHT_READS) continue;
          F_UNROLL
          for (int j = 0; j < TILES_P; ++j)
            b[j][v] = F_READ(from_pixels[PIXEL_AT(right, wave_p + j * 16, RIGHT_COLUMN(lane, v))]);
        }
        F_UNROLL
        for (int i = 0; i < TILES_C; ++i) {
          F_UNROLL
          for (int j = 0; j < TILES_P; ++j) sums[i][j] = multiply(a[i], b[j], sums[i][j]);
        }
      }
    }
#if !COPIES_PIXELS
    F_UNROLL
    for (int i = 0; i < PIXEL_CHUNKS; ++i) {
      to_pixels[PIXEL_AT(OWN_CHUNK(i), 0, OWN_PIXEL(i))] = next_pixels[i];
    }
#endif
#if !F_COPIES
    F_UNROLL
    for (int i = 0; i < CHANNEL_CHUNKS; ++i) to_channels[thread + i * THREADS] = next_channels[i];
    F_BARRIER();
#endif
  }

#if WHOLE_RUNS
  const int first_of_wave = first_out + wave_c;
  float own_bias[4 * TILES_C];
  F_UNROLL
  for (int i = 0; i < 4 * TILES_C; ++i) {
    const int c = first_of_wave + RESULT_PLACE(i / 4, lane, i % 4 * 2);
    own_bias[i] = c < OUT_GROUP ? BIAS_OF(group * OUT_GROUP + c) : 0.0f;
  }
  // What is added to a tile's results is brought while those of the tile before it leave.
  uint4 added[2][RESULT_COLUMNS][4 * TILES_C / RUN];
  F_UNROLL
  for (int j = -1; j < TILES_P; ++j) {
    F_UNROLL
    for (int own = 0; own < RESULT_COLUMNS * 4 * TILES_C / RUN; ++own) {
      const int column = own % RESULT_COLUMNS, run = own / RESULT_COLUMNS * RUN;
      const int c = first_of_wave + RESULT_PLACE(run / 4, lane, 0);
      if (HAS_ADDED && j + 1 < TILES_P) {
        const index_t next = place_of(first_pixel + wave_p + j * 16 + 16 + RESULT_COLUMN(lane, column), PLACED);
        added[(j + 1) & 1][column][run / RUN] = chunk_or_zero(residual + (next + c), next >= 0 && c < OUT_GROUP);
      }
    }
    F_UNROLL
    for (int own = 0; own < RESULT_COLUMNS * 4 * TILES_C / RUN; ++own) {
      const int column = own % RESULT_COLUMNS, run = own / RESULT_COLUMNS * RUN;
      const int c = first_of_wave + RESULT_PLACE(run / 4, lane, 0);
      if (j < 0) continue;
      const index_t place = place_of(first_pixel + wave_p + j * 16 + RESULT_COLUMN(lane, column), PLACED);
      float values[RUN];
      F_UNROLL
      for (int i = 0; i < RUN; ++i) values[i] = ((float*)&sums[(run + i) / 4][j])[(run + i) % 4 * 2 + column];
      const int k = group * OUT_GROUP + min(c, OUT_GROUP - RUN);
      finish_run(values, k, own_bias + run, slopes, added[j & 1][column][run / RUN]);
      if (place >= 0 && c < OUT_GROUP) store_run(out + (place + c), values);
    }
  }
#else
  F_UNROLL
  for (int own = 0; own < TILES_P * RESULT_COLUMNS; ++own) {
    const int j = own / RESULT_COLUMNS, column = own % RESULT_COLUMNS;
    const index_t place = place_of(first_pixel + wave_p + j * 16 + RESULT_COLUMN(lane, column), PLACED);
    F_UNROLL
    for (int i = 0; i < TILES_C; ++i) {
      F_UNROLL
      for (int v = column; v < RESULTS; v += RESULT_COLUMNS) {
        const int c = first_out + wave_c + RESULT_PLACE(i, lane, v);
        const index_t at = place + (index_t)c * OUT_CHANNEL_STRIDE;
        if (place >= 0 && c < OUT_GROUP) STORE_RESULT(out, at, AFTER(((float*)&sums[i][j])[v], group * OUT_GROUP + c, at));
      }
    }
  }
#endif
}
