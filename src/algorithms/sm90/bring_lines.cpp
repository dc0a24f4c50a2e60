// Halo patches of 32-bit NCHW as it is, by the copy engine, whose rows go through registers
// (kernels/sm90/lines_gemm.cu): filters of up to three rows and columns, stride 1.
#include <algorithm>

#include "kernels/sm90/lines_pixels.h"
#include "src/algorithms/sm90/bring.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung::sm90::lines {

using i64 = std::int64_t;

std::string unfit(const Tiling& t, const Problem& p) {
  if (p.layout != Layout::nchw || p.dtype != DType::f32) return "lines serve NCHW of 32 bits";
  if (!t.pixels_on_m()) return "the matrix units take 32-bit channels side by side only, or from registers";
  if (p.r > 3 || p.s > 3 || p.r * p.s == 1 || strides(p) || p.dilation_h != 1)
    return "lines serve filters of up to three rows and columns, more than one of them, stride 1";
  const i64 right = (p.s - 1) * p.dilation_w - p.pad_left;
  if (p.pad_left > kRun || right < 0 || right > kRun) return "taps reach up to four columns beside a pixel";
  if (p.w % 4 != 0) return "the copy engine takes rows of a multiple of 4 pixels, not " + std::to_string(p.w);
  if (t.width != 16 && t.width != 32 && t.width != 64 && t.width != 128)
    return "lines are of 16, 32, 64 or 128 pixels wide";
  const int rows_a_thread = t.m_blocks() / 2;
  if (t.m_blocks() % 2 != 0 || rows_a_thread > 2 || t.height != consumer_rows(t) * t.sharers())
    return "a thread has one or two rows of a tile";
  const i64 reads = t.k_block / 8 * (rows_a_thread + p.r - 1);
  if (tf32_parts(p) == 1 && (reads % 2 != 0 || reads < 4))
    return "of a block of channels an even number of rows is read, four or more";
  // Beside its sums it has others apart, and its pixels' high and low parts.
  if (tf32_parts(p) == 2 && (rows_a_thread > 1 || t.channels > 64 || t.k_block != 8))
    return "lines multiplied in parts take one row a thread, up to 64 channels and 8 at a time";
  if (t.channels % 32 != 0 || t.channels * std::min<i64>(rows_a_thread, p.r) > 256)
    return "sums are of a multiple of 32 channels, up to 256 an instruction";
  if (!t.cooperative() && !t.resident()) return "consumers that take a tile each keep their weights";
  if (!t.cooperative() && (t.pixel_slots < 4 || t.pixel_slots % 2 != 0))
    return "consumers that take a tile each have two buffers or more of their own";
  return "";
}

void fill(Lister& lister, Tiling t) {
  const int step = t.cooperative() ? 1 : 2;
  for (t.pixel_slots = 8; t.pixel_slots >= 2; t.pixel_slots -= step) {
    t.weight_slots = t.resident() ? 0 : t.pixel_slots;
    if (lister.fits(t)) break;
  }
  lister.keep(t);
}

i64 kept_blocks(const Problem& p) { return ceil_div(group_channels(p), 128 / size_of(p.dtype)); }

// No warps of their own make them ready.
double preparation(const Tiling&, const Problem&, const Traffic&) { return 0; }

void list(Lister& lister) {
  Tiling t;
  t.bring = Bring::lines;
  t.m_side = MSide::pixels;
  const bool whole = tf32_parts(lister.problem()) == 1;
  for (const Schedule schedule : {Schedule::ping_pong, Schedule::cooperative}) {
    t.schedule = schedule;
    t.weights_in = t.cooperative() ? WeightsIn::ring : WeightsIn::resident;
    for (const int channels : {32, 64, 128}) {
      t.channels = channels;
      if (t.resident() && (channels != 64 || !lister.may_stay(t))) continue;
      for (const int rows : {1, 2}) {
        for (const int width : {16, 32, 64, 128}) {
          t.width = width;
          t.height = 128 * rows / width * t.sharers();
          if (t.sums() > 128 || t.height == 0) continue;
          for (const int k_block : {8, 16}) {
            t.k_block = k_block;
            if (k_block == 8 && whole && rows == 1) continue;
            t.split = 1;
            if (channels > 32) fill(lister, t);
            for (const int split : lister.splits(t)) {
              t.split = split;
              fill(lister, t);
            }
            t.split = 1;
          }
        }
      }
    }
  }
}

}  // namespace faltung::sm90::lines
