// Rows of 32-bit NCHW in shared memory, and which of a tile's pixels a thread has. Kernel and host compute it
// here.
//
// A buffer is a halo patch as the copy engine brings it: for each row of pixels its channels, of each a line
// that begins at a multiple of 16 bytes and is eight pixels longer than the tile is wide: an odd number of 32
// bytes, so that four channels of two neighbouring chunks of 16 bytes meet every bank once.
//
// A thread has four pixels side by side in each of the rows below each other that are its own; wgmma takes
// the first two as rows lane / 4 and 8 further of one block of 64, the other two of another, so that a warp
// has 32 pixels of a row, or 16 of two.
#pragma once

#include "kernels/sm90/config.h"

namespace faltung::sm90::lines {

constexpr int kRun = 4;   // a thread's pixels side by side
constexpr int kHalo = 8;  // pixels that a line is longer than a tile is wide

// Of Choices: rows below each other that a thread has; threads of a warp side by side; warps side by side.
FALTUNG_BOTH constexpr int rows_a_thread(const Choices& t) { return t.m_blocks() / 2; }
FALTUNG_BOTH constexpr int threads_across(const Choices& t) { return t.width < 32 ? t.width / kRun : 8; }
FALTUNG_BOTH constexpr int warps_across(const Choices& t) { return t.width < 32 ? 1 : t.width / 32; }
// Of a consumer, whose four warps have them.
FALTUNG_BOTH constexpr int consumer_rows(const Choices& t) {
  return 4 / warps_across(t) * (8 / threads_across(t)) * rows_a_thread(t);
}

// A thread's first pixel, within its consumer's.
struct Pixel {
  int row, column;
};
FALTUNG_BOTH constexpr Pixel first_pixel(const Choices& t, int thread) {
  const int warp = thread / 32, run = thread % 32 / 4, across = threads_across(t);
  return {(warp / warps_across(t) * (8 / across) + run / across) * rows_a_thread(t),
          warp % warps_across(t) * 32 + run % across * kRun};
}

// A line's first pixel lies so many chunks of four before the tile's.
FALTUNG_BOTH constexpr int chunks_before(int pad_left) { return (pad_left + kRun - 1) / kRun; }

// Where a channel of a block of so many, of a row of a patch, has a column counted from the tile's first
// pixel on.
FALTUNG_BOTH constexpr int place_of(const Choices& t, int pad_left, int row, int column, int channel) {
  return ((row * t.k_block + channel) * (t.width + kHalo) + chunks_before(pad_left) * kRun + column) * 4;
}

}  // namespace faltung::sm90::lines
