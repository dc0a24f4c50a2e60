// Groups of few channels in nchw whose blocks have whole images: the planes of 64 channels, which lie
// together. They come by 16 bytes, behind the caller's back, and are turned in local memory to pixels as nhwc
// has them; planes of results leave from there as they came. The filters stay as they lie.
//
// The host defines beside what grouped_mma_patch.h asks for IN_PLANE and OUT_PLANE, elements of a plane of
// what is read and of what is written, and FILTER_BYTES.
#pragma once
#include "kernels/gpu/grouped_mma_ahead.h"

F_DEVICE int plane_chunks(int first_channel, int channels, int plane) {
  return F_MIN(channels - first_channel, CHANNELS) * plane / CHUNK;
}

// Of every image: a group of copies.
F_DEVICE void bring_planes(u32 to, const element_t* from, int first_image, int first_channel, int channels,
                           int images) {
  const int chunks = plane_chunks(first_channel, channels, IN_PLANE);
  F_UNROLL
  for (int image = 0; image < IMAGES; ++image) {
    const bool there = first_image + image < images;
    const element_t* const at =
        from + (there ? ((index_t)(first_image + image) * channels + first_channel) * IN_PLANE : 0);
    F_UNROLL
    for (int turn = 0; turn < (CHANNELS * IN_PLANE / CHUNK + THREADS - 1) / THREADS; ++turn) {
      const int i = F_THREAD() + turn * THREADS;
      copy_chunk_if(there && i < chunks, to + image * (CHANNELS * IN_PLANE * 2) + i * 16, at + i * CHUNK,
                    true);
    }
  }
  close_copies();
}

F_DEVICE void ask_for_planes(const element_t* from, int first_image, int first_channel, int channels,
                             int images) {
  const int count = F_MIN(images - first_image, IMAGES);
  for (int image = 0; image < count; ++image)
    ask_for_run(from + ((index_t)(first_image + image) * channels + first_channel) * IN_PLANE,
                plane_chunks(first_channel, channels, IN_PLANE) * CHUNK);
}

// To pixels: kRows rows from row `top` on, of every image kColumns from column `left` on, zeros outside. A
// thread has a place at a time, with all of its channels, whose addresses differ by constants.
template <int kRows, int kColumns, int kStep>
F_DEVICE void turn_planes(unsigned char* to, const unsigned char* planes, int top, int left, int height,
                          int width) {
  constexpr int kPlaces = kRows * IMAGES * kColumns;
  F_NO_UNROLL
  for (int first = 0; first < kPlaces; first += THREADS) {
    const int place = F_MIN(first + F_THREAD(), kPlaces - 1);  // the last one's more than once
    const int line = place / kColumns, row = top + line / IMAGES, column = place % kColumns;
    const bool inside = (u32)row < (u32)height && (u32)(left + column) < (u32)width;
    const int at = inside ? row * width + left + column : 0;
    const unsigned char* const from = planes + (line % IMAGES * (CHANNELS * IN_PLANE) + at) * 2;
    F_UNROLL
    for (int octet = 0; octet < OCTETS; ++octet) {
      F_ALIGNED16 u32 word[CHUNK / 2];
      F_UNROLL
      for (int pair = 0; pair < CHUNK / 2; ++pair) {
        const unsigned char* const low = from + (octet * CHUNK + 2 * pair) * (IN_PLANE * 2);
        const u32 both = *(const u16*)low | (u32) * (const u16*)(low + IN_PLANE * 2) << 16;
        word[pair] = inside ? both : 0;
      }
      *(uint4*)(to + place * PIXEL_BYTES + CHUNK_PLACE(octet, column, kStep)) = *(const uint4*)word;
    }
  }
}

// A filter is R * S taps of each of GROUP channels. One's begins where its neighbours' do not share its
// banks.
#define FILTER_PITCH (FILTER_BYTES % 16 == 0 && GROUP > 8 ? FILTER_BYTES + 16 : FILTER_BYTES)
F_DEVICE void bring_filters_apart(unsigned char* to, const element_t* w, int first_channel, int channels) {
  constexpr int kChunks = OCTETS * R * S * GROUP,
                kOne = FILTER_PITCH == FILTER_BYTES ? kChunks : FILTER_BYTES / 16;
  const int chunks = plane_chunks(first_channel, channels, R * S * GROUP);
  F_UNROLL
  for (int turn = 0; turn < (kChunks + THREADS - 1) / THREADS; ++turn) {
    const int i = F_THREAD() + turn * THREADS;
    copy_chunk_if(i < chunks, local_address(to) + i * 16 + i / kOne * 16,
                  w + (index_t)first_channel * (R * S * GROUP) + i * CHUNK, true);
  }
  close_copies();
}

// Words as the products take them: of the results' channels `to` those that they meet by a tap, two of them;
// zeros between groups.
F_DEVICE void read_filter(const unsigned char* filters, int warp_channel, int lane, u32* words) {
  const int read_channel = warp_channel / STEPS * STEPS;
  const u32 mask = GROUP >= CHUNK || lane / 4 / GROUP == lane % 4 * 2 / GROUP ? ~0u : 0;
  F_UNROLL
  for (int i = 0; i < R * S * 2 * WORDS; ++i) {
    const int tap = i / (2 * WORDS), eight = warp_channel + i / WORDS % 2 * 8;
    const int to = eight + lane / 4,
              from = (WORDS == 1 ? eight : read_channel + i % WORDS * 8) + lane % 4 * 2;
#ifdef DIRECTION_bwd_d
    const unsigned char* const low = filters + from * FILTER_PITCH + (to % GROUP * (R * S) + tap) * 2;
    words[i] = (*(const u16*)low | (u32) * (const u16*)(low + FILTER_PITCH) << 16) & mask;
#else
    const unsigned char* const low = filters + to * FILTER_PITCH + (from % GROUP * (R * S) + tap) * 2;
    words[i] = (*(const u16*)low | (u32) * (const u16*)(low + R * S * 2) << 16) & mask;
#endif
  }
}

F_DEVICE void store_planes(element_t* to, const unsigned char* from, int first_image, int first_channel,
                           int channels, int images) {
  const int chunks = plane_chunks(first_channel, channels, OUT_PLANE);
  F_UNROLL
  for (int image = 0; image < IMAGES; ++image) {
    if (first_image + image >= images) continue;
    element_t* const at = to + ((index_t)(first_image + image) * channels + first_channel) * OUT_PLANE;
    for (int i = F_THREAD(); i < chunks; i += THREADS)
      ((uint4*)at)[i] = ((const uint4*)(from + image * (CHANNELS * OUT_PLANE * 2)))[i];
  }
}
