// Parts of an image copied to where a kernel reads them best: as floats, with the padding's zeros in place.
#ifndef FALTUNG_KERNELS_CPU_STAGE_HPP_
#define FALTUNG_KERNELS_CPU_STAGE_HPP_

#include <cstdint>

#include "kernels/cpu/affine.hpp"

namespace faltung {

// A patch of one image: rows [row0, row0 + rows) and columns [column0, column0 + columns) of an image of
// height * width pixels, whose pixels outside of the image are zero.
struct StageCall {
  DType dtype = DType::f32;
  const void* from = nullptr;  // the image's first pixel, at the first channel wanted
  std::int64_t from_row_stride = 0;
  std::int64_t height = 0, width = 0;
  std::int64_t row0 = 0, rows = 0, column0 = 0, columns = 0;
  std::int64_t channels = 0;
  float* to = nullptr;
  InputAffine affine = {};  // of the channels wanted: what the image's pixels go through
};

// nhwc: to[row][column][channel], to_pixel floats from one pixel to the next, of which channels are written,
// and to_row from one row to the next. from_pixel is the image's.
void stage_pixels(const StageCall& call, std::int64_t from_pixel, std::int64_t to_row, std::int64_t to_pixel);

// nchw: row i, column j of the patch go to phase (i % step_h, j % step_w), in which they are row i / step_h,
// column j / step_w: a convolution with these steps reads each tap from neighbouring elements.
// to[channel][phase h][phase w][row][column]; strides in floats. Only the first phases_h * phases_w are
// wanted. Each is written whole, as many rows as the first has and `row` columns in each: a vector that goes
// beyond a row's end multiplies what is there.
struct PhaseStrides {
  std::int64_t step_h, step_w, phases_h, phases_w;
  std::int64_t channel, phase, row;  // phase: from one to the next
};
void stage_planes(const StageCall& call, std::int64_t from_channel, const PhaseStrides& to);

// nchw: `columns` contiguous floats of each channel to tiles of `width` of them, a whole number of vectors,
// in which a channel follows the other: to[tile][channel][width], tiles tile_floats apart. Columns of the
// last tile beyond the last are zero.
struct TileStageCall {
  const float* from = nullptr;
  std::int64_t from_channel = 0, channels = 0, columns = 0;
  float* to = nullptr;
};
void stage_tiles(const TileStageCall& call, std::int64_t width, std::int64_t tile_floats);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_STAGE_HPP_
