// Rows of 32-bit pixels in shared memory as wgmma's first operand, from registers: one read of a row serves all of its
// horizontal taps. Part of lines_gemm.cu.
#pragma once
#include "kernels/sm90/pipeline.cuh"
#include "kernels/sm90/lines_pixels.h"
#include "kernels/sm90/tf32.cuh"
#include "kernels/sm90/words.cuh"

constexpr int kRun = lines::kRun, kRowsAThread = lines::rows_a_thread(kConfig.tile);
constexpr int kAcross = lines::threads_across(kConfig.tile);
// Columns beside a thread's own that the taps reach, and with its own.
constexpr int kLeft = kConfig.pad_left, kRight = (kS - 1) * kDilationW - kLeft;
constexpr int kEdges = kLeft > kRight ? kLeft : kRight, kReach = kLeft + kRun + kRight;
static_assert(kLeft <= kRun && 0 <= kRight && kRight <= kRun, "neighbours' columns only");

constexpr int kRowSums = kN / 2;  // of a thread, of two of its pixels in a row
using RowSums = float[2][kRowsAThread][kRowSums];

// Where a thread reads: its own pixels of the first of its rows, and beside the run of the threads next to it what none
// of those has.
struct Pixels {
  unsigned own, edge;
  bool first, last;
  __device__ __forceinline__ Pixels(int consumer_row, int thread) {
    constexpr Choices kTile = kConfig.tile;
    const lines::Pixel at = lines::first_pixel(kTile, thread);
    const int run = thread % 32 / 4 % kAcross, channel = thread % 4, row = consumer_row + at.row;
    first = run == 0, last = run == kAcross - 1;
    const int begin = at.column - run * kRun;
    const bool left = kRight == 0 || (kLeft > 0 && first);
    own = lines::place_of(kTile, kLeft, row, at.column, channel);
    edge = lines::place_of(kTile, kLeft, row, left ? begin - kLeft : begin + kAcross * kRun, channel);
  }
};

// Of two channels of 8, four apart: what a thread reads of a row of the patch, which is on its way.
struct Read {
  unsigned own[2][kRun], edge[2][kEdges > 0 ? kEdges : 1];
  __device__ __forceinline__ void load(const Pixels& at, unsigned slot, int step, int row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned from = slot + lines::place_of(kConfig.tile, 0, row, 0, step * 8 + half * 4);
      load_shared_128(from + at.own, own[half]);
#pragma unroll
      for (int i = 0; i < kEdges; ++i) load_shared<4>(from + at.edge + i * 4, edge[half][i]);
    }
  }
};

// A thread's columns with those of its neighbours that the taps reach.
struct Columns {
  unsigned v[2][kReach];
  __device__ __forceinline__ Columns(const Read& read, const Pixels& at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        const unsigned theirs = __shfl_up_sync(0xffffffffu, read.own[half][kRun - kLeft + i], 4);
        v[half][i] = at.first ? read.edge[half][i] : theirs;
      }
#pragma unroll
      for (int i = 0; i < kRun; ++i) v[half][kLeft + i] = read.own[half][i];
#pragma unroll
      for (int i = 0; i < kRight; ++i) {
        const unsigned theirs = __shfl_down_sync(0xffffffffu, read.own[half][i], 4);
        v[half][kLeft + kRun + i] = at.last ? read.edge[half][i] : theirs;
      }
    }
  }
};

// The first operands of all horizontal taps, of both blocks of 64 pixels; of two parts the high ones, then the low ones.
struct Operand {
  unsigned a[kParts][kS][2][4];
  __device__ __forceinline__ explicit Operand(const Columns& columns) {
    unsigned parts[kParts][2][kReach];
#pragma unroll
    for (int i = 0; i < 2 * kReach; ++i) {
      const unsigned v = columns.v[i / kReach][i % kReach];
      if constexpr (kParts == 2) {
        parts[0][i / kReach][i % kReach] = round_tf32(v, parts[1][i / kReach][i % kReach]);
      } else {
        parts[0][i / kReach][i % kReach] = v;
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kS * 8; ++i)
        a[part][i / 8][i / 4 % 2][i % 4] = parts[part][i % 4 / 2][i / 8 * kDilationW + i / 4 % 2 * 2 + i % 2];
    }
    pin();
  }
  // Made by here, not between products.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < kParts * kS * 8; ++i)
      asm volatile("" : "+r"(a[i / (kS * 8)][i / 8 % kS][i / 4 % 2][i % 4])::"memory");
  }
};
