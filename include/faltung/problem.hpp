// What a convolution is: the part of faltung.hpp that says what is asked for, and what it throws.
//
// Letters are CUTLASS's: N C D H W batch and input channels, depth, height, width; K output channels; T R S
// the filter's depth, height and width; Z P Q the output's. Sizes are in elements, times in milliseconds,
// memory in bytes.
#ifndef FALTUNG_PROBLEM_HPP_
#define FALTUNG_PROBLEM_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#define FALTUNG_API __attribute__((visibility("default")))

namespace faltung {

// ---------------------------------------------------------------------------------------------- errors

enum class Status {
  ok = 0,
  bad_problem,    // sizes, text or options that make no sense; the message says what would be right
  unsupported,    // nothing allowed can compute it; the message lists why each algorithm declined
  bad_file,       // a file that cannot be read, written or parsed
  out_of_memory,  // on the device or on the host
  device_error,   // the device or its driver failed
  internal,       // a defect of faltung's own
};

// Every failure is thrown as this. what() is one line: what was wrong, where, and what would be right.
class FALTUNG_API Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  Status status() const noexcept { return status_; }

 private:
  Status status_;
};

// --------------------------------------------------------------------------------------------- problem

enum class Direction { forward, backward_data, backward_weights };
enum class DType { f32, f16, bf16 };

// Memory order of x, y and the residual. The filter follows: nchw has it as K C/groups R S, nhwc as
// K R S C/groups (PyTorch's channels_last). In one and three dimensions the names are the same: nchw is NCW
// and NCDHW, nhwc is NWC and NDHWC.
enum class Layout { nchw, nhwc };

// What the forward direction computes.
//   plain       a convolution
//   transposed  the transpose of one, with the same filter, strides and padding ("deconvolution"): what a
//               convolution from y's shape to x's has as the gradient of its data. The filter is
//               C K/groups T R S, as ONNX and PyTorch have it.
enum class ConvolutionKind { plain, transposed };

// The accuracy that is promised; see docs/accuracy.md for the bounds.
//   f32       as good as an IEEE fp32 dot product, whatever unit computes it
//   tf32      operands may be rounded to 10 bits of mantissa, accumulation is fp32
//   f16 bf16  operands are the tensors' own 16-bit values, accumulation is fp32
//   fast      Winograd and the like allowed beyond the bound of f32, with a bound of their own
//   of_dtype  what the problem's dtype is called: f32, f16 or bf16
enum class Math { f32, tf32, f16, bf16, fast, of_dtype };

enum class Activation {
  none,
  relu,
  relu6,
  leaky_relu,
  sigmoid,
  silu,
  gelu,
  gelu_tanh,
  hardswish,
  hardsigmoid,
  clip,
  prelu
};

// The bounds of Activation::clip.
struct Clip {
  float least = 0.0f, most = 6.0f;
  bool operator==(const Clip&) const = default;
};

// Where a residual comes in.
enum class ResidualOrder { before_activation, after_activation };

enum class PoolKind { none, max, average };

// Pooling of the convolution's output. Average divides by the number of elements inside the image
// (padding is not counted); a window lies at least partly inside.
struct Pool {
  PoolKind kind = PoolKind::none;
  std::int64_t size_h = 1, size_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  bool operator==(const Pool&) const = default;
};

// A bias's elements: of the problem's dtype, or fp32 beside tensors of 16 bits. What a rounded bias errs by
// is the same in all pixels, and averages over them keep it.
enum class BiasElement { as_tensors, f32 };

// What is done to the fp32 accumulator before it is stored, in this order (but see residual_order); forward
// only.
struct Epilogue {
  bool bias = false;      // one value an output channel
  bool residual = false;  // a tensor of the convolution's output shape (before pooling), added
  Activation activation = Activation::none;
  float slope = 0.01f;  // of leaky_relu, and of hardsigmoid: max(0, min(1, slope x + 0.5))
  Clip clip;            // prelu's slopes, one fp32 an output channel, are a tensor
  Pool pool;
  ResidualOrder residual_order = ResidualOrder::before_activation;
  BiasElement bias_element = BiasElement::as_tensors;
  bool operator==(const Epilogue&) const = default;
  bool empty() const { return *this == Epilogue{}; }
};

// What training has around a convolution, one for each direction, beside its result.
//   stats   forward: the sums, and the sums of squares, of y's channels as y is stored, pooled and all: what
//           batch normalization makes its mean and variance of
//   drelu   backward_data: the gradient goes on through the ReLU that gave x: zero where x <= 0, not for NaN
//   dbias   backward_weights: the sums of y's gradient over each output channel, the bias's gradient
// The sums are fp32 whatever the dtype, and the same bits from every run.
enum class Training { none, stats, drelu, dbias };

// What is done to x as it is read, forward and in backward_weights: what a normalization that training has
// before a convolution does to it, so that its result need not be stored.
//   affine       scale[c] * x + shift[c], by one fp32 multiply-add and rounded to x's dtype
//   affine_relu  a ReLU of that
// The padding is zero after it. The gradient of what comes of x is backward_data of the problem without it.
enum class Affine { none, affine, affine_relu };

struct Problem {
  Direction direction = Direction::forward;
  std::int64_t n = 1, c = 1, h = 1, w = 1;
  std::int64_t k = 1, r = 1, s = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t groups = 1;
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  Math math = Math::of_dtype;
  Epilogue epilogue;
  ConvolutionKind kind = ConvolutionKind::plain;
  // Spatial ones: 1 (w alone), 2 (h and w) or 3 (d, h and w). What a dimension that is not there would have
  // is left as it is here.
  int dimensions = 2;
  std::int64_t d = 1, t = 1;
  std::int64_t stride_d = 1, dilation_d = 1;
  std::int64_t pad_front = 0, pad_back = 0;
  // Of a transposed convolution: how much larger the output is than the least that its input comes from;
  // less than the stride.
  std::int64_t output_pad_d = 0, output_pad_h = 0, output_pad_w = 0;
  // Where x, or y and the residual, are a slice of a tensor of more channels: how many that has. It is the
  // distance of neighbouring pixels in nhwc, that of images in planes in nchw; the addresses are the slice's.
  // 0: c, or k. Of plain convolutions forward.
  std::int64_t x_pitch = 0, y_pitch = 0;
  Training training = Training::none;
  Affine affine = Affine::none;
  bool operator==(const Problem&) const = default;

  // The convolution's output size, before pooling.
  std::int64_t z() const { return output(d, t, stride_d, dilation_d, pad_front + pad_back, output_pad_d); }
  std::int64_t p() const { return output(h, r, stride_h, dilation_h, pad_top + pad_bottom, output_pad_h); }
  std::int64_t q() const { return output(w, s, stride_w, dilation_w, pad_left + pad_right, output_pad_w); }
  // The size of y: after pooling, if there is any.
  FALTUNG_API std::int64_t y_h() const;
  FALTUNG_API std::int64_t y_w() const;

 private:
  std::int64_t output(std::int64_t in, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                      std::int64_t padding, std::int64_t more) const {
    const std::int64_t extent = dilation * (filter - 1) + 1;
    if (kind == ConvolutionKind::transposed) return (in - 1) * stride + extent - padding + more;
    return (in + padding - extent) / stride + 1;
  }
};

// Reads the canonical string (docs/problem.md has its grammar), a `MIOpenDriver conv...` command line, a
// benchdnn problem string, or a line that oneDNN wrote under ONEDNN_VERBOSE.
// Throws Error(bad_problem) that names the offending part. The result is validated.
FALTUNG_API Problem parse_problem(std::string_view text);
// The canonical string; parse_problem(to_string(p)) == p.
FALTUNG_API std::string to_string(const Problem& problem);
// Throws Error(bad_problem) unless every size is positive, groups divide, the filter fits, nothing overflows.
FALTUNG_API void validate(const Problem& problem);

enum class Tensor { x, w, y, bias, residual, relu, sums, scale, shift, slopes };
// What the problem's tensor takes in memory: y after pooling, the residual before it. Of the sums, the scale,
// the shift and the slopes 0 where the problem has none.
FALTUNG_API std::size_t bytes(const Problem& problem, Tensor tensor);
// Its sizes, whatever the layout: n c d h w of x, n k z p q of y and the residual, 1 k 1 1 1 of the bias,
// k c/groups t r s of the filter (c k/groups t r s of a transposed convolution's), x's of relu, 1 k 1 1 1 of
// dbias's sums and 2 k 1 1 1 of those of stats, all sums before all squares, 1 c 1 1 1 of the scale and the
// shift, 1 k 1 1 1 of prelu's slopes. 1 for each dimension that is not there.
FALTUNG_API std::array<std::int64_t, 5> sizes(const Problem& problem, Tensor tensor);

}  // namespace faltung

#endif  // FALTUNG_PROBLEM_HPP_
