// A depthwise convolution of whole planes on the matrix units (mma.sync), nchw, forward and backward_data, without
// strides, results as large as the input. For one channel and one row of its filter, eight neighbouring results are a
// product of the pixels around them with a matrix that has the row once in each column, a place lower from one to the
// next (a Toeplitz matrix). Planes have pixels side by side, as a product wants its rows: 16 rows of a plane by eight
// columns are such a product's results, of the eight columns themselves and of those before and behind.
//
// A block brings CHANNELS planes, which lie together in memory, or ROWS rows of one, to local memory, with what these read
// above and below. A warp has 16 of the rows and goes from left to right: what it reads of eight columns it keeps for the
// results before, in and behind them. Results go where the rows were, and from there to memory as the rows came.
//
// The host defines one DIRECTION_, HEIGHT and COLUMNS of a plane, ROWS (HEIGHT, or a multiple of 16 where CHANNELS is 1),
// PIECE (pixels that lie together and aligned in every row: 2, 4 or 8), CHANNELS, THREADS (32 for each 16 rows), BLOCKS
// (that fit on a multiprocessor), ABOVE and BEFORE, rows and columns that a result reads above and before it, and what
// convolution.h asks for. There is no residual.
#include "kernels/gpu/mma_patch_units.h"
#include "kernels/gpu/sides.h"

#define CHUNK 8                                 // columns of a product
#define CHUNKS ((COLUMNS + CHUNK - 1) / CHUNK)  // of a row
#define BANDS ((ROWS + 15) / 16)
#define PARTS ((HEIGHT + ROWS - 1) / ROWS)  // of a plane
#define PITCH ((CHUNKS | 1) * 16)           // of a row in local memory, bytes: eight neighbours share no bank
#define READ_ROWS (ROWS + R - 1)
#define PLANE_BYTES ((BANDS * 16 + R) * PITCH)  // with what the last band's products read below
#define ROW_PIECES (COLUMNS / PIECE)
#define LINES (THREADS / ROW_PIECES)  // rows that a block moves at a time
#define TURNS(rows) ((CHANNELS * (rows) + LINES - 1) / LINES)
#define PAIRS ((R + 1) / 2)  // of rows of the filter, which a product has two of
#ifdef DIRECTION_bwd_d
#define TAP(r, s) ((R - 1 - (r)) * S + S - 1 - (s))
#else
#define TAP(r, s) ((r)*S + (s))
#endif

F_ALL_LOCAL_MEMORY(local_memory);

struct __align__(PIECE * 2) Piece {
  u32 words[PIECE / 2];
};

F_DENSE_KERNEL(THREADS, BLOCKS)
depthwise_planes(F_TENSORS(in, w, out), Sizes z) {
  F_FOLLOW_PREVIOUS();
  F_OPEN_TENSORS(in, w, out)
  const int thread = F_THREAD(), lane = thread % 32;
  const int own = thread / 32 / BANDS, band = thread / 32 % BANDS;
  const int first = F_BLOCK(0) / PARTS * CHANNELS, count = F_MIN(CHANNELS, z.n * OUT_C - first);  // planes
  const int top = F_BLOCK(0) % PARTS * ROWS;
  // A thread moves a piece of every LINES-th row.
  const int piece = thread % ROW_PIECES, line = thread / ROW_PIECES;
  const index_t begin = ((index_t)first * HEIGHT + top) * ROW_PIECES + piece;
  unsigned char* const moved = local_memory + piece * (PIECE * 2);
  // Where a row of the block's planes lies in local memory, of so many rows of each.
  const auto place = [&](int row, int rows) {
    const int plane = CHANNELS == 1 ? 0 : row / rows;
    return (Piece*)(moved + row * PITCH + plane * (PLANE_BYTES - rows * PITCH));
  };
  Piece brought[TURNS(READ_ROWS)];
  F_UNROLL
  for (int turn = 0; turn < TURNS(READ_ROWS); ++turn) {
    const int at = line + turn * LINES, plane = CHANNELS == 1 ? 0 : at / READ_ROWS, row = top + at - plane * READ_ROWS - ABOVE;
    brought[turn] = Piece{};
    if (line < LINES && at < count * READ_ROWS && (u32)row < (u32)HEIGHT)
      brought[turn] = ((const Piece*)in + begin)[(at - plane * (R - 1) - ABOVE) * ROW_PIECES];
  }
  // Zeros to the right of rows that are no whole chunks.
  if (COLUMNS % CHUNK != 0) {
    for (int i = thread; i < CHANNELS * READ_ROWS; i += THREADS) {
      F_UNROLL
      for (int column = COLUMNS; column < CHUNKS * CHUNK; column += 2)
        *(u32*)(local_memory + i / READ_ROWS * PLANE_BYTES + i % READ_ROWS * PITCH + column * 2) = 0;
    }
  }

  // Of the eight columns before, of results, and behind, by pairs of rows: a lane has two neighbouring elements of a
  // column of the filter's matrices.
  const int channel = (first + own) % OUT_C;
  const element_t* const taps = w + channel * (R * S);
  u32 filter[3][PAIRS][2];
  F_UNROLL
  for (int i = 0; i < 3 * R; ++i) {
    const int part = i / R, r = i % R, s = (part - 1) * CHUNK + lane % 4 * 2 - lane / 4 + BEFORE;
    const u32 low = (u32)s < (u32)S ? taps[TAP(r, s)] : 0, high = (u32)(s + 1) < (u32)S ? taps[TAP(r, s + 1)] : 0;
    filter[part][r / 2][r % 2] = low | high << 16;
  }
  F_UNROLL
  for (int turn = 0; turn < TURNS(READ_ROWS); ++turn) {
    if (line < LINES && line + turn * LINES < CHANNELS * READ_ROWS) *place(line + turn * LINES, READ_ROWS) = brought[turn];
  }
  F_BARRIER();

  // What is read of eight columns: for each pair of rows of the filter the two matrices that either meets.
  unsigned char* const plane = local_memory + own * PLANE_BYTES + band * 16 * PITCH;
  const u32 from = local_address(plane) + (lane % 16 + lane / 16) * PITCH;
  u32 pixels[3][PAIRS][4];
  const auto read = [&](int chunk) {
    F_UNROLL
    for (int pair = 0; pair < PAIRS; ++pair) load_matrices(from + pair * 2 * PITCH + chunk * 16, pixels[chunk % 3][pair]);
  };
  read(0);
  u32 upper[CHUNKS];  // results of the upper eight rows: the band above still reads what lies there
  F_UNROLL
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    if (chunk + 1 < CHUNKS) read(chunk + 1);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    F_UNROLL
    for (int i = 0; i < 3 * PAIRS; ++i) {
      const int part = i / PAIRS, pair = i % PAIRS, at = chunk + part - 1;
      if (at < 0 || at >= CHUNKS) continue;
      if (2 * pair + 1 < R)
        multiply(pixels[at % 3][pair], filter[part][pair], sums);
      else
        multiply_eight(pixels[at % 3][pair], filter[part][pair], sums);
    }
#ifdef DIRECTION_fwd
    F_UNROLL
    for (int j = 0; j < 4; ++j) sums[j] = F_EPILOGUE(sums[j], channel, 0);
#endif
    upper[chunk] = F_PAIR(sums[0], sums[1]);
    *(u32*)(plane + (lane / 4 + 8) * PITCH + chunk * 16 + lane % 4 * 4) = F_PAIR(sums[2], sums[3]);
  }
  F_BARRIER();
  F_UNROLL
  for (int chunk = 0; chunk < CHUNKS; ++chunk)
    *(u32*)(plane + lane / 4 * PITCH + chunk * 16 + lane % 4 * 4) = upper[chunk];
  F_BARRIER();
  const int rows = line < LINES ? F_MIN(count * ROWS, HEIGHT * CHANNELS - top) : 0;
  F_UNROLL
  for (int turn = 0; turn < TURNS(ROWS); ++turn) {
    if (line + turn * LINES < rows) ((Piece*)out + begin)[(line + turn * LINES) * ROW_PIECES] = *place(line + turn * LINES, ROWS);
  }
}
