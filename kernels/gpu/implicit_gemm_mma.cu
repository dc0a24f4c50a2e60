// The convolution as a matrix product on the matrix units that every NVIDIA GPU since compute capability 8.0 has
// (mma.sync): pixels x channels, summed over taps and channels. Copies run some stages ahead of the products.
//
// Local memory holds, for each stage, rows of BK steps for BP pixels and rows of BC channels for BK steps, both as
// chunks of 16 bytes, whose order in a row is changed so that neither writing nor reading meets bank conflicts.
//
// The host defines DIRECTION_fwd or DIRECTION_bwd_d, BP and BC (pixels and channels of a block), WARPS_P and WARPS_C
// (its warps along each), STAGES, GATHER (1: the steps of a pixel are no aligned chunks in memory and are brought one
// by one, 0: they may be), FLAT (1: a tile of the sum crosses taps; with GATHER only), EXACT (1: tiles of the sum
// divide the channels), THREADS (32 for each warp),
// COMPACT (0) and what convolution.h asks for.
#include "kernels/gpu/gathered_product.h"

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

#ifdef LAYOUT_nchw
#define IN_CHANNEL_STRIDE (IN_H * IN_W)
#define OUT_CHANNEL_STRIDE (OUT_H * OUT_W)
#define ROW_PITCH (BP + 8)  // of results in local memory: a row of pixels a channel
#define RESULT_AT(pixel, c) ((c)*ROW_PITCH + (pixel))
#define RESULT_ELEMENTS (BC * ROW_PITCH)
#else
#define IN_CHANNEL_STRIDE 1
#define OUT_CHANNEL_STRIDE 1
#define ROW_PITCH (BC + 8)
#define RESULT_AT(pixel, c) ((pixel)*ROW_PITCH + (c))
#define RESULT_ELEMENTS (BP * ROW_PITCH)
#endif

#define PARTS (BK / MMA_STEPS)
#define MASKED (!GATHER && TAPS <= 32)
#ifdef DIRECTION_fwd
#define FIRST_ROW(row) ((row)*STRIDE_H - z.pad_top)
#define FIRST_COLUMN(column) ((column)*STRIDE_W - z.pad_left)
#define TAP_ROW(tap) ((tap) / S * DILATION_H)
#define TAP_COLUMN(tap) ((tap) % S * DILATION_W)
#else
// The rows of a phase follow each other in steps of the stride; a tap that the phase has is a whole number of rows off.
#define FIRST_ROW(row) ((row) / STRIDE_H)
#define FIRST_COLUMN(column) ((column) / STRIDE_W)
#define TAP_ROW(tap) ((row_phase + z.pad_top - (tap) / S * DILATION_H) / STRIDE_H)
#define TAP_COLUMN(tap) ((column_phase + z.pad_left - (tap) % S * DILATION_W) / STRIDE_W)
#endif

#if FLAT
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

F_DEVICE u32 local_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// 16 bytes to local memory behind the caller's back, or zeros.
F_DEVICE void copy_chunk(u32 to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
}
F_DEVICE void copy_chunk_if(bool may, u32 to, const void* from, bool wanted) {
  asm volatile(
      "{.reg .pred p; setp.ne.u32 p, %3, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %2;}" ::"r"(to), "l"(from),
      "r"(wanted ? 16 : 0), "r"((u32)may)
      : "memory");
}
F_DEVICE void store_chunk(u32 to, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
F_DEVICE void load_matrices(u32 from, u32* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}
F_DEVICE void load_matrices_transposed(u32 from, u32* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}
F_DEVICE u32 load_word(u32 from) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
F_DEVICE u32 to_tf32(u32 v) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "r"(v));
  return v;
}

// 16 x 8 sums += 16 pixels x (16 or, of 32-bit elements, 8) steps x 8 channels.
#ifdef DTYPE_f16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
#ifdef DTYPE_bf16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
#ifdef DTYPE_f32
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
F_DEVICE void multiply(const u32* a, const u32* b, float* d) {
  asm(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Where a chunk lies in a stage. Eight rows of pixels with the same chunk fill all banks; so do eight rows of 16-bit
// weights, and four rows of 32-bit weights eight channels each.
F_DEVICE u32 pixel_chunk(int pixel, int chunk) { return pixel * (CHUNKS_P * 16) + (chunk ^ (pixel & 7)) * 16; }
#ifdef DTYPE_f32
#define WEIGHT_TURN(step) (((step)&3) << 1)
#else
#define WEIGHT_TURN(step) ((step)&7)
#endif
F_DEVICE u32 weight_chunk(int step, int chunk) {
  return PIXEL_BYTES + (step * CHUNKS_C + (chunk ^ WEIGHT_TURN(step))) * 16;
}

// What the matrix units take of a stage for its MMA_STEPS steps from k * MMA_STEPS on: a of the warp's pixels, b of its
// channels. The rows of a warp begin on multiples of eight, so that only the lane decides how chunks are turned.
F_DEVICE void load_operands(u32 stage, int k, int warp_p, int warp_c, int lane, u32 a[TILES_P][4], u32 b[TILES_C][2]) {
  const u32 row = stage + (warp_p + lane % 16) * (CHUNKS_P * 16) + ((k * 2 + lane / 16) ^ (lane & 7)) * 16;
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) load_matrices(row + i * 16 * CHUNKS_P * 16, a[i]);
#ifdef DTYPE_f32
  F_UNROLL
  for (int v = 0; v < 2; ++v) {
    const int step = k * 8 + v * 4 + lane % 4, turn = WEIGHT_TURN(lane % 4);
    const u32 words = stage + PIXEL_BYTES + (step * CHUNKS_C + warp_c / 4) * 16 + lane / 4 % 4 * 4;
    F_UNROLL
    for (int j = 0; j < TILES_C; ++j) b[j][v] = to_tf32(load_word(words + (((j * 2 + lane / 16) ^ turn) * 16)));
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

extern __shared__ __align__(128) unsigned char local_memory[];

F_KERNEL(THREADS)
implicit_gemm_mma(F_INPUT(element_t, in), F_INPUT(packed_t, packed), F_OUTPUT(element_t, out),
                  F_INPUT(element_t, bias), F_INPUT(element_t, residual), int out_pad, Sizes z) {
  // Of each pixel in the result, channel 0 of the group; -1 beyond the last.
  index_t* const places = (index_t*)local_memory;
  // MASKED: where a pixel's first tap reads, and one bit for each tap that is in the image.
  index_t* const table = (index_t*)(local_memory + BP * 8);
  u32* const masks = (u32*)(local_memory + BP * 16);
  unsigned char* const stages = local_memory + BP * 20;
  F_OPEN_INPUT(element_t, in);
  F_OPEN_INPUT(packed_t, packed);
  F_OPEN_OUTPUT(element_t, out);
  F_OPEN_INPUT(element_t, bias);
  F_OPEN_INPUT(element_t, residual);
  const int thread = F_THREAD(), lane = thread % 32, warp = thread / 32;
  const int warp_p = warp % WARPS_P * WARP_P, warp_c = warp / WARPS_P * WARP_C;
  const index_t first_pixel = (index_t)F_BLOCK(0) * BP;
  const int first_out = F_BLOCK(1) * BC;
  const int group = F_BLOCK(2) / (PHASES_H * PHASES_W);
  const int row_phase = F_BLOCK(2) / PHASES_W % PHASES_H, column_phase = F_BLOCK(2) % PHASES_W;
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
  }
#endif
#if !GATHER
  const bool aligned = (size_t)in % 16 == 0;
#endif
  const int tap_slabs = (LOOP_STEPS + BK - 1) / BK;
  int slabs = tap_slabs;
#if !FLAT
  slabs = 0;
  for (int tap = 0; tap < TAPS; ++tap) slabs += HAS_TAP(tap) ? tap_slabs : 0;
#endif
  int tap = FLAT ? 0 : -1, first = FLAT ? -BK : LOOP_STEPS;  // of the newest tile of the sum
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
      copy_chunk(to + weight_chunk(step, thread % CHUNKS_C),
                 own_weights + ((index_t)tap * LOOP_STEPS + first + i * (THREADS / CHUNKS_C)) * out_pad,
                 brings && (EXACT || first + step < LOOP_STEPS));
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
#if !FLAT
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
        F_UNROLL
        for (int j = 0; j < CHUNK; ++j) {
#if FLAT
          const index_t at = step + j < LOOP_STEPS ? in_offset(own[i], (step + j) / IN_GROUP,
                                                               group * IN_GROUP + (step + j) % IN_GROUP, z)
                                                   : -1;
          gathered[i][j] = at >= 0 ? in[at] : (element_t)0;
#else
          gathered[i][j] = offsets[i] >= 0 && step + j < LOOP_STEPS
                               ? in[offsets[i] + (index_t)(step + j) * IN_CHANNEL_STRIDE]
                               : (element_t)0;
#endif
        }
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
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  F_BARRIER();

  // The sums become results in local memory, then leave along what lies together in the tensor.
  element_t* const results = (element_t*)stages;
  F_UNROLL
  for (int i = 0; i < TILES_P; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_C; ++j) {
      F_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int pixel = warp_p + i * 16 + lane / 4 + half * 8, c = warp_c + j * 8 + lane % 4 * 2;
        __align__(8) element_t pair[2];
        F_UNROLL
        for (int v = 0; v < 2; ++v) {
          float sum = sums[i][j][half * 2 + v];
#ifdef DIRECTION_fwd
          const index_t place = places[pixel];
          if (place >= 0 && first_out + c + v < OUT_GROUP) {
            sum = F_EPILOGUE(sum, group * OUT_GROUP + first_out + c + v,
                             place + (index_t)(first_out + c + v) * OUT_CHANNEL_STRIDE);
          }
#endif
          F_STORE(pair, v, sum);
        }
#ifdef LAYOUT_nchw
        results[RESULT_AT(pixel, c)] = pair[0];
        results[RESULT_AT(pixel, c + 1)] = pair[1];
#elif defined(DTYPE_f32)
        *(uint2*)(results + RESULT_AT(pixel, c)) = *(const uint2*)pair;
#else
        *(u32*)(results + RESULT_AT(pixel, c)) = *(const u32*)pair;
#endif
      }
    }
  }
  F_BARRIER();
#ifdef LAYOUT_nchw
  for (int e = thread; e < BP * BC; e += THREADS) {
    const int pixel = e % BP, c = e / BP;
    if (places[pixel] >= 0 && first_out + c < OUT_GROUP) {
      out[places[pixel] + (index_t)(first_out + c) * OUT_CHANNEL_STRIDE] = results[RESULT_AT(pixel, c)];
    }
  }
#else
  const bool out_is_aligned = (size_t)out % 16 == 0 && OUT_C % CHUNK == 0 && OUT_GROUP % CHUNK == 0;
  for (int e = thread; e < BP * CHUNKS_C; e += THREADS) {
    const int pixel = e / CHUNKS_C, c = e % CHUNKS_C * CHUNK;
    if (places[pixel] < 0 || first_out + c >= OUT_GROUP) continue;
    element_t* const at = out + places[pixel] + first_out + c;
    if (out_is_aligned) {
      *(uint4*)at = *(const uint4*)(results + RESULT_AT(pixel, c));
    } else {
      for (int j = 0; j < CHUNK && first_out + c + j < OUT_GROUP; ++j) at[j] = results[RESULT_AT(pixel, c) + j];
    }
  }
#endif
}
