// What implicit GEMM makes of a forward or backward_data problem: convolutions over a list of taps.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"

namespace faltung {

// A filter element (t, r, s), and how far from an output's input position it reads.
struct Tap {
  std::int64_t h, w, r, s;
  std::int64_t d = 0, t = 0;
};

// out[n, k, out_d0 + l * out_step_d, out_h0 + i * out_step_h, out_w0 + j * out_step_w] =
//     sum over taps, c of in[n, c, l * step_d + tap.d, i * step_h + tap.h, j * step_w + tap.w] * filter[tap,
//     c, k]
// for l in [0, depths), i in [0, rows), j in [0, columns), with zeros outside of in. Within each group alike;
// channels count those of one group, shapes those of all. Images are counted with their depths: each output
// plane is one, and reads as many input planes as its taps have depths.
struct TapConvolution {
  std::int64_t groups, in_channels, out_channels;
  std::int64_t rows, columns;
  std::int64_t image_rows;  // rows, unless these are a band that is computed anywhere among so many
  std::int64_t step_h, step_w;
  std::int64_t out_h0, out_w0, out_step_h, out_step_w;
  std::vector<Tap> taps;  // in ascending order of d, then h, then w; none: the result is zero
  TensorShape in, out;
  std::int64_t depths = 1, step_d = 1, out_d0 = 0, out_step_d = 1;
  // Output channels are of so many neighbouring columns in turn: those of the i-th are for i columns further
  // on, by taps whose s is further on by i, and zero where the filter has none.
  std::int64_t column_phases = 1;

  // The least offsets of taps, and the input rows and columns that one output's taps span; 0 and 1 without
  // any. Set with set_taps.
  std::int64_t min_h() const { return min_h_; }
  std::int64_t min_w() const { return min_w_; }
  std::int64_t extent_h() const { return extent_h_; }
  std::int64_t extent_w() const { return extent_w_; }
  // Whether some output reads outside of in.
  bool padded() const;

  std::int64_t images() const { return in.n * depths; }
  // The depths of taps, each once and ascending: the planes that an output's taps span.
  const std::vector<std::int64_t>& planes() const { return planes_; }
  // Which of them a tap reads.
  std::int64_t plane_of(const Tap& tap) const;
  // The input depth that an image's plane lies at; it may be outside.
  std::int64_t depth_of(std::int64_t image, std::int64_t plane) const {
    return image % depths * step_d + planes_[static_cast<std::size_t>(plane)];
  }
  // Taps that read padding alone need not be multiplied with. Of taps in one plane, in their order, those
  // that read a row inside of `in` for an output row of the image: [first, end). All where taps span several
  // planes.
  struct TapRange {
    std::int64_t first, end;
  };
  TapRange taps_inside(std::int64_t row) const;
  bool depth_inside(std::int64_t image, const Tap& tap) const {
    const std::int64_t depth = image % depths * step_d + tap.d;
    return depth >= 0 && depth < in.d;
  }
  bool padded_in_depth() const {
    return planes_.front() < 0 || (depths - 1) * step_d + planes_.back() >= in.d;
  }
  // The share of all outputs' taps that is left, of all rows and of all depths.
  double share_of_rows() const;
  double share_of_depths() const;
  // Offsets in the tensors, in elements.
  std::int64_t in_offset(std::int64_t image, std::int64_t depth, std::int64_t c, std::int64_t h,
                         std::int64_t w) const {
    return in.offset({image / depths, c, depth, h, w});
  }
  std::int64_t out_offset(std::int64_t image, std::int64_t k, std::int64_t row, std::int64_t column) const {
    return out.offset({image / depths, k, out_d0 + image % depths * out_step_d, out_h0 + row * out_step_h,
                       out_w0 + column * out_step_w});
  }

  void set_taps(std::vector<Tap> in_any_order);
  // The filter elements of taps, in their order, in words.
  std::string tap_words() const;

  std::int64_t min_h_ = 0, min_w_ = 0, extent_h_ = 1, extent_w_ = 1;
  std::vector<std::int64_t> planes_ = {0};
};

// Forward: one. backward_data, and forward of a transposed convolution: one for each position within a
// stride, over what is read; together they write all of the result.
std::vector<TapConvolution> tap_convolutions(const Problem& problem);

// The same, with those that differ in the columns they write alone as one: they read the same, and a register
// tile has as many rows. Empty where there are none such.
std::vector<TapConvolution> with_joined_columns(const Problem& problem,
                                                const std::vector<TapConvolution>& convolutions);

// Those that write neighbouring columns in turn, by these; empty unless each column of a stride's is
// somebody's.
std::vector<std::vector<TapConvolution>> by_columns(const std::vector<TapConvolution>& convolutions);

// If it is a product of matrices (1x1, dense), the same with images' pixels in one row: in nhwc all images'
// in one, in nchw each image's in its own.
TapConvolution flattened(const TapConvolution& convolution, Layout layout);

// If it is a strided 1x1 that writes all of its result in order, the same without a stride: over the pixels
// that it reads, as a tensor of their own, whose pixels and rows lie that much further apart. Else nothing.
std::optional<TapConvolution> without_stride(const TapConvolution& convolution);

// The weight of tap between input channel c and output channel k of a group, in a tensor of w_shape(problem):
// its offset in elements is base + c * c_stride + k * k_stride.
struct FilterView {
  std::int64_t base, c_stride, k_stride;
};
FilterView filter_view(const Problem& problem, const Tap& tap, std::int64_t group);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_
