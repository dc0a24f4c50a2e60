// The convolution as a matrix product on the matrix units that every NVIDIA GPU since compute capability 8.0 has
// (mma.sync): pixels x channels, summed over taps and channels. Copies run some stages ahead of the products.
//
// Local memory holds, for each stage, rows of BK steps for BP pixels and rows of BC channels for BK steps, both as
// chunks of 16 bytes, whose order in a row is changed so that neither writing nor reading meets bank conflicts.
//
// The host defines DIRECTION_fwd or DIRECTION_bwd_d, BP and BC (pixels and channels of a block), WARPS_P and WARPS_C
// (its warps along each), STAGES, GATHER (1: the steps of a pixel are no aligned chunks in memory and are brought one
// by one, 0: they may be), FLAT (1: a tile of the sum crosses taps; with GATHER only), ROW_CHANNELS (0, or the channels
// of a pixel in nhwc, forward, of one group: a filter's row is one run of steps, see gathered_row), EXACT (1: tiles of
// the sum divide the channels), SPLIT (1: blocks share a sum), THREADS (32 for each warp), COMPACT (0) and what
// convolution.h asks for.
#include "kernels/gpu/gathered_product.h"
#include "kernels/gpu/matrix_units.h"

#ifdef DTYPE_f32
#define CHUNK 4  // elements of 16 bytes
#define MMA_STEPS 8
#else
#define CHUNK 8
#define MMA_STEPS 16
#endif
#define CHUNKS_P 8  // of a row of a pixel's steps: 128 bytes
#define BK (CHUNKS_P * CHUNK)
#define CHUNKS_C (BC / CHUNK)  // of a row of channels
#define WARP_P (BP / WARPS_P)
#define WARP_C (BC / WARPS_C)
#define TILES_P (WARP_P / 16)
#define TILES_C (WARP_C / 8)
#define PIXEL_BYTES (BP * CHUNKS_P * 16)
#define STAGE_BYTES (PIXEL_BYTES + BK * CHUNKS_C * 16)
#define PIXEL_CHUNKS (BP * CHUNKS_P / THREADS)  // a thread's
#define WEIGHT_CHUNKS (BK * CHUNKS_C / THREADS)

#define PARTS (BK / MMA_STEPS)
#define MASKED (!GATHER && TAPS <= 32)
#define CROSSES_TAPS (FLAT || ROW_CHANNELS)

#if ROW_CHANNELS
#define RUN (S * ROW_CHANNELS)                                 // steps of a filter's row: neighbours in memory
#define ROW_STEPS ((RUN + CHUNK - 1) / CHUNK * CHUNK)  // with zeros up to a chunk
#define LOOP_STEPS (R * ROW_STEPS)
#elif FLAT
#define LOOP_STEPS (TAPS * IN_GROUP)
#else
#define LOOP_STEPS IN_GROUP
#endif
#ifdef DIRECTION_bwd_d
#define HAS_TAP(tap)                                                   \
  ((row_phase + z.pad_top - (tap) / S * DILATION_H) % STRIDE_H == 0 && \
   (column_phase + z.pad_left - (tap) % S * DILATION_W) % STRIDE_W == 0)
#else
#define HAS_TAP(tap) 1
#endif

#define NOWHERE (-(1 << 29))  // no row of an image is so far from it
// From what a pixel's first tap reads at channel 0 of the group to what a step of the sum does.
typedef struct __align__(16) {
  index_t offset;
  int row, column;
} Step;

#include "kernels/gpu/implicit_gemm_mma_results.h"
#include "kernels/gpu/implicit_gemm_mma_tile.h"

extern __shared__ __align__(128) unsigned char local_memory[];

F_KERNEL(THREADS)
implicit_gemm_mma(F_INPUT(element_t, in), F_INPUT(packed_t, packed), F_OUTPUT(result_t, out),
                  F_INPUT(element_t, bias), F_INPUT(element_t, residual), F_INPUT(float, slopes),
                  int out_pad, int splits, Sizes z) {
  // Of each pixel in the result, channel 0 of the group; -1 beyond the last.
  index_t* const places = (index_t*)local_memory;
  // MASKED: where a pixel's first tap reads, and one bit for each tap that is in the image.
  index_t* const table = (index_t*)(local_memory + BP * 8);
  u32* const masks = (u32*)(local_memory + BP * 16);
  // FLAT: the steps of this tile of the sum and of the next one.
  Step* const sum_steps = (Step*)(local_memory + BP * 20);
  unsigned char* const stages = local_memory + BP * 20 + 2 * BK * 32;
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(packed_t, packed);
  F_OPEN_OUTPUT(result_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  F_OPEN_INPUT(float, slopes);
  const int thread = F_THREAD(), lane = thread % 32, warp = thread / 32;
  const int warp_p = warp % WARPS_P * WARP_P, warp_c = warp / WARPS_P * WARP_C;
  F_OPEN_PRODUCT(BP, BC)
  const packed_t* const weights = packed + (index_t)group * TAPS * IN_GROUP * out_pad + first_out;
  const u32 local = local_address(stages);

  for (int i = thread; i < BP; i += THREADS) {
    const Pixel p = pixel_at(first_pixel + i, row_phase, column_phase, z);
    places[i] = p.n < 0 ? -1 : F_OFFSET(p.n, group * OUT_GROUP, p.row, p.column, OUT_C, OUT_H, OUT_W);
  }

  // The chunks of pixels that this thread brings. Neighbouring threads read neighbours in memory.
#if GATHER && defined(LAYOUT_nchw)
#define OWN_PIXEL(i) ((thread + (i)*THREADS) % BP)
#define OWN_CHUNK(i) ((thread + (i)*THREADS) / BP)
#else
#define OWN_PIXEL(i) ((thread + (i)*THREADS) / CHUNKS_P)
#define OWN_CHUNK(i) (thread % CHUNKS_P)
#endif
#if MASKED
  for (int i = thread; i < BP; i += THREADS) {
    const Pixel p = pixel_at(first_pixel + i, row_phase, column_phase, z);
    u32 mask = 0;
    for (int t = 0; t < TAPS; ++t) {
      if (HAS_TAP(t) && in_offset(p, t, 0, z) >= 0) mask |= 1u << t;
    }
    table[i] = F_OFFSET(p.n, group * IN_GROUP, FIRST_ROW(p.row), FIRST_COLUMN(p.column), IN_C, IN_H, IN_W);
    masks[i] = mask;
  }
  F_BARRIER();
  index_t bases[PIXEL_CHUNKS];
  u32 has[PIXEL_CHUNKS];
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) {
    bases[i] = table[OWN_PIXEL(i)] + OWN_CHUNK(i) * CHUNK;
    has[i] = masks[OWN_PIXEL(i)];
  }
#else
  Pixel own[PIXEL_CHUNKS];
  index_t offsets[PIXEL_CHUNKS];
  F_UNROLL
  for (int i = 0; i < PIXEL_CHUNKS; ++i) {
    own[i] = pixel_at(first_pixel + OWN_PIXEL(i), row_phase, column_phase, z);
#if FLAT
    // Where its first tap reads, in the image or not.
    const int row = FIRST_ROW(own[i].row), column = FIRST_COLUMN(own[i].column);
    offsets[i] = F_OFFSET(own[i].n, group * IN_GROUP, row, column, IN_C, IN_H, IN_W);
    own[i].row = own[i].n < 0 ? NOWHERE : row, own[i].column = column;
#endif
  }
#endif
#if FLAT
  const auto find_steps = [&](int tile, int begin) {
    for (int i = thread; i < BK; i += THREADS) {
      const int own_tap = (begin + i) / IN_GROUP, c = (begin + i) % IN_GROUP;
      Step next;
      next.row = begin + i < LOOP_STEPS && HAS_TAP(own_tap) ? TAP_ROW(own_tap) : NOWHERE;
      next.column = TAP_COLUMN(own_tap);
      next.offset = F_OFFSET(0, c, TAP_ROW(own_tap), next.column, IN_C, IN_H, IN_W);
      sum_steps[tile % 2 * BK + i] = next;
    }
  };
#endif
#if !GATHER
  const bool aligned = (size_t)in % 16 == 0;
#endif
  const int tap_slabs = (LOOP_STEPS + BK - 1) / BK;
  int slabs = tap_slabs;  // tiles of the sum
#if !CROSSES_TAPS
  slabs = 0;
  for (int tap = 0; tap < TAPS; ++tap) slabs += HAS_TAP(tap) ? tap_slabs : 0;
#endif
  // Of the newest tile; at first of the one before the block's first.
  int tap = CROSSES_TAPS ? 0 : -1, first = CROSSES_TAPS ? -BK : LOOP_STEPS;
#if SPLIT
  int skipped = (int)((i64)slabs * part / splits);
  slabs = (int)((i64)slabs * (part + 1) / splits) - skipped;
#if CROSSES_TAPS
  first += skipped * BK;
#else
  const auto next_tap = [&] {
    do ++tap;
    while (!HAS_TAP(tap));
  };
  for (; skipped >= tap_slabs; skipped -= tap_slabs) next_tap();
  if (skipped > 0 && slabs > 0) {
    next_tap();
    first = (skipped - 1) * BK;
#if !MASKED
    F_UNROLL
    for (int i = 0; i < PIXEL_CHUNKS; ++i) offsets[i] = in_offset(own[i], tap, group * IN_GROUP, z);
#endif
  }
#endif
#endif
#if GATHER
  element_t gathered[PIXEL_CHUNKS][CHUNK];
#endif

  float sums[TILES_P][TILES_C][4];
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_C; ++j) {
      F_UNROLL
      for (int v = 0; v < 4; ++v) sums[i][j][v] = 0.0f;
    }
  }

  // Chunks of weights: this thread's first, of the sum's first step.
  const packed_t* const own_weights = weights + (index_t)(thread / CHUNKS_C) * out_pad + thread % CHUNKS_C * CHUNK;
  index_t shift = 0;  // MASKED: from a pixel's first tap to the newest tile

  // One of PARTS parts of what a thread brings of the newest tile to stage `to`.
  const auto bring = [&](u32 to, int part, bool brings) {
    F_UNROLL
    for (int i = 0; i < WEIGHT_CHUNKS; ++i) {
      if (i % PARTS != part) continue;
      const int step = thread / CHUNKS_C + i * (THREADS / CHUNKS_C);
#if ROW_CHANNELS
      const int r = (first + step) / ROW_STEPS, j = (first + step) % ROW_STEPS;
      const bool wanted = brings && r < R && j < RUN;
      const packed_t* const from = weights + (wanted ? (r * RUN + j) * out_pad : 0) + thread % CHUNKS_C * CHUNK;
#else
      const bool wanted = brings && (EXACT || first + step < LOOP_STEPS);
      const packed_t* const from =
          own_weights + ((index_t)tap * LOOP_STEPS + first + i * (THREADS / CHUNKS_C)) * out_pad;
#endif
      copy_chunk(to + weight_chunk(step, thread % CHUNKS_C), from, wanted);
    }
#if !GATHER
    F_UNROLL
    for (int i = 0; i < PIXEL_CHUNKS; ++i) {
      if (i % PARTS != part) continue;
      const bool inside = brings && (EXACT || first + OWN_CHUNK(i) * CHUNK < LOOP_STEPS);
#if MASKED
      const bool wanted = (has[i] >> tap & 1) && inside;
      const element_t* const from = wanted ? in + (bases[i] + shift) : in;
#else
      const bool wanted = offsets[i] >= 0 && inside;
      const element_t* const from = in + (wanted ? offsets[i] + first + OWN_CHUNK(i) * CHUNK : 0);
#endif
      copy_chunk_if(aligned, to + pixel_chunk(OWN_PIXEL(i), OWN_CHUNK(i)), from, wanted);
    }
#endif
  };
  // The next tile of the sum.
  const auto advance = [&] {
    first += BK;
#if !CROSSES_TAPS
    if (first >= LOOP_STEPS) {
      first = 0;
      do ++tap;
      while (!HAS_TAP(tap));
#if !MASKED
      F_UNROLL
      for (int i = 0; i < PIXEL_CHUNKS; ++i) offsets[i] = in_offset(own[i], tap, group * IN_GROUP, z);
#endif
    }
#if MASKED
    shift = ((index_t)TAP_ROW(tap) * IN_W + TAP_COLUMN(tap)) * IN_C + first;
#endif
#endif
  };

#if FLAT
  find_steps(0, first + BK);
#endif
  // Turn t brings tile t and multiplies tile t - (STAGES - 1), the copies spread between the products.
  for (int turn = 0; turn < slabs + STAGES - 1; ++turn) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    F_BARRIER();
    const u32 to = local + turn % STAGES * STAGE_BYTES;
    const bool brings = turn < slabs;
    if (brings) advance();
#if GATHER
    if (brings) {
      F_UNROLL
      for (int i = 0; i < PIXEL_CHUNKS; ++i) {
        const int step = first + OWN_CHUNK(i) * CHUNK;
#if ROW_CHANNELS
        gathered_row(in, own[i], step, gathered[i], z);
#elif FLAT
        F_UNROLL
        for (int j = 0; j < CHUNK; ++j) {
          const Step next = sum_steps[turn % 2 * BK + step - first + j];
          const bool inside = (u32)(own[i].row + next.row) < (u32)IN_H && (u32)(own[i].column + next.column) < (u32)IN_W;
          gathered[i][j] = load_or_zero(in + (offsets[i] + next.offset), inside);
        }
#else
        F_UNROLL
        for (int j = 0; j < CHUNK; ++j) {
          gathered[i][j] = load_or_zero(in + (offsets[i] + (index_t)(step + j) * IN_CHANNEL_STRIDE),
                                        offsets[i] >= 0 && step + j < LOOP_STEPS);
        }
#endif
      }
    }
#endif
#if !GATHER
    // A tensor that begins off 16 bytes, one element after the other.
    if (brings && !aligned) {
      F_NO_UNROLL
      for (int e = thread; e < BP * BK; e += THREADS) {
        const int pixel = e / BK, step = e % BK;
#if MASKED
        const bool wanted = (masks[pixel] >> tap & 1) && first + step < LOOP_STEPS;
        const index_t at = table[pixel] + shift + step;
#else
        const index_t at = in_offset(pixel_at(first_pixel + pixel, row_phase, column_phase, z), tap,
                                     group * IN_GROUP + first + step, z);
        const bool wanted = at >= 0 && first + step < LOOP_STEPS;
#endif
        ((element_t*)(stages + turn % STAGES * STAGE_BYTES + pixel_chunk(pixel, step / CHUNK)))[step % CHUNK] =
            wanted ? in[at] : (element_t)0;
      }
    }
#endif
    if (turn < STAGES - 1) {
      F_UNROLL
      for (int part = 0; part < PARTS; ++part) bring(to, part, brings);
    } else {
      const u32 from = local + (turn + 1) % STAGES * STAGE_BYTES;
      u32 a[2][TILES_P][4], b[2][TILES_C][2];
      load_operands(from, 0, warp_p, warp_c, lane, a[0], b[0]);
      F_UNROLL
      for (int k = 0; k < PARTS; ++k) {
        if (k + 1 < PARTS) load_operands(from, k + 1, warp_p, warp_c, lane, a[(k + 1) % 2], b[(k + 1) % 2]);
        bring(to, k, brings);
        F_UNROLL
        for (int i = 0; i < TILES_P; ++i) {
          F_UNROLL
          for (int j = 0; j < TILES_C; ++j) multiply(a[k % 2][i], b[k % 2][j], sums[i][j]);
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
#if GATHER
    if (brings) {
      F_UNROLL
      for (int i = 0; i < PIXEL_CHUNKS; ++i) {
        store_chunk(to + pixel_chunk(OWN_PIXEL(i), OWN_CHUNK(i)), *(const uint4*)gathered[i]);
      }
    }
#endif
#if FLAT
    find_steps(turn + 1, first + BK);
#endif
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  F_BARRIER();

  const ResultPlace at{places, group, first_out, warp_p, warp_c, thread};
#if SPLIT
  store_part(sums, at, out + (size_t)part * z.n * OUT_C * OUT_H * OUT_W, z);
#else
  store_results(sums, at, (element_t*)stages, out, bias, residual, slopes, z);
#endif
}
