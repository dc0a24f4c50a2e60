// How weights_gradient_runs.cu finds rows of the output's gradient whose bytes are no multiple of 16; the
// host computes the same.
//
// A plane is one run of pixels, row behind row, of which the copy engine brings boxes that begin at a
// multiple of 16 bytes: a row lies in its box up to 15 bytes further on, alike in every channel. Where planes
// are no such multiples either, so many channels together are one; the map has each of them begin at the
// multiple below, so that its pixels lie `late` further on than those of the channel before.
#pragma once
#include "kernels/sm90/weights_gradient_config.h"

namespace faltung::weights_gradient_sm90 {

FALTUNG_BOTH constexpr int chunk_pixels(const Config& c) { return 16 / c.element_bytes(); }

// Of planes of so many pixels.
FALTUNG_BOTH constexpr int late_by(const Config& c, long long plane) {
  return static_cast<int>(plane % chunk_pixels(c));
}
FALTUNG_BOTH constexpr int channels_together(const Config& c, int late) {
  return chunk_pixels(c) / common_divisor(chunk_pixels(c), late);
}

// By how many pixels a row lies further on in its box than one that begins at 16 bytes; tiles begin there in
// a row. Rows are whole words of 4 bytes, and so is this.
FALTUNG_BOTH constexpr int row_shift(const Config& c, int row, int row_pixels) {
  return (row * row_pixels) & (chunk_pixels(c) - 1);
}
// In a plane, of the box of a tile that begins at `column`; negative before the first row.
FALTUNG_BOTH constexpr int box_start(const Config& c, int row, int row_pixels, int column) {
  return row * row_pixels - row_shift(c, row, row_pixels) + column - lead(c);
}
// In its box, in bytes, of a row without shift: of an output channel the pixel that is so many behind the
// tile's first column, or before it.
FALTUNG_BOTH constexpr int place_in_box(const Config& c, int late, int channel, int pixel) {
  const int on = channel % channels_together(c, late) * late;
  return channel * line_pitch(c) + (lead(c) + pixel + on) * c.element_bytes();
}
// A load of a warp has eight channels' words 0 to 3, by four lanes each, another one their words 4 to 7.
// Where every second channel lies two words further on, half of its words would be in its neighbours' banks:
// of those channels the first load has words 0, 1, 6 and 7, which lie where the others' 4 to 7 do, and the
// second one the rest.
FALTUNG_BOTH constexpr bool crosses(const Config& c, int late) { return late * c.element_bytes() == 8; }
FALTUNG_BOTH constexpr int word_of_lane(bool crossed, int lane, int load) {
  const bool other = crossed && lane / 4 % 2 == 1 && lane % 4 >= 2;
  return lane % 4 + (other ? 1 - load : load) * 4;
}
// That the last pixel has its place in each channel's row of the box.
FALTUNG_BOTH constexpr bool fits_box(const Config& c, int late, int row_pixels) {
  const int most_shift = chunk_pixels(c) - common_divisor(chunk_pixels(c), row_pixels);
  const int most_late = (channels_together(c, late) - 1) * late;
  return most_shift + most_late + lead(c) + c.width + c.pad_left + 1 <= line_pixels(c);
}

}  // namespace faltung::weights_gradient_sm90
