// A depthwise convolution on the matrix units (mma.sync), nhwc, forward and backward_data, without strides. For one
// channel and one row of its filter, eight neighbouring results are a product of sixteen neighbouring pixels with a
// matrix that has the row once in each column, a place lower from one to the next (a Toeplitz matrix). So a product's
// 16 rows are 16 strips of eight columns, wherever they lie; it has 16 x 8 results of a channel.
//
// A block brings a halo patch of CHANNELS channels and turns it: local memory has a plane a channel, so that a strip's
// row is two matrices as they lie. A warp has a channel at a time, and walks down its strips. Results go where the
// plane was, and from there, turned again, whole vectors of channels are stored. Of wide filters there are several such
// products side by side, of high ones some rows at a time.
//
// The host defines what mma_patch.h asks for; BAND: rows of a strip, BANDS of which are the block's; STEPS: products
// that a row of the filter takes; TAP_ROWS: of its rows that are summed at a time; PITCH and IMAGE_BYTES: of a plane's
// rows and images, in bytes, so that no two of eight strips share a bank; PAD_TOP and PAD_LEFT. There is no residual.
#include "kernels/gpu/depthwise_mma_planes.h"

#define STRIPS (EIGHTS * BANDS * IMAGES)
#define STRIP_TILES ((STRIPS + 15) / 16)
#define PATCH_ROWS (ROWS + R - 1)
#define PATCH_PAIRS (EIGHTS * 4 + STEPS * 8 - 4)  // of columns
#define TILE_PAIRS (EIGHTS * 4)
#define PLANE_BYTES (IMAGES * IMAGE_BYTES)
#define TILE_LINE ROW_THREADS(TILE_PAIRS * OCTETS)
#define TILE_TURN (THREADS / TILE_LINE)  // rows at a time

// The words of the Toeplitz matrices of TAP_ROWS rows of the filter, of which the lane has column lane / 4.
F_DEVICE void read_filter(const element_t* filter, int first_row, int lane, u32 (*words)[STEPS][2]) {
  F_UNROLL
  for (int i = 0; i < STEPS * 4; ++i) {
    const int s = lane % 4 * 2 + i % 2 + i / 2 * 8 - lane / 4;
    F_UNROLL
    for (int row = 0; row < TAP_ROWS; ++row) {
      const int r = first_row + row;
      const u32 value = (u32)s < (u32)S && r < R ? filter[TAP(r, s)] : 0;
      u32& word = words[row][i / 4][i / 2 % 2];
      word = i % 2 == 0 ? value : word | value << 16;
    }
  }
}

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_mma(F_TENSORS(in, w, out), Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_TENSORS(in, w, out)
  const int thread = F_THREAD(), lane = thread % 32;
  const int chunks = (OUT_C + CHANNELS - 1) / CHANNELS;
  const int across = (OUT_W + COLUMNS - 1) / COLUMNS, down = (OUT_H + ROWS - 1) / ROWS;
  const int block = F_BLOCK(0), first_channel = block % chunks * CHANNELS;
  const int first_column = block / chunks % across * COLUMNS;
  const int first_row = block / chunks / across % down * ROWS;
  const int first_image = block / chunks / across / down * IMAGES;

  unsigned char* const filters = local_memory + OCTETS * CHUNK_BYTES(PLANE_BYTES);
  bring_filters<R * S>(filters, w, first_channel, OUT_C);

  bring_planes<IMAGES, PATCH_ROWS, PATCH_PAIRS, PITCH, IMAGE_BYTES, 0>(
      local_memory, in, first_image, first_channel, first_row + FIRST_ROW, first_column + FIRST_COLUMN, IN_C, IN_H, IN_W, z.n);
  wait_for_copies<0>();
  F_BARRIER();

  // A strip begins so far from its plane's begin; beyond the last one it is that again, and is not stored.
  const auto strip_place = [](int strip) {
    const int own = F_MIN(strip, STRIPS - 1);
    return own / (EIGHTS * BANDS) * IMAGE_BYTES + own / EIGHTS % BANDS * (BAND * PITCH) + own % EIGHTS * 16;
  };
  F_NO_UNROLL
  for (int channel = thread / 32; channel < CHANNELS; channel += THREADS / 32) {
    const int c = first_channel + channel;
    if (c >= OUT_C) break;
    unsigned char* const plane = local_memory + channel / CHUNK * CHUNK_BYTES(PLANE_BYTES) + channel % CHUNK * PLANE_BYTES;
    const element_t* const taps = (const element_t*)filters + channel * (R * S);
    u32 filter[TAP_ROWS][STEPS][2], results[STRIP_TILES][BAND][2];
    if (TAP_ROWS == R) read_filter(taps, 0, lane, filter);
    F_UNROLL
    for (int tile = 0; tile < STRIP_TILES; ++tile) {
      const u32 from = local_address(plane) + strip_place(tile * 16 + lane % 16) + lane / 16 * 16;
      float sums[BAND][4];
      F_UNROLL
      for (int i = 0; i < BAND * 4; ++i) sums[i / 4][i % 4] = 0.0f;
      F_NO_UNROLL
      for (int first = 0; first < R; first += TAP_ROWS) {
        if (TAP_ROWS < R) read_filter(taps, first, lane, filter);
        F_UNROLL
        for (int i = 0; i < (BAND + TAP_ROWS - 1) * STEPS; ++i) {
          const int row = i / STEPS, step = i % STEPS;
          u32 a[4];
          load_matrices(from + (first + row) * PITCH + step * 32, a);
          F_UNROLL
          for (int r = 0; r < TAP_ROWS; ++r) {
            if (row >= r && row - r < BAND && (R % TAP_ROWS == 0 || first + r < R))
              multiply(a, filter[r][step], sums[row - r]);
          }
        }
      }
      F_UNROLL
      for (int i = 0; i < BAND * 2; ++i) {
        const int m = i / 2, half = i % 2;
        float v[2] = {sums[m][half * 2], sums[m][half * 2 + 1]};
#ifdef DIRECTION_fwd
        v[0] = F_EPILOGUE(v[0], c, 0), v[1] = F_EPILOGUE(v[1], c, 0);
#endif
        results[tile][m][half] = F_PAIR(v[0], v[1]);
      }
    }
    F_UNROLL
    for (int i = 0; i < STRIP_TILES * BAND * 2; ++i) {
      const int tile = i / (BAND * 2), m = i / 2 % BAND, half = i % 2, strip = tile * 16 + half * 8 + lane / 4;
      if (strip < STRIPS)
        *(u32*)(plane + strip_place(strip) + m * PITCH + lane % 4 * 4) = results[tile][m][half];
    }
  }
  F_BARRIER();

  const int line = thread % TILE_LINE, chunk = line % OCTETS, pair = line / OCTETS, c = first_channel + chunk * CHUNK;
  const int q = first_column + pair * 2;
  if (pair >= TILE_PAIRS || c >= OUT_C || q >= OUT_W) return;
  F_UNROLL_TWICE
  for (int at = thread / TILE_LINE; at < IMAGES * ROWS; at += TILE_TURN) {
    const int image = IMAGES == 1 ? 0 : at / ROWS, row = at - image * ROWS;
    const int n = first_image + image, p = first_row + row;
    if (n >= z.n || p >= OUT_H) continue;
    const unsigned char* const from =
        local_memory + chunk * CHUNK_BYTES(PLANE_BYTES) + image * IMAGE_BYTES + row * PITCH + pair * 4;
    u32 a[4], b[4];
    F_UNROLL
    for (int j = 0; j < 4; ++j) {
      const u32 even = *(const u32*)(from + 2 * j * PLANE_BYTES), odd = *(const u32*)(from + (2 * j + 1) * PLANE_BYTES);
      a[j] = low_halves(even, odd), b[j] = high_halves(even, odd);
    }
    element_t* const to = out + F_OFFSET(n, c, p, q, OUT_C, OUT_H, OUT_W);
    *(uint4*)to = {a[0], a[1], a[2], a[3]};
    if (q + 1 < OUT_W) *(uint4*)(to + OUT_C) = {b[0], b[1], b[2], b[3]};
  }
}
