// The convolution as a matrix product on AMD's matrix units, or by its products of pairs: channels x pixels, summed over taps and channels. Tiles of
// both operands go through local memory as chunks of 16 bytes along the sum; while a tile is multiplied, registers
// bring the next one.
//
// The host defines DIRECTION_fwd or DIRECTION_bwd_d, BP and BC (pixels and channels of a block), WAVES_P and WAVES_C (its
// waves along each), CHUNKS (of a row of a tile of the sum), EXACT (1: a tap's channels are whole tiles of the sum), GATHER
// (1: the steps of a pixel are no aligned chunks in memory and are brought one by one), WHOLE (1: a tap's channels are whole
// chunks), SPLIT (1: blocks share a sum), THREADS, COMPACT (0) and what convolution.h and amd_matrix.h ask for.
#include "kernels/gpu/gathered_product.h"
#include "kernels/gpu/parts.h"
#include "kernels/gpu/amd_matrix.h"

#define BK (CHUNKS * CHUNK)
#define WAVE_P (BP / WAVES_P)
#define WAVE_C (BC / WAVES_C)
#define TILES_P (WAVE_P / 16)
#define TILES_C (WAVE_C / 16)
#define PIXEL_CHUNKS (BP * CHUNKS / THREADS)  // that a thread brings
#define CHANNEL_CHUNKS (BC * CHUNKS / THREADS)
// Pixels of a row of chunks are turned, so that the chunks of a pixel, which neighbouring threads write, lie in other
// banks; 16 neighbouring pixels of a row still lie in all.
#define TURNED(chunk, pixel) ((pixel) ^ ((chunk)*8 / CHUNKS & 7))

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
// A tap that there is: behind the last comes none, and a phase may have none at all.
#if MASKED && PHASES_H * PHASES_W == 1
#define EXISTING(tap) min(tap, TAPS - 1)
#else
#define EXISTING(tap) max(tap, 0)
#endif
#define HAS_TAP(tap)                                                  \
  ((row_phase + z.pad_top - (tap) / S * DILATION_H) % PHASES_H == 0 && \
   (column_phase + z.pad_left - (tap) % S * DILATION_W) % PHASES_W == 0)

F_KERNEL(THREADS)
implicit_gemm_matrix(F_INPUT(element_t, in), F_INPUT(element_t, packed), F_OUTPUT(result_t, result),
                     F_INPUT(element_t, bias), F_INPUT(element_t, residual), int out_pad, int splits, Sizes z) {
  F_LOCAL_ARRAY(uint4, pixels, 2 * CHUNKS * BP);
  F_LOCAL_ARRAY(uint4, channels, 2 * CHUNKS * BC);
  const int thread = F_THREAD(), lane = thread % WAVE, wave = thread / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_c = wave / WAVES_P * WAVE_C;
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(element_t, packed);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_OUTPUT(result_t, result);
  F_OPEN_PRODUCT(BP, BC)
  F_GLOBAL result_t* const out = F_OWN_RESULTS(result);
  const int in_chunks = (IN_GROUP + CHUNK - 1) / CHUNK;
  const buffer_t tensor = buffer_of(in, (u32)z.n * IN_C * IN_H * IN_W * sizeof(element_t));
  const buffer_t weights = buffer_of(packed + (index_t)group * TAPS * in_chunks * out_pad * CHUNK,
                                     (u32)TAPS * in_chunks * out_pad * 16);

#if MASKED
  index_t bases[PIXEL_CHUNKS];
  u32 missing[PIXEL_CHUNKS];  // a bit for each tap that reads nothing: outside the image
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) {
    const Pixel p = pixel_at(first_pixel + OWN_PIXEL(i), row_phase, column_phase, z);
    missing[i] = 0;
    F_NO_UNROLL
    for (int t = 0; t < TAPS; ++t) missing[i] |= (u32)(in_offset(p, t, 0, z) < 0) << t;
    bases[i] = F_OFFSET(p.n, group * IN_GROUP, 0, 0, IN_C, IN_H, IN_W) +
               ((index_t)FIRST_ROW(p.row) * IN_W + FIRST_COLUMN(p.column)) * IN_PIXEL_STRIDE;
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

  uint4 next_pixels[PIXEL_CHUNKS], next_channels[CHANNEL_CHUNKS];
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
#define MULTIPLIES(turn) ((turn) > 0)
#endif
  // Turn t brings tile t and multiplies tile t - 1.
  for (int turn = -skipped; turn <= slabs; ++turn) {
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
    // What the last turn brings is not used, but it is read: of weights that there are, and of pixels within the tensor.
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
      // What is added for a channel is not held to the tensor's end: behind the last channel it stays there.
      const u32 pixel = (u32)begin * sizeof(element_t) | nowhere;
      element_t chunk[CHUNK];
      F_UNROLL
      for (int j = 0; j < CHUNK; ++j) {
        const u32 to_channel = (u32)(min(step + j, IN_GROUP - 1) * IN_CHANNEL_STRIDE) * sizeof(element_t);
        const u32 behind = WHOLE ? 0 : (u32)(IN_GROUP - 1 - step - j) & F_NOWHERE;
        chunk[j] = load_element_of(tensor, pixel | behind, to_channel);
      }
      next_pixels[i] = chunk_of(chunk);
#else
      next_pixels[i] = load_chunk(tensor, (u32)(begin + step) * sizeof(element_t) | nowhere);
#endif
    }
    F_UNROLL
    for (int i = 0; i < CHANNEL_CHUNKS; ++i) {
      const int chunk = (thread + i * THREADS) / BC, c = (thread + i * THREADS) % BC;
      const u32 at = (u32)(chunk * out_pad + first_out + c) * 16;
      next_channels[i] = load_chunk_of(weights, EXACT || first + chunk < in_chunks ? at : F_NOWHERE, tile);
    }
    if (MULTIPLIES(turn)) {
      F_LOCAL const uint4* const from_pixels = pixels + ((turn + 1) & 1) * CHUNKS * BP + wave_p;
      F_LOCAL const uint4* const from_channels = channels + ((turn + 1) & 1) * CHUNKS * BC + wave_c;
      F_UNROLL
      for (int k = 0; k < CHUNKS; k += FRAGMENT_CHUNKS) {
        uint4 a[TILES_C][LEFT_READS], b[TILES_P][RIGHT_READS];
        F_UNROLL
        for (int v = 0; v < LEFT_READS; ++v) {  // of which the right operand has no more
          const int chunk = k + LANE_CHUNK(lane, v);
          F_UNROLL
          for (int i = 0; i < TILES_C; ++i) a[i][v] = from_channels[chunk * BC + i * 16 + LEFT_ROW(lane, v)];
          if (v >= RIGHT_READS) continue;
          F_UNROLL
          for (int j = 0; j < TILES_P; ++j)
            b[j][v] = from_pixels[chunk * BP + TURNED(chunk, RIGHT_COLUMN(lane, v)) + j * 16];
        }
        F_UNROLL
        for (int i = 0; i < TILES_C; ++i) {
          F_UNROLL
          for (int j = 0; j < TILES_P; ++j) sums[i][j] = multiply(a[i], b[j], sums[i][j]);
        }
      }
    }
    F_UNROLL
    for (int i = 0; i < PIXEL_CHUNKS; ++i) {
      pixels[((turn & 1) * CHUNKS + OWN_CHUNK(i)) * BP + TURNED(OWN_CHUNK(i), OWN_PIXEL(i))] = next_pixels[i];
    }
    F_UNROLL
    for (int i = 0; i < CHANNEL_CHUNKS; ++i) channels[(turn & 1) * CHUNKS * BC + thread + i * THREADS] = next_channels[i];
    F_BARRIER();
  }

  F_UNROLL
  for (int own = 0; own < TILES_P * RESULT_COLUMNS; ++own) {
    const int j = own / RESULT_COLUMNS, column = own % RESULT_COLUMNS;
    const Pixel p =
        pixel_at(first_pixel + wave_p + j * 16 + RIGHT_COLUMN(lane, column), row_phase, column_phase, z);
    const index_t place = p.n < 0 ? -1 : F_OFFSET(p.n, group * OUT_GROUP, p.row, p.column, OUT_C, OUT_H, OUT_W);
    F_UNROLL
    for (int i = 0; i < TILES_C; ++i) {
      F_UNROLL
      for (int v = column; v < RESULTS; v += RESULT_COLUMNS) {
        const int c = first_out + wave_c + i * 16 + RESULT_ROW(lane, v);
        const index_t at = place + (index_t)c * OUT_CHANNEL_STRIDE;
        if (place >= 0 && c < OUT_GROUP) STORE_RESULT(out, at, AFTER(((float*)&sums[i][j])[v], group * OUT_GROUP + c, at));
      }
    }
  }
}
