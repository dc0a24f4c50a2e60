// The kernels' arguments beside the copy engine's maps, as the host passes and the kernels read them.
#pragma once

#include "kernels/sm90/depths.h"

namespace faltung::sm90 {

// A strided backward_data, seen as forward: the results at one position within a stride are a dense
// convolution with some of the filter's taps.
struct Phase {
  int first_tile, tiles_w, tiles_h;  // the tiles of an image, or of a volume's plane
  int taps, columns;                 // all of them; those of a row. None: the results are zero
  int tap, tap_down, tap_across;     // of the filter: the first one, from a row to the next, from a column
  int top, left;                     // of the input, where the first result's first tap reads
  int p, q;                          // results
  int h, w;                          // where the first one lies in the output: the host's alone
  // Of volumes: results and what they read; taps in depth, each with all of the others; from one to the next
  // in the filter.
  Depth depth;
  int depths, tap_deep;
  int d;  // of the first result, as h and w
};
constexpr int kMostPhases = 8;

// Of implicit_gemm.
struct Params {
  const void* bias;
  const float* slopes;   // prelu's
  const void* residual;  // where the copy engine does not bring it
  void* y;               // where the copy engine does not store
  int k, p, q;           // output channels, height, width (before pooling)
  int pixels;            // n p q; of volumes n z p q
  int tiles, k_tiles, c_blocks;
  int tiles_w, tiles_h;  // of an image; planes: tiles_w of a plane
  int pad_top, pad_left, stride_h, stride_w;
  float slope;
  const void* x;              // NCHW, where warps read it without a map
  int c, h, w;                // of x
  int group_k, group_c;       // channels of a group
  int step;                   // flat: from a tile's first pixel to the next one's
  unsigned per_image;         // 2^32 over the pixels of an image or a volume, rounded up
  int y_pitch;                // NHWC: channels of the tensor that y and the residual lie in
  Phase phases[kMostPhases];  // those with most taps first
  int bias_k;                 // phases: channels of the bias, which repeats
  Depth depth;                // volumes
  int weights_rest;           // no kernel that may still run writes them
  int asks_ahead;             // pixels are asked for before x may be read
  float* channel_sums;        // [parts][2][k]: of results and of their squares
  const float* scale;         // of x's channels,
  const float* shift;         //   which are read through them
};

// Of shift_gemm.
struct ShiftParams {
  const void* bias;
  const float* slopes;
  const void* residual;
  void* y;
  int k, p, q;           // output channels, height, width (before pooling)
  int group_k, group_c;  // channels of a group
  int strips, k_tiles, c_blocks;
  int windows, tiles_h;  // of a strip, of an image
  int pad_top;
  float slope;
  Depth depth;  // volumes
};

// Of shift_gemm: the output's rows and the residual's, as windows and as what is stored aside. Map: the
// driver's description of a tensor, TensorMap.
template <class Map>
struct ShiftMaps {
  Map y, y_aside, residual, residual_aside;
};

}  // namespace faltung::sm90
