// What to_nhwc.cuh is told of a tensor, as the host passes and the kernels read it.
#pragma once

namespace faltung::sm90 {

struct Turned {
  const void* from;
  void* to;
  int c, c_to;       // channels, and those of a pixel behind
  int pixels, tile;  // of an image; those that a block turns (of whole planes: channels)
  int plane;         // elements from a channel to the next
  // With steps: pixels that are taken of a row; elements from such a row to the next. kDeep: rows of each
  // plane, and elements from a plane that is taken to the next.
  int columns, down, rows, deep;
  int blocks;
};

}  // namespace faltung::sm90
