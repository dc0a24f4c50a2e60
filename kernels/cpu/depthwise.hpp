// Depthwise convolution: every output channel is a sliding sum over one input channel (or, for backward_data
// with a channel multiplier, over a few).
#ifndef FALTUNG_KERNELS_CPU_DEPTHWISE_HPP_
#define FALTUNG_KERNELS_CPU_DEPTHWISE_HPP_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/affine.hpp"
#include "src/problem/problem.hpp"
#include "src/problem/slide.hpp"

namespace faltung {

// How a plane of nchw is staged in scratch memory; see depthwise_nchw.cpp. Sizes in floats where not said
// otherwise.
struct DepthwiseStage {
  std::int64_t strip;          // steps of the row slides that a strip computes
  std::int64_t top, left;      // input row (of the first strip) and column that are staged first
  std::int64_t rows, columns;  // staged of one plane
  std::int64_t phases, phase;  // columns are sorted by their remainder: how many, and the size of one
  std::int64_t pitch, plane;   // of a row and of a plane
  std::int64_t in_size, out_size;
  std::vector<std::int64_t> offsets;  // within a row, of each column slide's taps in turn
};

// forward or backward_data of a problem whose groups equal its input channels. "Output" is what the pass
// writes, "input" the tensor that it slides over.
struct DepthwisePass {
  Problem problem;
  std::vector<Slide> rows, columns;
  std::int64_t column_taps;  // of all column slides
  std::int64_t multiplier;   // K / C
  std::int64_t in_channels, in_h, in_w;
  std::int64_t out_channels, out_h, out_w;
  DepthwiseStage stage;  // nchw
  // nchw by planes turned to pixels (depthwise_turned.cpp): as nhwc in fp32, of one image, the pass of a
  // group of channels and that of the channels beyond whole groups, if there are such. Else empty.
  std::vector<DepthwisePass> turned;
  // Of the taps of an output channel's filters, in packed order, where each lies among them.
  std::vector<std::int64_t> order;
  // How many input channels are summed into an output channel: 1, or the multiplier in backward_data.
  std::int64_t planes() const { return problem.direction == Direction::forward ? 1 : multiplier; }
};

// How the pass computes what it does: along the layout's own vectors, or in nchw by planes turned to pixels.
enum class DepthwiseWay { rows, turned };
// The latter takes passes without a channel multiplier.
DepthwisePass make_depthwise_pass(const Problem& problem, DepthwiseWay way = DepthwiseWay::rows);

// Packed channels are padded to this many floats: a whole number of vectors of any width. So many planes are
// turned to pixels at a time.
inline constexpr std::int64_t kDepthwiseGroup = 32;

// Weights as the kernels read them, in floats: by row slide, column slide, plane, row tap, column tap, and
// then by channel (nhwc, padded to whole vectors of any width) or with the channel first (nchw). Where planes
// are turned each group of channels is as in nhwc.
std::int64_t depthwise_padded_channels(const DepthwisePass& pass);
std::size_t depthwise_packed_bytes(const DepthwisePass& pass);
void depthwise_pack(const DepthwisePass& pass, const void* w, float* packed, int worker, int workers);

// What is to be in the caches soon, beyond what the tensors of a run say: another run's.
struct DepthwiseAhead {
  const void* in = nullptr;
  std::int64_t in_bytes = 0;
  void* out = nullptr;
  std::int64_t out_bytes = 0;
};

struct DepthwiseTensors {
  const void* in;
  void* out;
  const float* packed;
  const void* bias;
  const void* residual;
  const float* slopes = nullptr;  // prelu's
  InputAffine affine = {};        // nchw
};

// Workers share the output's rows (nhwc) or planes (nchw) evenly. scratch: this worker's.
std::size_t depthwise_scratch_bytes(const DepthwisePass& pass);
void depthwise_run(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch, int worker,
                   int workers);

// backward_weights, with the pass of the same problem made as forward. In nhwc each worker leaves its share
// of the sums in its scratch, to be added up once all are done; in nchw each writes the gradient of its
// channels.
std::size_t depthwise_weights_scratch_bytes(const DepthwisePass& pass);
void depthwise_weights(const DepthwisePass& pass, const void* x, const void* dy, const InputAffine& affine,
                       void* dw, std::byte* scratch, int worker, int workers);
void depthwise_weights_reduce(const DepthwisePass& pass, const std::byte* scratch, std::size_t scratch_bytes,
                              void* dw, int worker, int workers);

// The parts of depthwise_run. ahead: null where the tensors lie in memory, whose own next rows are fetched.
void depthwise_nhwc(const DepthwisePass& pass, const DepthwiseTensors& tensors, const DepthwiseAhead* ahead,
                    int worker, int workers);
std::size_t depthwise_turned_scratch_bytes(const DepthwisePass& pass);
void depthwise_turned(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch,
                      int worker, int workers);
void depthwise_nchw(const DepthwisePass& pass, const DepthwiseTensors& tensors, std::byte* scratch,
                    int worker, int workers);

}  // namespace faltung

#endif  // FALTUNG_KERNELS_CPU_DEPTHWISE_HPP_
