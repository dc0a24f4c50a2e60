// 32-bit planes in shared memory, and which of their pixels a thread has. Kernel and host compute it here.
//
// A box is 32 channels by 32 pixels as they lie, a row of 128 bytes a channel, whose 16 bytes number i are at
// i ^ channel % 8. wgmma wants of each thread, in registers, channels lane % 4 and 4 further of pixels lane /
// 4 and 8 further of 64. Which pixels of the tile those are is free: a thread takes those that it has of all
// its blocks of 64 side by side, so that it reads, and stores, 8 or 16 bytes at a time, and takes them where
// the threads that read at the same time meet every bank once.
#pragma once

#include "kernels/sm90/config.h"

namespace faltung::sm90::planes {

constexpr int kThreads = 384;  // of a block
constexpr int kBox = 32;       // pixels, and channels
constexpr int kBoxBytes = kBox * kBox * 4;

// The first of a thread's 2 or 4 pixels, of a consumer's one or two blocks of 64.
FALTUNG_BOTH constexpr int first_pixel(int blocks, int thread) {
  const int warp = thread / 32, row = thread % 32 / 4;
  if (blocks == 2) return warp * kBox + (row / 2 + row % 2 * 4) * 4;
  return warp / 2 * kBox + (warp % 2 * 2 + row / 4 + row / 2 % 2 * 4) * 4 + row % 2 * 2;
}

// Where a pixel of a channel lies, in bytes from its consumer's first box.
FALTUNG_BOTH constexpr int place_of(int pixel, int channel) {
  return pixel / kBox * kBoxBytes + channel * 128 + ((pixel % kBox / 4 ^ channel % 8) << 4) + pixel % 4 * 4;
}

}  // namespace faltung::sm90::planes
