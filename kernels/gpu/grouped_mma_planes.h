// Groups of few channels in nchw: planes are turned on their way to local memory, whose patches have pixels
// as those of nhwc do, and results on their way from it.
//
// The host defines beside what grouped_mma_patch.h asks for LOAD_RUN and STORE_RUN: so many neighbours of a
// row, a power of two up to 4 and 8 that the read and the written tensors' rows are a multiple of, are loaded
// and stored at once.
#pragma once
#include "kernels/gpu/grouped_mma_patch.h"

template <int kCount>
struct __align__(kCount * 2) Run {
  element_t v[kCount];
};

// kRows rows of kColumns pixels of every image, from the first one on, zeros outside. An item is a run of 8
// channels. Threads beside each other have as many octets of channels as a run has pixels: so they write to
// different banks.
template <int kRows, int kColumns, int kStep>
F_DEVICE void bring_planes(unsigned char* to, const element_t* from, int first_image, int first_channel,
                           int top, int left, int channels, int height, int width, int images) {
  constexpr int kRuns = (kColumns + 2 * LOAD_RUN - 2) / LOAD_RUN;
  constexpr int kItems = kRows * IMAGES * OCTETS * kRuns,
                kTogether = LOAD_RUN < 4 ? 4 : 3;  // whose loads are under way
  const int before = left & (LOAD_RUN - 1);        // the first run begins so many pixels before
  F_NO_UNROLL
  for (int first = F_THREAD(); first < kItems; first += kTogether * THREADS) {
    Run<LOAD_RUN> loaded[kTogether][CHUNK];
    F_UNROLL
    for (int one = 0; one < kTogether; ++one) {
      const int i = first + one * THREADS,
                octet = i % LOAD_RUN + i / LOAD_RUN / kRuns % (OCTETS / LOAD_RUN) * LOAD_RUN;
      const int line = i / (OCTETS * kRuns), n = first_image + line % IMAGES,
                channel = first_channel + octet * CHUNK;
      const int row = top + line / IMAGES, column = left - before + i / LOAD_RUN % kRuns * LOAD_RUN;
      const bool wanted = i < kItems && (u32)row < (u32)height && (u32)column < (u32)width && n < images &&
                          channel < channels;
      const element_t* const at =
          from + (wanted ? F_OFFSET(n, channel, row, column, channels, height, width) : 0);
      F_UNROLL
      for (int c = 0; c < CHUNK; ++c) {
        loaded[one][c] = {};
        if (wanted) loaded[one][c] = *(const Run<LOAD_RUN>*)(at + (index_t)c * height * width);
      }
    }
    F_UNROLL
    for (int one = 0; one < kTogether; ++one) {
      const int i = first + one * THREADS,
                octet = i % LOAD_RUN + i / LOAD_RUN / kRuns % (OCTETS / LOAD_RUN) * LOAD_RUN;
      const int line = i / (OCTETS * kRuns);
      F_UNROLL
      for (int v = 0; v < LOAD_RUN; ++v) {
        const int column = i / LOAD_RUN % kRuns * LOAD_RUN + v - before;
        if (i >= kItems || (u32)column >= (u32)kColumns) continue;
        Run<CHUNK> chunk;
        F_UNROLL
        for (int c = 0; c < CHUNK; ++c) chunk.v[c] = loaded[one][c].v[v];
        *(Run<CHUNK>*)(to + (line * kColumns + column) * PIXEL_BYTES + CHUNK_PLACE(octet, column, kStep)) =
            chunk;
      }
    }
  }
}

// The filters of the block's channels, whose taps are side by side, with their channels so.
F_DEVICE void turn_filters(unsigned char* to, const element_t* w, int first_channel, int channels) {
  constexpr int kTurns = (CHANNELS * R * S * GROUP / CHUNK + THREADS - 1) / THREADS,
                kTogether = kTurns < 6 ? kTurns : 6;  // whose loads are under way
  const int chunks = F_MIN(channels - first_channel, CHANNELS) * (R * S * GROUP) / CHUNK;
  const element_t* const from = w + (index_t)first_channel * (R * S * GROUP);
  F_NO_UNROLL
  for (int first = F_THREAD(); first < chunks; first += kTogether * THREADS) {
    Run<CHUNK> loaded[kTogether];
    F_UNROLL
    for (int one = 0; one < kTogether; ++one) {
      const int i = first + one * THREADS;
      loaded[one] = *(const Run<CHUNK>*)(from + (i < chunks ? i : first) * CHUNK);
    }
    F_UNROLL
    for (int one = 0; one < kTogether; ++one) {
      const int i = first + one * THREADS;
      if (i >= chunks) continue;
      F_UNROLL
      for (int j = 0; j < CHUNK; ++j) {
        const int at = i * CHUNK + j, tap = at % (R * S), c = at / (R * S) % GROUP,
                  channel = at / (R * S * GROUP);
        ((element_t*)to)[(channel * (R * S) + tap) * GROUP + c] = loaded[one].v[j];
      }
    }
  }
}
