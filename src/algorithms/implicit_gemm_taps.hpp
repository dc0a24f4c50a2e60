// What implicit GEMM makes of a forward or backward_data problem: convolutions over a list of taps.
#ifndef FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_
#define FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"

namespace faltung {

// A filter element (r, s), and how far from an output's input position it reads.
struct Tap {
  std::int64_t h, w, r, s;
};

// out[n, k, out_h0 + i * out_step_h, out_w0 + j * out_step_w] =
//     sum over taps, c of in[n, c, i * step_h + tap.h, j * step_w + tap.w] * filter[tap, c, k]
// for i in [0, rows), j in [0, columns), with zeros outside of in. Within each group alike; channels count
// those of one group, shapes those of all.
struct TapConvolution {
  std::int64_t groups, in_channels, out_channels;
  std::int64_t rows, columns;
  std::int64_t image_rows;  // rows, unless these are a band that is computed anywhere among so many
  std::int64_t step_h, step_w;
  std::int64_t out_h0, out_w0, out_step_h, out_step_w;
  std::vector<Tap> taps;  // in ascending order of h, then w; none: the result is zero
  TensorShape in, out;

  // The least offsets of taps, and the input rows and columns that one output's taps span; 0 and 1 without
  // any. Set with set_taps.
  std::int64_t min_h() const { return min_h_; }
  std::int64_t min_w() const { return min_w_; }
  std::int64_t extent_h() const { return extent_h_; }
  std::int64_t extent_w() const { return extent_w_; }
  // Whether some output reads outside of in.
  bool padded() const;

  void set_taps(std::vector<Tap> in_any_order);
  // The filter elements of taps, in their order, in words.
  std::string tap_words() const;

  std::int64_t min_h_ = 0, min_w_ = 0, extent_h_ = 1, extent_w_ = 1;
};

// Forward: one. backward_data: one for each position within a stride, over the output's gradient; together
// they write all of x's gradient.
std::vector<TapConvolution> tap_convolutions(const Problem& problem);

// If it is a product of matrices (1x1, dense), the same with images' pixels in one row: in nhwc all images'
// in one, in nchw each image's in its own.
TapConvolution flattened(const TapConvolution& convolution, Layout layout);

// The weight of tap between input channel c and output channel k of a group, in a tensor of w_shape(problem):
// its offset in elements is base + c * c_stride + k * k_stride.
struct FilterView {
  std::int64_t base, c_stride, k_stride;
};
FilterView filter_view(const Problem& problem, const Tap& tap, std::int64_t group);

}  // namespace faltung

#endif  // FALTUNG_SRC_ALGORITHMS_IMPLICIT_GEMM_TAPS_HPP_
