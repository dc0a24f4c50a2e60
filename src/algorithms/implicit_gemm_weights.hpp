// Implicit GEMM of backward_weights: the sum runs over pixels.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_WEIGHTS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_WEIGHTS_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/brgemm.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"

namespace faltung {

// dw[tap, c, k] = sum over pixels of x[pixel at tap, c] * dy[pixel, k]. A register tile's rows are input
// channels, its columns output channels; both gradients are staged a block of pixels at a time, dy with the
// output channels contiguous.
//
// Blocks of weights are independent. Where there are too few for the workers, the pixels are divided too, and
// the partial sums added in a fixed order afterwards.
class WeightsGradient {
 public:
  WeightsGradient(const Problem& problem, TileShape tile, int threads);

  // x, and what its elements go through.
  struct Input {
    const void* data;
    InputAffine affine;
  };

  std::int64_t items() const { return blocks() * pixel_parts_.parts(); }
  void run(std::int64_t item, const Input& x, const void* dy, void* dw, std::byte* scratch,
           float* partial) const;
  // Where pixels are divided: to be run for each of blocks() once all items are done.
  bool has_partial_sums() const { return pixel_parts_.parts() > 1; }
  std::int64_t blocks() const { return t_.groups * tap_parts_.parts() * c_parts_.parts() * k_parts_.parts(); }
  void reduce(std::int64_t block, void* dw, std::byte* scratch, const float* partial) const;

  // The partial sums, and then each worker's scratch.
  std::size_t partial_bytes() const;
  std::size_t scratch_bytes() const;
  double work_ns() const;  // of all items on one core, by the cost model

 private:
  struct Block {
    std::int64_t group, tap0, taps, c0, c, k0, k;
  };
  // Some rows and columns of one image's output.
  struct Pixels {
    std::int64_t image, row0, rows, column0, columns;
  };
  // Taps [first, end) of a block, which read one plane of x.
  struct PlaneTaps {
    std::int64_t first, end, plane;
  };
  // A worker's copies of them from both gradients, and a segment for each row.
  struct Staged {
    float *x, *dy;
    BrgemmSegment* segments;
  };

  // What the next pixels read of both gradients.
  struct Ahead {
    Prefetch x, dy;
  };

  Block block(std::int64_t index) const;
  Pixels pixels(std::int64_t unit) const;
  std::int64_t units() const { return t_.images() * rows_.parts() * columns_.parts(); }
  std::int64_t channels() const { return std::min(c_parts_.largest() * c_unit_, t_.in_channels); }
  std::int64_t block_floats() const;
  std::int64_t x_floats() const;
  std::int64_t dy_floats() const;
  Ahead ahead(const Block& block, const Pixels& next, const void* x, const void* dy) const;
  void add_pixels(const Block& block, const Pixels& pixels, const Input& x, const void* dy, bool first,
                  const Staged& staged, Ahead& ahead, float* sums) const;
  // Distances in a staged x, in floats.
  struct Strides {
    std::int64_t channel, pixel, row;
  };
  Strides stage_input(const Block& block, const Pixels& pixels, std::int64_t plane, const Input& x,
                      float* to) const;
  // Rows and columns of x that so many of the output read, as they are staged.
  std::int64_t x_rows(std::int64_t rows) const { return (rows - 1) * step_h() + t_.extent_h(); }
  std::int64_t x_columns(std::int64_t columns) const { return (columns - 1) * step_w() + t_.extent_w(); }
  // Of a lone tap the pixels between those that are read are left out.
  bool lone() const { return t_.taps.size() == 1 && !t_.padded(); }
  std::int64_t step_h() const { return lone() ? 1 : t_.step_h; }
  std::int64_t step_w() const { return lone() ? 1 : t_.step_w; }
  bool reads_in_place() const;
  bool joins_taps() const;
  static std::int64_t channel_floats(std::int64_t pixels);
  std::int64_t stage_floats(std::int64_t rows, std::int64_t columns) const;
  void stage_gradient(const Block& block, const Pixels& pixels, const void* dy, const Staged& staged) const;
  void add_plane(const Block& block, const Pixels& pixels, const PlaneTaps& taps, const Input& x, bool first,
                 const Staged& staged, Ahead& ahead, float* sums) const;
  void write(const Block& block, const float* sums, void* dw) const;

  Problem p_;
  TapConvolution t_;  // the forward convolution's; a transposed one's is over the gradient
  TileShape tile_;
  int lanes_ = 1;
  std::int64_t k_stride_ = 0;  // of sums and staged dy, padded to whole vectors
  std::int64_t c_stride_ = 0;  // of staged x in nhwc: a pixel's channels, spread over all of the cache
  std::int64_t c_unit_ = 1;
  std::int64_t joined_ = 1;                  // neighbouring taps whose channels are the rows of one product
  EvenSplit tap_parts_, c_parts_, k_parts_;  // c_parts_ of units
  EvenSplit rows_, columns_;                 // of the output, blocks that are staged at once
  EvenSplit pixel_parts_;                    // of units
};

Recipe weights_recipe(const Problem& problem, const std::shared_ptr<const WeightsGradient>& gradient,
                      std::size_t workspace_bytes);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_WEIGHTS_HPP_
