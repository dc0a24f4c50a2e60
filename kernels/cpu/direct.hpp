// Direct convolution: the sums as they are defined, vectors of pixels or of channels, nothing packed and
// nothing staged.
#ifndef FALTUNG_KERNELS_CPU_DIRECT_HPP_
#define FALTUNG_KERNELS_CPU_DIRECT_HPP_

#include <cstdint>
#include <vector>

#include "kernels/cpu/depthwise.hpp"
#include "src/problem/problem.hpp"

namespace faltung {

// forward or backward_data as sliding sums; see Slide. "Output" is what the pass writes, "input" what it
// slides over and sums; weights are addressed by strides in elements.
struct DirectPass {
  Problem problem;
  std::vector<Slide> rows, columns;
  std::int64_t in_channels, in_h, in_w;  // channels: of one group
  std::int64_t out_channels, out_h, out_w;
  std::int64_t weight_group, weight_out, weight_in, weight_row, weight_column;
};

DirectPass make_direct_pass(const Problem& problem);

struct DirectTensors {
  const void* in;
  const void* w;
  void* out;
  const void* bias;
  const void* residual;
  const float* slopes;  // prelu's, or null
};

// Items that can be computed at the same time, in any order.
std::int64_t direct_items(const DirectPass& pass);
void direct_item(const DirectPass& pass, const DirectTensors& tensors, std::int64_t item);
std::int64_t direct_weights_items(const Problem& problem);
void direct_weights_item(const Problem& problem, const void* x, const void* dy, void* dw, std::int64_t item);

// The layouts' parts of direct_item: an output row of an image, in nchw of a few channels.
inline constexpr int kDirectChannels = 4;
void direct_nchw_row(const DirectPass& pass, const DirectTensors& tensors, std::int64_t image,
                     std::int64_t group, std::int64_t channel, std::int64_t row);
void direct_nhwc_row(const DirectPass& pass, const DirectTensors& tensors, std::int64_t image,
                     std::int64_t row);

// The taps of a slide's output t that see the inside of the input: [begin, end).
struct TapRange {
  std::int64_t begin, end;
};
inline TapRange taps_inside(const Slide& s, std::int64_t t) {
  const std::int64_t first = t * s.stride + s.origin, left = s.size - 1 - first;
  const std::int64_t begin = first < 0 ? (-first + s.spacing - 1) / s.spacing : 0;
  const std::int64_t end = left < 0 ? 0 : left / s.spacing + 1;
  return {begin < s.taps ? begin : s.taps, end < s.taps ? end : s.taps};
}

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_DIRECT_HPP_
