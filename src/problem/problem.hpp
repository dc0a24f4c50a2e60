// What a problem means beyond its fields: names, tensor shapes and strides, arithmetic and bytes. Knows no
// device.
#ifndef FALTUNG_SRC_PROBLEM_PROBLEM_HPP_
#define FALTUNG_SRC_PROBLEM_PROBLEM_HPP_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung {

const char* name(Direction direction);
const char* name(DType dtype);
const char* name(Layout layout);
const char* name(Math math);
const char* name(Activation activation);
const char* name(ConvolutionKind kind);
const char* name(PoolKind kind);
const char* name(Training training);
const char* name(Affine affine);

// Whether it has a parameter, written in brackets.
inline bool takes_slope(Activation a) { return a == Activation::leaky_relu || a == Activation::hardsigmoid; }
// Whether it has one of each output channel, in a tensor.
inline bool has_slopes(const Problem& p) { return p.epilogue.activation == Activation::prelu; }
// An activation with its numbers, as kernels/common/epilogue_ops.inc has them; of prelu a is the channel's.
struct ActivationCall {
  Activation kind = Activation::none;
  float a = 0, b = 0;
  bool operator==(const ActivationCall&) const = default;
};
inline ActivationCall activation_of(const Epilogue& e) {
  if (e.activation == Activation::clip) return {e.activation, e.clip.least, e.clip.most};
  return {e.activation, e.slope};
}
inline void set_activation(Epilogue& e, const ActivationCall& activation) {
  e.activation = activation.kind;
  if (takes_slope(activation.kind)) e.slope = activation.a;
  if (activation.kind == Activation::clip) e.clip = {activation.a, activation.b};
}
// Every activation, in the order of the enum, which is that of the operations' list.
inline constexpr Activation kActivations[] = {
#define FALTUNG_ACTIVATION(op, value) Activation::op,
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
};

// The math class a problem of this dtype has unless it says otherwise.
Math default_math(DType dtype);
// The problem with its math said.
Problem with_math(Problem problem);

// One spatial dimension of a problem.
struct Dimension {
  char input_letter, filter_letter;  // d and t, h and r, w and s
  const char *stride_name, *before_name, *after_name, *dilation_name;
  std::int64_t in, filter, stride, dilation, before, after, output_pad;
};
// Those that the problem has, the outermost first.
std::vector<Dimension> spatial_dimensions(const Problem& problem);
// The convolution's output along them. The problem must be valid.
std::vector<std::int64_t> spatial_output(const Problem& problem);
// The same, but where a dimension has one output its stride is the smallest that leaves it so: nobody reads
// what lies on the way to a next one. Adjoint directions keep theirs: they are as many sums as a stride
// (phases).
Problem without_unused_strides(Problem problem);

inline bool is_transposed(const Problem& p) { return p.kind == ConvolutionKind::transposed; }
// Of two dimensions, and no transposed one: what every algorithm knows.
inline bool is_plain(const Problem& p) { return p.dimensions == 2 && !is_transposed(p); }
// Whether the direction scatters what it reads, as backward_data does.
inline bool is_adjoint(const Problem& p) {
  return is_transposed(p) ? p.direction == Direction::forward : p.direction == Direction::backward_data;
}
// Sums of their own that such a direction is, one for each remainder of an index that it writes by the
// strides; 1 of the others. In doubles, which do not overflow.
double phases(const Problem& problem);
// Whether the taps walk over x; else over y's gradient.
inline bool walks_over_x(const Problem& p) {
  return is_transposed(p) ? p.direction == Direction::forward : p.direction != Direction::backward_data;
}
// The convolution from a transposed one's output to its input, over the same filter: its y is their x. What
// the transposed one computes is its backward_data, forward or backward_weights; the epilogue is left out.
Problem convolution_of(const Problem& transposed);

// An element of a tensor: n c d h w of x, n k z p q of y, k c t r s of the filter.
struct Position {
  std::int64_t n, c, d, h, w;
};

// A tensor: sizes by letter, strides in elements. Of one and two dimensions d is 1.
struct TensorShape {
  std::int64_t n, c, h, w;
  std::int64_t stride_n, stride_c, stride_h, stride_w;
  std::int64_t d = 1, stride_d = 0;
  std::int64_t elements() const { return n * c * d * h * w; }
  // From the first element to the last in memory, with what a slice leaves out between.
  std::int64_t extent() const {
    return (n - 1) * stride_n + (c - 1) * stride_c + (d - 1) * stride_d + (h - 1) * stride_h +
           (w - 1) * stride_w + 1;
  }
  std::int64_t offset(std::int64_t in, std::int64_t ic, std::int64_t ih, std::int64_t iw) const {
    return in * stride_n + ic * stride_c + ih * stride_h + iw * stride_w;
  }
  std::int64_t offset(const Position& i) const { return offset(i.n, i.c, i.h, i.w) + i.d * stride_d; }
  // Of the i-th element in the letters' order, whatever the layout.
  Position position(std::int64_t i) const {
    return {i / (c * d * h * w), i / (d * h * w) % c, i / (h * w) % d, i / w % h, i % w};
  }
};

TensorShape make_shape(Layout layout, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w);
TensorShape make_shape(Layout layout, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h,
                       std::int64_t w);
TensorShape x_shape(const Problem& problem);
// The filter: n is K, c is C/groups (C and K/groups of a transposed convolution's), d is T, h is R, w is S.
TensorShape w_shape(const Problem& problem);
// The convolution's output before pooling; the shape of the residual.
TensorShape conv_shape(const Problem& problem);
// y: the convolution's output after pooling.
TensorShape y_shape(const Problem& problem);
// How many sums of each output channel training has: 0 where it has none.
inline std::int64_t sums_of_channel(const Problem& p) {
  return p.training == Training::stats ? 2 : p.training == Training::dbias ? 1 : 0;
}
inline bool has_affine(const Problem& p) { return p.affine != Affine::none; }
// The convolution of what comes of x, which lies whole.
inline Problem without_affine(Problem p) {
  if (has_affine(p)) p.x_pitch = 0;
  p.affine = Affine::none;
  return p;
}
// y as the direction has it: what sums are taken over.
TensorShape summed_shape(const Problem& problem);
// Of the tensor as a caller has it: y after pooling. Elements of the problem's dtype, but of the sums, of a
// bias of its own, of the scale and the shift, and of slopes.
TensorShape shape_of(const Problem& problem, Tensor tensor);
// What the direction writes: y, x or w.
TensorShape result_shape(const Problem& problem);
void* result_pointer(const Problem& problem, const Tensors& tensors);

// Of the bias's elements.
inline DType bias_dtype(const Problem& p) {
  return p.epilogue.bias_element == BiasElement::f32 ? DType::f32 : p.dtype;
}

// What it takes in memory, with what lies between a slice's parts.
std::int64_t bytes_of(const Problem& problem, const TensorShape& shape);

// The arithmetic of the direct algorithm, two operations a multiply-add: what rates are quoted in.
double flops(const Problem& problem);
// Every input read once, every result written once.
double min_bytes(const Problem& problem);
// The fewest bytes that must cross memory: min_bytes less the pixels of x that are only read and that no tap
// reaches, three quarters of the image under a 1x1 filter with strides of 2.
double touched_bytes(const Problem& problem);
// How many products are summed into one element of the result.
std::int64_t reduction_length(const Problem& problem);

// Whether x or y is a slice of a tensor of more channels.
inline bool has_pitch(const Problem& p) { return p.x_pitch != 0 || p.y_pitch != 0; }
// Channels of the tensors that x and y lie in.
inline std::int64_t x_pitch(const Problem& p) { return p.x_pitch != 0 ? p.x_pitch : p.c; }
inline std::int64_t y_pitch(const Problem& p) { return p.y_pitch != 0 ? p.y_pitch : p.k; }
// A slice in memory: contiguous runs of so many bytes, a period apart.
struct Runs {
  std::int64_t bytes, period;
};
Runs runs_of(const Problem& problem, const TensorShape& shape);

inline bool is_depthwise(const Problem& p) { return p.groups > 1 && p.groups == p.c; }

// Throws Error(bad_problem) unless every pointer that the direction and the epilogue need is there.
void check_pointers(const Problem& problem, const Tensors& tensors, bool weights_are_packed);

}  // namespace faltung

#endif  // FALTUNG_SRC_PROBLEM_PROBLEM_HPP_
