// What follows from a KernelConfig: how much of what a block has in shared memory, and where it lies. Host
// and kernel compute it here, each at its own time. Sizes are long long, so that a problem's largest numbers
// fit.
#pragma once

#include "kernels/sm90/config.h"
#include "kernels/sm90/lines_pixels.h"

namespace faltung::sm90 {

// Bytes of shared memory that a block may have: compute capability 9.0, on every chip.
constexpr int kSharedLimit = 232448;
// The copy engine's boxes and the matrix units' operands begin at multiples of 1024 bytes, where swizzles
// begin.
constexpr int kAlignment = 1024;
// A block's memory begins anywhere: so much is left for aligning it.
constexpr int kSlack = 1024;

FALTUNG_BOTH constexpr long long aligned(long long bytes, int to) { return (bytes + to - 1) / to * to; }

// ---------------------------------------------------------------------------------------- instructions

// The matrix units cut each sum that they write. Of two parts, which make nearly fp32, the products of a tap
// of a block of channels are therefore summed apart and then added to the sums, rounded to nearest. Two such
// sums take turns, one multiplied while the other is added: those of a consumer's blocks, or where these are
// odd in number of halves of a block.
FALTUNG_BOTH constexpr bool sums_apart(const KernelConfig& c) { return c.parts == 2; }
FALTUNG_BOTH constexpr int halves(const KernelConfig& c) {
  return sums_apart(c) && c.tile.m_blocks() * c.tile.n_blocks() % 2 == 1 ? 2 : 1;
}
// The N side of an instruction.
FALTUNG_BOTH constexpr int columns(const KernelConfig& c) { return c.tile.n() / halves(c); }
// Taps of a row of the filter whose turns go on without a pause, where registers allow that.
FALTUNG_BOTH constexpr int taps_together(const KernelConfig& c) {
  const bool reads = c.tile.bring == Bring::turned && c.tile.row_slots == 0;
  const bool room = c.tile.sums() + columns(c) <= 128 && !reads;
  return sums_apart(c) && !c.tile.flat() && !c.tile.phased() && room && c.s <= 3 ? c.s : 1;
}
// Registers of a thread for sums.
FALTUNG_BOTH constexpr int sum_registers(const KernelConfig& c) {
  return c.tile.sums() + (sums_apart(c) ? columns(c) : 0);
}

// --------------------------------------------------------------------------------------------- warps

// Those that make pixels ready are a warpgroup more. Of 512 threads each starts with 128 registers, where an
// instruction's sums must fit: beside wider ones, and beside many, x is scaled by those warps that would
// idle.
FALTUNG_BOTH constexpr bool idle_warps_prepare(const KernelConfig& c) {
  return c.affine && (columns(c) > 200 || c.tile.sums() > 128);
}
FALTUNG_BOTH constexpr int threads(const KernelConfig& c) {
  return c.tile.bring != Bring::shift && c.prepares() && !idle_warps_prepare(c) ? 512 : 384;
}
// Beside a warp that brings pixels, and of patches one that brings weights.
FALTUNG_BOTH constexpr int prepare_warps(const KernelConfig& c) {
  return (threads(c) - 256) / 32 - (c.tile.flat() ? 1 : 2);
}

// ------------------------------------------------------------------------------------------ operands

// Of one operand row: a pixel's or an output channel's block of channels.
FALTUNG_BOTH constexpr int row_bytes(const KernelConfig& c) { return c.tile.k_block * c.element_bytes(); }

// A halo patch: the pixels of a tile with those that the taps reach beyond it. With a horizontal stride the
// columns that one tap reads lie together, in one of as many phases.
FALTUNG_BOTH constexpr long long patch_height(const KernelConfig& c) {
  return (c.tile.height - 1LL) * c.stride_h + (c.r - 1LL) * c.dilation_h + 1;
}
FALTUNG_BOTH constexpr long long phase_width(const KernelConfig& c) {
  return c.tile.width + (c.s - 1LL) * c.dilation_w / c.stride_w;
}
FALTUNG_BOTH constexpr long long patch_width(const KernelConfig& c) {
  return c.tile.bring == Bring::lines ? c.tile.width + lines::kHalo : phase_width(c) * c.stride_w;
}

// Of one part of a buffer of pixels.
FALTUNG_BOTH constexpr long long slot_bytes(const KernelConfig& c) {
  const Choices& t = c.tile;
  switch (t.bring) {
    case Bring::fetch:
      return aligned(t.pixels(), 64) * row_bytes(c);
    case Bring::im2col:
    case Bring::planes:
      return 1LL * t.pixels() * row_bytes(c);
    case Bring::shift:
      return (t.height + (c.r - 1LL) * c.dilation_h) * t.width * row_bytes(c);
    case Bring::patch:
    case Bring::turned:
    case Bring::lines:
      break;
  }
  return patch_width(c) * patch_height(c) * row_bytes(c);
}
FALTUNG_BOTH constexpr long long part_stride(const KernelConfig& c) {
  return aligned(slot_bytes(c), kAlignment);
}
FALTUNG_BOTH constexpr long long slot_stride(const KernelConfig& c) {
  return part_stride(c) *
         (c.tile.bring == Bring::lines ? 1 : c.parts);  // of lines parts are made in registers
}

// Of one row of the weights: an output channel's block of channels, of its own group. Those that stay beside
// rows come once, and not by as few channels as the pixels: the copy engine takes its time for each row.
FALTUNG_BOTH constexpr int weight_row_bytes(const KernelConfig& c) {
  return c.tile.bring == Bring::lines && c.tile.resident() ? 128 : row_bytes(c) / c.tile.groups;
}
// Of one part of a buffer of weights: a tap's, of a block of channels.
FALTUNG_BOTH constexpr int stage_bytes(const KernelConfig& c) {
  return c.tile.channels * weight_row_bytes(c);
}
FALTUNG_BOTH constexpr long long stage_part_stride(const KernelConfig& c) {
  return aligned(stage_bytes(c), kAlignment);
}
FALTUNG_BOTH constexpr long long stage_stride(const KernelConfig& c) {
  return stage_part_stride(c) * c.parts;
}

// ------------------------------------------------------------------------------- rows that are turned

// A patch of 32-bit NCHW: for each channel of a block rows of raw_width pixels, which begin at a multiple of
// 16 bytes. 16 or 32 pixels where they do, swizzled; else a row is an odd number of 16 bytes, so that
// neighbouring channels lie in other banks.
FALTUNG_BOTH constexpr long long raw_left(const KernelConfig& c) { return aligned(c.pad_left, 4); }
FALTUNG_BOTH constexpr long long raw_lead(const KernelConfig& c) { return raw_left(c) - c.pad_left; }
FALTUNG_BOTH constexpr int raw_swizzle(const KernelConfig& c) {
  const long long pixels = patch_width(c) + raw_lead(c);
  return pixels <= 16 ? 64 : pixels <= 32 ? 128 : 0;
}
FALTUNG_BOTH constexpr long long raw_width(const KernelConfig& c) {
  return raw_swizzle(c) > 0 ? raw_swizzle(c) / 4 : ((patch_width(c) + raw_lead(c) + 3) / 4 | 1) * 4;
}
FALTUNG_BOTH constexpr long long raw_bytes(const KernelConfig& c) {
  return raw_width(c) * patch_height(c) * row_bytes(c);
}

// From one buffer of rows to the next.
FALTUNG_BOTH constexpr long long raw_stride(const KernelConfig& c) {
  if (c.tile.row_slots == 0) return 0;
  return aligned(c.turns_16_bits() ? 1LL * c.tile.k_block * c.row_pitch : raw_bytes(c), 128);
}

FALTUNG_BOTH constexpr long long operand_bytes(const KernelConfig& c) {
  return c.tile.pixel_slots * slot_stride(c) + c.weight_buffers() * stage_stride(c) +
         c.tile.row_slots * raw_stride(c);
}

// -------------------------------------------------------------------------------------------- stores

// What a consumer stores of a tile.
FALTUNG_BOTH constexpr int my_channels(const Choices& t) {
  return t.pixels_on_m() ? t.channels : t.channels / t.sharers();
}
FALTUNG_BOTH constexpr int my_pixels(const Choices& t) {
  return t.pixels_on_m() ? t.pixels() / t.sharers() : t.pixels();
}

// So many of a pool's windows begin and end within so many pixels.
FALTUNG_BOTH constexpr int windows_within(int pixels, int window) {
  return window == 0 ? pixels : (pixels - window) / 2 + 1;
}
FALTUNG_BOTH constexpr int stored_pixels(const KernelConfig& c) {
  if (c.pooling == Pooling::none) return my_pixels(c.tile);
  return windows_within(c.tile.width, c.pool_window) * windows_within(c.tile.height, c.pool_window);
}

// Channels of a store by the copy engine.
FALTUNG_BOTH constexpr int unit_channels(const KernelConfig& c) {
  if (c.element == Element::f32) return 32;
  if (!c.tile.pixels_on_m()) return 64;
  const int n = c.tile.channels;
  return n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : n % 16 == 0 ? 16 : 8;
}
// Of planes a store is of all channels, by 64 pixels.
FALTUNG_BOTH constexpr int unit_bytes(const KernelConfig& c) {
  if (c.way == Way::planes) return my_channels(c.tile) * 128;
  return static_cast<int>(aligned(1LL * stored_pixels(c) * unit_channels(c) * c.element_bytes(), kAlignment));
}
FALTUNG_BOTH constexpr int units(const KernelConfig& c) {
  return c.way == Way::planes ? my_pixels(c.tile) / 64 : my_channels(c.tile) / unit_channels(c);
}
// Those that there is room for: stored in turn.
FALTUNG_BOTH constexpr int staged_units(const KernelConfig& c) {
  return c.tile.store_slots > 0 ? c.tile.store_slots : units(c);
}
// Where a channel has a row of the staging area: a little longer than its pixels, so that rows begin in other
// banks.
FALTUNG_BOTH constexpr int channel_pitch(const KernelConfig& c) {
  return stored_pixels(c) * c.element_bytes() + 16;
}

// ------------------------------------------------------------------------------------ sums of channels

// Those that have pixels of a channel in common: with pixels on M a consumer's four warps have some each.
FALTUNG_BOTH constexpr int channel_sum_rows(const KernelConfig& c) { return c.tile.pixels_on_m() ? 4 : 1; }
// Of a consumer: sums, and sums of squares, in fp32.
FALTUNG_BOTH constexpr int channel_sum_bytes(const KernelConfig& c) {
  return c.stats ? 2 * channel_sum_rows(c) * my_channels(c.tile) * 4 : 0;
}
// A block's parts of a channel's sums: of each consumer, but where these share a tile's channels.
FALTUNG_BOTH constexpr int channel_sum_parts(const Choices& t) {
  return t.cooperative() && !t.pixels_on_m() ? 1 : kConsumers;
}

// ------------------------------------------------------------------------------------- shifted sums

namespace shift {

// Where there are several windows, stored ones end 16 pixels later than computed ones: aligned, and what
// awaits its left neighbour is not yet stored.
constexpr int kLag = 16;

FALTUNG_BOTH constexpr int lag(const KernelConfig& c) { return c.walks ? kLag : 0; }
FALTUNG_BOTH constexpr int rows(const KernelConfig& c) { return c.tile.height / kConsumers; }  // a consumer's
FALTUNG_BOTH constexpr int shrink(const KernelConfig& c) { return c.pooling == Pooling::none ? 1 : 2; }
// In bulk a residual comes into the places of the results; that of the first columns, whose places are taken,
// apart.
FALTUNG_BOTH constexpr bool brings_residual(const KernelConfig& c) { return c.residual && c.mapped; }

// The staging area. In bulk a window as the copy engine stores it, and aside what the next one stores. Else
// for each row and channel a ring of the width and the lag: rows of an odd number of 16 bytes, so that those
// of neighbouring channels begin in other banks.
FALTUNG_BOTH constexpr int main_bytes(const KernelConfig& c) {
  return rows(c) * c.tile.channels * c.tile.width * 2;
}
FALTUNG_BOTH constexpr int aside_bytes(const KernelConfig& c) {
  return rows(c) * c.tile.channels * lag(c) * 2;
}
FALTUNG_BOTH constexpr int ring_groups(const KernelConfig& c) {
  return (c.tile.width + lag(c)) / 8;
}  // of 8 pixels
FALTUNG_BOTH constexpr int group_bytes(const KernelConfig& c) { return 16 / shrink(c); }
FALTUNG_BOTH constexpr int pitch(const KernelConfig& c) {
  return (ring_groups(c) * group_bytes(c) / 16 | 1) * 16;
}
FALTUNG_BOTH constexpr int staging_bytes(const KernelConfig& c) {
  return c.mapped ? main_bytes(c) + aside_bytes(c) * (brings_residual(c) ? 2 : 1)
                  : rows(c) / shrink(c) * c.tile.channels * pitch(c);
}

// What is carried between windows, by the 32 threads of a consumer that hold the first columns: pairs of two
// sums that await the left neighbour's, and for each tap that looks to the right two of its own.
FALTUNG_BOTH constexpr int taps_to_the_right(const KernelConfig& c) {
  return c.s - 1 - c.pad_left / c.dilation_w;
}
FALTUNG_BOTH constexpr int carried_pairs(const KernelConfig& c) {
  return 1 + (taps_to_the_right(c) > 0 ? taps_to_the_right(c) : 0);
}
FALTUNG_BOTH constexpr int carry_bytes(const KernelConfig& c) {
  return c.walks ? rows(c) * 2 * carried_pairs(c) * 32 * 8 : 0;
}

}  // namespace shift

// -------------------------------------------------------------------------------------------- all of it

// Of one of a consumer's areas.
FALTUNG_BOTH constexpr int staging_bytes(const KernelConfig& c) {
  long long bytes = 0;
  switch (c.way) {
    case Way::bulk:
    case Way::planes:
      bytes = 1LL * unit_bytes(c) * staged_units(c);
      break;
    case Way::rows:
      bytes = 1LL * my_channels(c.tile) * channel_pitch(c);
      break;
    case Way::values:
      bytes = c.nchw ? 1LL * my_channels(c.tile) * channel_pitch(c) : 1LL * unit_bytes(c) * staged_units(c);
      break;
    case Way::images:
      bytes = 1LL * my_channels(c.tile) * c.tile.pixels() * c.element_bytes();
      break;
    case Way::shift:
      bytes = shift::staging_bytes(c);
      break;
    case Way::pairs:
    case Way::direct:
    case Way::plain:
    case Way::split:
      break;
  }
  return static_cast<int>(aligned(bytes, kAlignment));
}

FALTUNG_BOTH constexpr int barriers(const KernelConfig& c) {
  const Choices& t = c.tile;
  if (t.bring == Bring::shift)
    return 2 * (t.pixel_slots + c.weight_buffers()) + (shift::brings_residual(c) ? kConsumers : 0);
  return (c.prepares() ? 3 : 2) * t.pixel_slots + 2 * c.weight_buffers() + kConsumers * t.result_areas +
         2 * t.row_slots;
}

FALTUNG_BOTH constexpr long long shared_bytes(const KernelConfig& c) {
  const int carry = c.tile.bring == Bring::shift ? shift::carry_bytes(c) : 0;
  return operand_bytes(c) +
         kConsumers * (c.tile.result_areas * staging_bytes(c) + channel_sum_bytes(c) + carry) +
         8 * barriers(c) + kSlack;
}

// A tile whose sum the blocks of a cluster share: its sums lie in lines as the output has them, of pixels
// (NCHW) or of channels; in words a little longer, so that eight rows of a matrix of sums begin in other
// banks.
FALTUNG_BOTH constexpr int split_line(const KernelConfig& c) {
  return c.nchw ? c.tile.pixels() : c.tile.channels;
}
FALTUNG_BOTH constexpr int split_lines(const KernelConfig& c) {
  return c.nchw ? c.tile.channels : c.tile.pixels();
}
// A thread's pairs of sums lie along the lines.
FALTUNG_BOTH constexpr bool split_along(const KernelConfig& c) { return c.tile.pixels_on_m() != c.nchw; }
FALTUNG_BOTH constexpr int split_pitch(const KernelConfig& c) {
  return split_line(c) + (split_along(c) ? 8 : 4);
}
FALTUNG_BOTH constexpr long long split_bytes(const KernelConfig& c) {
  return 4LL * split_lines(c) * split_pitch(c);
}

}  // namespace faltung::sm90
