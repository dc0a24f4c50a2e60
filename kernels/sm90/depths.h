// Of which planes of the input a plane of the output is the sum. Host and kernel compute it here.
#pragma once

#include "kernels/sm90/config.h"

namespace faltung::sm90 {

// Volumes along their depth.
struct Depth {
  int in, out;  // planes
  int pad, stride;
};

// From the first up to the end, without it.
struct Span {
  int first, end;
};

FALTUNG_BOTH constexpr int input_plane(const Depth& d, int plane, int tap, int dilation) {
  return plane * d.stride + tap * dilation - d.pad;
}

// Of so many taps in depth those that reach the input from one of a volume's planes `lowest` to `highest`; at
// least one, which brings zeros where none does. Planes that end in the next volume take them all.
FALTUNG_BOTH constexpr Span taps_between(const Depth& d, int lowest, int highest, int taps, int dilation) {
  if (highest >= d.out) return {0, taps};
  const int missing = -input_plane(d, highest, 0, dilation),
            reach = d.in - 1 - input_plane(d, lowest, 0, dilation);
  int first = missing > 0 ? (missing + dilation - 1) / dilation : 0;
  first = first < taps ? first : taps - 1;
  const int end = reach >= 0 ? reach / dilation + 1 : 0;
  return {first, end <= first ? first + 1 : end < taps ? end : taps};
}

}  // namespace faltung::sm90
