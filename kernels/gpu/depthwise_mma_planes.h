// What the depthwise kernels by Toeplitz and Hankel matrices share: halo patches of nhwc, turned on their way
// to local memory, where each channel has a plane of its own.
//
// The host defines what mma_patch.h asks for.
#pragma once
#include "kernels/gpu/mma_patch.h"

#define CHUNK_BYTES(plane) (CHUNK * (plane) + 64)  // of a chunk's planes; the next ones' banks are others
// So many threads have a row: a power of two.
#define ROW_THREADS(count) \
  ((count) <= 16 ? 16 : (count) <= 32 ? 32 : (count) <= 64 ? 64 : (count) <= 128 ? 128 : 256)

// Two pixels' words of two channels each, as two channels' words of two pixels each, and back.
F_DEVICE u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
F_DEVICE u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
F_DEVICE void put_pair(unsigned char* to, int plane, uint4 first, uint4 second) {
  const u32 a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
  F_UNROLL
  for (int i = 0; i < 4; ++i) {
    *(u32*)(to + 2 * i * plane) = low_halves(a[i], b[i]);
    *(u32*)(to + (2 * i + 1) * plane) = high_halves(a[i], b[i]);
  }
}

// kRows rows of kPairs pairs of columns, of kImages images; zeros outside. In a plane an image has kImage
// bytes, a row kPitch. A thread has a pair of columns and turns a chunk of it, a row after the other, of
// which some are on their way at a time. kShifted: bytes to another such patch, a column to the right; 0 for
// none.
template <int kImages, int kRows, int kPairs, int kPitch, int kImage, int kShifted>
F_DEVICE void bring_planes(unsigned char* planes, const element_t* tensor, int first_image, int first_channel,
                           int top, int left, int channels, int height, int width, int images) {
  constexpr int kLine = ROW_THREADS(kPairs * OCTETS), kTurn = THREADS / kLine, kPlane = kImages * kImage;
  static_assert(kLine <= THREADS);
  constexpr int kPixels = kShifted > 0 ? 3 : 2, kAtOnce = kShifted > 0 ? 2 : 4;
  const int place = F_THREAD() % kLine, chunk = place % OCTETS, pair = place / OCTETS;
  const int channel = first_channel + chunk * CHUNK, column = left + pair * 2;
  const bool is_mine = pair < kPairs;
  bool is_pixel[kPixels];
  F_UNROLL
  for (int j = 0; j < kPixels; ++j)
    is_pixel[j] = is_mine && channel < channels && (u32)(column + j) < (u32)width;
  const element_t* const from = tensor + F_OFFSET(first_image, channel, top, column, channels, height, width);
  unsigned char* const to = planes + chunk * CHUNK_BYTES(kPlane) + pair * 4;
  F_NO_UNROLL
  for (int first = F_THREAD() / kLine; first < kImages * kRows; first += kTurn * kAtOnce) {
    uint4 pixels[kAtOnce][kPixels];
    F_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kTurn, image = kImages == 1 ? 0 : at / kRows, row = at - image * kRows;
      const bool is_row =
          at < kImages * kRows && first_image + image < images && (u32)(top + row) < (u32)height;
      const element_t* const line = from + ((index_t)image * height + row) * width * channels;
      F_UNROLL
      for (int j = 0; j < kPixels; ++j) {
        pixels[i][j] = {0, 0, 0, 0};
        if (is_row && is_pixel[j]) pixels[i][j] = *(const uint4*)(line + j * channels);
      }
    }
    F_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kTurn, image = kImages == 1 ? 0 : at / kRows, row = at - image * kRows;
      if (!is_mine || at >= kImages * kRows) continue;
      put_pair(to + image * kImage + row * kPitch, kPlane, pixels[i][0], pixels[i][1]);
      if (kShifted > 0)
        put_pair(to + kShifted + image * kImage + row * kPitch, kPlane, pixels[i][1], pixels[i][kPixels - 1]);
    }
  }
}
