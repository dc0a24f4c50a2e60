// backward_weights as a matrix product on the matrix units that every NVIDIA GPU since compute capability 8.0 has
// (mma.sync): output channels x columns of a filter, summed over pixels. Copies run some stages ahead of the products.
//
// A column is a channel of a tap; those of a tap are filled up to a whole chunk of 16 bytes. Local memory holds, for
// each stage, rows of BM channels of y's gradient and of BN columns of x for BK pixels, in either layout: in nhwc they
// come as they lie, in nchw a thread gathers a chunk's channels of one pixel, its neighbours those of the next pixels.
// The order of the chunks in a row is changed so that neither writing nor reading meets bank conflicts.
//
// The host defines BM and BN, WARPS_M and WARPS_N (a block's warps along each), STAGES, GATHER_X and GATHER_Y (1: a
// chunk is no aligned 16 bytes in memory and is gathered by elements, 0: it may be), THREADS (32 for each warp),
// MIN_BLOCKS (so many fit on a multiprocessor) and what convolution.h asks for.
#include "kernels/gpu/convolution.h"
#include "kernels/gpu/matrix_units.h"

#ifdef DTYPE_f32
#define CHUNK 4  // elements of 16 bytes
#define MMA_STEPS 8
#define BK 32
#define TURN(step) (((step)&3) << 1)
#else
#define CHUNK 8
#define MMA_STEPS 16
#define BK 64
#define TURN(step) ((step)&7)
#endif
#define TAPS (R * S)
#define CHUNKS_M (BM / CHUNK)  // of a pixel's row
#define CHUNKS_N (BN / CHUNK)
#define OWN_M ((BK * CHUNKS_M + THREADS - 1) / THREADS)  // chunks that a thread brings
#define OWN_N ((BK * CHUNKS_N + THREADS - 1) / THREADS)
#define ROWS_BYTES (BK * CHUNKS_M * 16)
#define STAGE_BYTES (ROWS_BYTES + BK * CHUNKS_N * 16)
#define WARP_M (BM / WARPS_M)
#define WARP_N (BN / WARPS_N)
#define TILES_M (WARP_M / 16)
#define TILES_N (WARP_N / 8)
#define PARTS 4  // of a tile of the sum, MMA_STEPS each

#define PART_M ((OWN_M + PARTS - 1) / PARTS)  // of these in one of PARTS
#define PART_N ((OWN_N + PARTS - 1) / PARTS)
#ifdef LAYOUT_nchw
#define X_CHANNEL_STRIDE (z.h * z.w)
#define Y_CHANNEL_STRIDE (z.p * z.q)
// Neighbouring threads read neighbouring pixels.
#define OWN_STEP(e, chunks) ((e) % BK)
#define OWN_CHUNK(e, chunks) ((e) / BK)
#else
#define X_CHANNEL_STRIDE 1
#define Y_CHANNEL_STRIDE 1
#define OWN_STEP(e, chunks) ((e) / (chunks))
#define OWN_CHUNK(e, chunks) ((e) % (chunks))
#endif

#define NOWHERE (-(1 << 29))  // no tap of a row so far up is in the image

// Of a pixel of the sum: where x has what its first tap reads at channel 0 of the group, whether that is in the image or
// not, that row and column (NOWHERE beyond the last pixel); and where y has channel 0 of the group, or -1.
typedef struct __align__(16) {
  index_t x, y;
  int h, w;
} Place;
// Of a chunk of columns: from a place to its first channel of its tap, the tap's row (NOWHERE beyond the last tap) and
// column, and how many of the channels there are.
typedef struct __align__(16) {
  index_t x;
  int h, w, count;
} Columns;

F_DEVICE u32 chunk_at(int step, int chunk, int chunks) { return (step * chunks + (chunk ^ TURN(step))) * 16; }

#ifdef DTYPE_f32
// Eight channels of an operand, `channel` (a constant) after the warp's first, and four steps: this lane's of each. The
// warp's first is a multiple of 32, so that only the lane and the constant decide how chunks are turned.
F_DEVICE u32 load_operand(u32 rows, int step, int channel, int chunks, int lane) {
  const u32 turned = (channel / 4 & 6) ^ TURN(lane % 4), constant = (step * chunks + (channel / 4 & ~7)) * 16;
  return to_tf32(load_word(rows + turned * 16 + constant));
}
F_DEVICE u32 own_word(int warp_first, int chunks, int lane) {
  return (lane % 4 * chunks + warp_first / 4 + lane / 16) * 16 + lane / 4 % 4 * 4;
}
#endif
// What the products from MMA_STEPS * k on take: 16 channels of the warp's tile, and its columns.
F_DEVICE void load_rows(u32 stage, int k, int i, int warp_m, int lane, u32 a[4]) {
#ifdef DTYPE_f32
  const u32 own = stage + own_word(warp_m, CHUNKS_M, lane);
  F_UNROLL
  for (int v = 0; v < 4; ++v) a[v] = load_operand(own, k * 8 + v / 2 * 4, i * 16 + v % 2 * 8, CHUNKS_M, lane);
#else
  const int row = k * 16 + lane / 16 * 8 + lane % 8;
  load_matrices_transposed(stage + chunk_at(row, warp_m / 8 + i * 2 + lane / 8 % 2, CHUNKS_M), a);
#endif
}
F_DEVICE void load_columns(u32 stage, int k, int warp_n, int lane, u32 b[TILES_N][2]) {
#ifdef DTYPE_f32
  const u32 own = stage + ROWS_BYTES + own_word(warp_n, CHUNKS_N, lane);
  F_UNROLL
  for (int j = 0; j < TILES_N; ++j) {
    F_UNROLL
    for (int v = 0; v < 2; ++v) b[j][v] = load_operand(own, k * 8 + v * 4, j * 8, CHUNKS_N, lane);
  }
#else
  const int row = k * 16 + lane % 16;
  F_UNROLL
  for (int j = 0; j < TILES_N; j += 2) {
    u32 four[4];
    load_matrices_transposed(stage + ROWS_BYTES + chunk_at(row, warp_n / 8 + j + lane / 16, CHUNKS_N), four);
    b[j][0] = four[0], b[j][1] = four[1], b[j + 1][0] = four[2], b[j + 1][1] = four[3];
  }
#endif
}

// `count` elements, `stride` apart, and zeros after them.
F_DEVICE void gather(const element_t* from, int stride, int count, element_t* chunk) {
  F_UNROLL
  for (int j = 0; j < CHUNK; ++j) chunk[j] = load_or_zero(from + (index_t)j * stride, j < count);
}

extern __shared__ __align__(128) unsigned char local_memory[];

// One block: BM output channels x BN columns, summed over the tiles of one of `splits` parts of the pixels.
// partial: [split][k][r][s][c]. next_: BK pixels on are so many images, rows and columns.
F_DENSE_KERNEL(THREADS, MIN_BLOCKS)
implicit_gemm_mma_weights(F_INPUT(element_t, x), F_INPUT(element_t, y), F_OUTPUT(float, partial), int splits, int next_n, int next_p,
                          int next_q, Sizes z) {
  Place* const places = (Place*)local_memory;  // of this tile's pixels and of the next one's
  Columns* const columns = (Columns*)(local_memory + 2 * BK * 32);
  unsigned char* const stages = local_memory + 2 * BK * 32 + CHUNKS_N * 32;
  F_OPEN_INPUT(element_t, x);
  F_OPEN_INPUT(element_t, y);
  F_OPEN_OUTPUT(float, partial);
  const int thread = F_THREAD(), lane = thread % 32, warp = thread / 32;
  const int warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;
  const int group_chunks = (z.group_c + CHUNK - 1) / CHUNK;  // of a tap
  const int first_chunk = F_BLOCK(0) * CHUNKS_N, first_k = F_BLOCK(1) * BM;
  const int group = F_BLOCK(2) / splits, split = F_BLOCK(2) % splits;
  const index_t pixels = (index_t)z.n * z.p * z.q;
  const index_t tiles = (pixels + BK - 1) / BK;
  const index_t first_tile = (index_t)((i64)tiles * split / splits);
  const int slabs = (int)((i64)tiles * (split + 1) / splits - first_tile);
  const u32 local = local_address(stages);

  for (int i = thread; i < CHUNKS_N; i += THREADS) {
    const int tap = (first_chunk + i) / group_chunks, c = (first_chunk + i) % group_chunks * CHUNK;
    Columns column;
    column.h = tap < TAPS ? tap / S * DILATION_H : NOWHERE, column.w = tap % S * DILATION_W;
    column.x = F_OFFSET(0, c, tap / S * DILATION_H, column.w, z.c, z.h, z.w);
    column.count = F_MIN(CHUNK, z.group_c - c);
    columns[i] = column;
  }
  // Each of BK threads follows one pixel of every tile.
  const index_t own_pixel = first_tile * BK + thread;
  int n = (int)(own_pixel / z.q / z.p), p = (int)(own_pixel / z.q % z.p), q = (int)(own_pixel % z.q);
  const auto find_places = [&](int tile) {
    if (thread < BK) {
      const bool exists = tile < slabs && n < z.n;
      Place place;
      place.h = p * STRIDE_H - z.pad_top, place.w = q * STRIDE_W - z.pad_left;
      place.x = F_OFFSET(n, group * z.group_c, place.h, place.w, z.c, z.h, z.w);
      place.y = exists ? F_OFFSET(n, group * z.group_k, p, q, z.k, z.p, z.q) : -1;
      place.h = exists ? place.h : NOWHERE;
      places[tile % 2 * BK + thread] = place;
      q += next_q;
      p += next_p + (q >= z.q);
      q -= q >= z.q ? z.q : 0;
      n += next_n + (p >= z.p);
      p -= p >= z.p ? z.p : 0;
    }
  };
  find_places(0);
  const auto in_image = [&](const Place& place, const Columns& column) {
    return (u32)(place.h + column.h) < (u32)z.h && (u32)(place.w + column.w) < (u32)z.w;
  };

  const auto gather_x = [&](const Place& place, const Columns& column, element_t* chunk) {
    const bool inside = in_image(place, column);
    gather(inside ? x + (place.x + column.x) : x, X_CHANNEL_STRIDE, inside ? column.count : 0, chunk);
  };
  const auto gather_y = [&](const Place& place, int which, element_t* chunk) {
    const int k = first_k + which * CHUNK;
    const bool inside = place.y >= 0 && k < z.group_k;
    gather(inside ? y + (place.y + (index_t)k * Y_CHANNEL_STRIDE) : y, Y_CHANNEL_STRIDE,
           inside ? F_MIN(CHUNK, z.group_k - k) : 0, chunk);
  };

  float sums[TILES_M][TILES_N][4];
  F_UNROLL
  for (int i = 0; i < TILES_M; ++i) {
    F_UNROLL
    for (int j = 0; j < TILES_N; ++j) {
      F_UNROLL
      for (int v = 0; v < 4; ++v) sums[i][j][v] = 0.0f;
    }
  }
#if !GATHER_X || !GATHER_Y
  const bool aligned = ((size_t)x | (size_t)y) % 16 == 0;
#endif
#if !GATHER_X
  F_BARRIER();
  const Columns own_columns = columns[thread % CHUNKS_N];
  const element_t* const own_x = x + own_columns.x;
#endif
#if !GATHER_Y
  const int own_k = first_k + thread % CHUNKS_M * CHUNK;
  const element_t* const own_y = y + own_k;
#endif
#if GATHER_X
  __align__(16) element_t of_x[PART_N][CHUNK];
#endif
#if GATHER_Y
  __align__(16) element_t of_y[PART_M][CHUNK];
#endif

  // The places of what a part copies, looked up before the products of the part before it.
  [[maybe_unused]] Place x_places[PART_N];
  [[maybe_unused]] index_t y_places[PART_M];
  const auto look_up = [&](int part, const Place* at) {
#if !GATHER_Y
    F_UNROLL
    for (int i = 0; i < PART_M; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS;
      if (BK * CHUNKS_M % (THREADS * PARTS) == 0 || e < BK * CHUNKS_M) y_places[i] = at[OWN_STEP(e, CHUNKS_M)].y;
    }
#endif
#if !GATHER_X
    F_UNROLL
    for (int i = 0; i < PART_N; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS;
      if (BK * CHUNKS_N % (THREADS * PARTS) == 0 || e < BK * CHUNKS_N) x_places[i] = at[OWN_STEP(e, CHUNKS_N)];
    }
#endif
  };
  // One of PARTS parts of what a thread brings of the newest tile to stage `to`: what is gathered only reaches the
  // stage with `keep`.
  const auto bring = [&](u32 to, int part, const Place* at) {
    F_UNROLL
    for (int i = 0; i < PART_M; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS, step = OWN_STEP(e, CHUNKS_M), chunk = OWN_CHUNK(e, CHUNKS_M);
      if (BK * CHUNKS_M % (THREADS * PARTS) != 0 && e >= BK * CHUNKS_M) continue;
#if GATHER_Y
      gather_y(at[step], chunk, of_y[i]);
#else
      copy_chunk(to + chunk_at(step, chunk, CHUNKS_M), own_y + y_places[i],
                 y_places[i] >= 0 && own_k < z.group_k && aligned);
#endif
    }
    F_UNROLL
    for (int i = 0; i < PART_N; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS, step = OWN_STEP(e, CHUNKS_N), chunk = OWN_CHUNK(e, CHUNKS_N);
      if (BK * CHUNKS_N % (THREADS * PARTS) != 0 && e >= BK * CHUNKS_N) continue;
#if GATHER_X
      gather_x(at[step], columns[chunk], of_x[i]);
#else
      copy_chunk(to + ROWS_BYTES + chunk_at(step, chunk, CHUNKS_N), own_x + x_places[i].x,
                 in_image(x_places[i], own_columns) && aligned);
#endif
    }
  };
  const auto keep = [&](u32 to, int part) {
#if GATHER_Y
    F_UNROLL
    for (int i = 0; i < PART_M; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS, step = OWN_STEP(e, CHUNKS_M), chunk = OWN_CHUNK(e, CHUNKS_M);
      if (BK * CHUNKS_M % (THREADS * PARTS) != 0 && e >= BK * CHUNKS_M) continue;
      store_chunk(to + chunk_at(step, chunk, CHUNKS_M), *(const uint4*)of_y[i]);
    }
#endif
#if GATHER_X
    F_UNROLL
    for (int i = 0; i < PART_N; ++i) {
      const int e = thread + (i * PARTS + part) * THREADS, step = OWN_STEP(e, CHUNKS_N), chunk = OWN_CHUNK(e, CHUNKS_N);
      if (BK * CHUNKS_N % (THREADS * PARTS) != 0 && e >= BK * CHUNKS_N) continue;
      store_chunk(to + ROWS_BYTES + chunk_at(step, chunk, CHUNKS_N), *(const uint4*)of_x[i]);
    }
#endif
  };
#if !GATHER_X || !GATHER_Y
  // Tensors that begin off 16 bytes, one element after the other; chunk by chunk over what was copied as zeros.
  const auto bring_unaligned = [&](u32 to, const Place* at) {
    F_NO_UNROLL
    for (int e = thread; e < BK * (CHUNKS_M + CHUNKS_N); e += THREADS) {
      __align__(16) element_t chunk[CHUNK];
      const int step = e % BK, own = e / BK;
      if (own < CHUNKS_M) {
        if (GATHER_Y) continue;
        gather_y(at[step], own, chunk);
        store_chunk(to + chunk_at(step, own, CHUNKS_M), *(const uint4*)chunk);
      } else {
        if (GATHER_X) continue;
        gather_x(at[step], columns[own - CHUNKS_M], chunk);
        store_chunk(to + ROWS_BYTES + chunk_at(step, own - CHUNKS_M, CHUNKS_N), *(const uint4*)chunk);
      }
    }
  };
#endif

  const auto end_turn = [&](u32 to, int turn) {
    asm volatile("cp.async.commit_group;" ::: "memory");
#if !GATHER_X || !GATHER_Y
    if (!aligned) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      F_BARRIER();
      bring_unaligned(to, places + turn % 2 * BK);
    }
#endif
    find_places(turn + 1);
  };

  // Turn t brings tile t and multiplies tile t - (STAGES - 1), the copies spread between the products.
  F_NO_UNROLL
  for (int turn = 0; turn < STAGES - 1; ++turn) {
    const u32 to = local + turn * STAGE_BYTES;
    F_BARRIER();
    F_NO_UNROLL
    for (int part = 0; part < PARTS; ++part) {
      look_up(part, places + turn % 2 * BK);
      bring(to, part, places + turn % 2 * BK);
      keep(to, part);
    }
    end_turn(to, turn);
  }
  F_NO_UNROLL
  for (int turn = STAGES - 1; turn < slabs + STAGES - 1; ++turn) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    F_BARRIER();
    const u32 to = local + turn % STAGES * STAGE_BYTES, from = local + (turn + 1) % STAGES * STAGE_BYTES;
    const Place* const at = places + turn % 2 * BK;
    u32 a[TILES_M][4], b[2][TILES_N][2];
    look_up(0, at);
    F_UNROLL
    for (int i = 0; i < TILES_M; ++i) load_rows(from, 0, i, warp_m, lane, a[i]);
    load_columns(from, 0, warp_n, lane, b[0]);
    const auto multiply_part = [&](int k) {
      bring(to, k, at);
      if (k + 1 < PARTS) look_up(k + 1, at);
      if (k + 1 < PARTS) load_columns(from, k + 1, warp_n, lane, b[(k + 1) % 2]);
      F_UNROLL
      for (int i = 0; i < TILES_M; ++i) {
        F_UNROLL
        for (int j = 0; j < TILES_N; ++j) multiply(a[i], b[k % 2][j], sums[i][j]);
        if (k + 1 < PARTS) load_rows(from, k + 1, i, warp_m, lane, a[i]);
      }
      keep(to, k);
    };
    // No loop: NVRTC 12 unrolls it only where it brings more than a chunk of each.
    multiply_part(0), multiply_part(1), multiply_part(2), multiply_part(3);
    end_turn(to, turn);
  }

  float* const part = partial + (size_t)split * z.k * TAPS * z.group_c;
  F_UNROLL
  for (int j = 0; j < TILES_N; ++j) {
    const int column = warp_n + j * 8 + lane % 4 * 2;
    const int chunk = first_chunk + column / CHUNK, tap = chunk / group_chunks;
    const int c = chunk % group_chunks * CHUNK + column % CHUNK;
    if (tap >= TAPS) continue;
    F_UNROLL
    for (int i = 0; i < TILES_M * 2; ++i) {
      const int k = first_k + warp_m + i * 8 + lane / 4;
      if (k >= z.group_k) continue;
      float* const at = part + ((index_t)(group * z.group_k + k) * TAPS + tap) * z.group_c + c;
      const float* const pair = &sums[i / 2][j][i % 2 * 2];
      if (c < z.group_c) at[0] = pair[0];
      if (c + 1 < z.group_c) at[1] = pair[1];
    }
  }
}
