#include "src/problem/problem.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

i64 pooled(i64 size, i64 pad, i64 window, i64 stride) { return (size + pad - window) / stride + 1; }

// How many inputs some tap reads, by a line of inputs for each of the outputs or of the taps, whichever are
// fewer: such a line has one remainder by its step, and those of one remainder overlap.
i64 inputs_read(const Dimension& d, i64 outputs) {
  struct Steps {
    i64 count, step;
  } few{d.filter, d.dilation}, line{outputs, d.stride};
  if (few.count > line.count) std::swap(few, line);
  constexpr i64 kMostLines = 1 << 16;  // more leave next to nothing out
  if (few.count > kMostLines) return d.in;
  struct Line {
    i64 remainder, begin, end;
  };
  std::vector<Line> lines;
  for (i64 i = 0; i < few.count; ++i) {
    const i64 first = i * few.step - d.before, remainder = (first % line.step + line.step) % line.step;
    const i64 begin = (first - remainder) / line.step;
    const i64 inside = remainder < d.in ? ceil_div(d.in - remainder, line.step) : 0;
    lines.push_back({remainder, std::max<i64>(begin, 0), std::min(begin + line.count, inside)});
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::tie(a.remainder, a.begin) < std::tie(b.remainder, b.begin);
  });
  i64 read = 0, remainder = -1, end = 0;
  for (const Line& l : lines) {
    if (l.remainder != remainder) remainder = l.remainder, end = 0;
    read += std::max<i64>(0, l.end - std::max(l.begin, end));
    end = std::max(end, l.end);
  }
  return read;
}

}  // namespace

const char* name(Direction d) {
  constexpr const char* kNames[] = {"fwd", "bwd_d", "bwd_w"};
  return kNames[static_cast<int>(d)];
}
const char* name(DType d) { return info(d).name; }
const char* name(Layout l) { return l == Layout::nchw ? "nchw" : "nhwc"; }
const char* name(Math m) {
  constexpr const char* kNames[] = {"f32", "tf32", "f16", "bf16", "fast", "of_dtype"};
  return kNames[static_cast<int>(m)];
}
const char* name(Activation a) {
  constexpr const char* kNames[] = {
#define FALTUNG_ACTIVATION(op, value) #op,
#include "kernels/common/epilogue_ops.inc"
#undef FALTUNG_ACTIVATION
  };
  static_assert(
      [] {
        for (std::size_t i = 0; i < std::size(kActivations); ++i) {
          if (static_cast<std::size_t>(kActivations[i]) != i) return false;
        }
        return true;
      }(),
      "epilogue_ops.inc and Activation in problem.hpp have the same order");
  return kNames[static_cast<int>(a)];
}
const char* name(PoolKind k) {
  constexpr const char* kNames[] = {"none", "maxpool", "avgpool"};
  return kNames[static_cast<int>(k)];
}

const char* name(Training t) {
  constexpr const char* kNames[] = {"none", "stats", "drelu", "dbias"};
  return kNames[static_cast<int>(t)];
}

const char* name(Affine a) {
  constexpr const char* kNames[] = {"none", "affine", "affine_relu"};
  return kNames[static_cast<int>(a)];
}

const char* name(ConvolutionKind k) { return k == ConvolutionKind::plain ? "plain" : "transposed"; }

std::vector<Dimension> spatial_dimensions(const Problem& p) {
  std::vector<Dimension> all = {{'d', 't', "stride_d", "pad_front", "pad_back", "dilation_d", p.d, p.t,
                                 p.stride_d, p.dilation_d, p.pad_front, p.pad_back, p.output_pad_d},
                                {'h', 'r', "stride_h", "pad_top", "pad_bottom", "dilation_h", p.h, p.r,
                                 p.stride_h, p.dilation_h, p.pad_top, p.pad_bottom, p.output_pad_h},
                                {'w', 's', "stride_w", "pad_left", "pad_right", "dilation_w", p.w, p.s,
                                 p.stride_w, p.dilation_w, p.pad_left, p.pad_right, p.output_pad_w}};
  all.erase(all.begin(), all.end() - std::clamp(p.dimensions, 1, 3));
  return all;
}

std::vector<i64> spatial_output(const Problem& p) {
  std::vector<i64> all = {p.z(), p.p(), p.q()};
  all.erase(all.begin(), all.end() - p.dimensions);
  return all;
}

Problem without_unused_strides(Problem p) {
  if (is_adjoint(p)) return p;
  // padded: with the padding, without what the taps reach over. A transposed one's taps walk to its input.
  const auto least = [&](i64 stride, i64 in, i64 padded, i64 output_pad) {
    if (is_transposed(p)) return in == 1 ? output_pad + 1 : stride;
    return std::min(stride, padded);
  };
  p.stride_d =
      least(p.stride_d, p.d, p.d + p.pad_front + p.pad_back - p.dilation_d * (p.t - 1), p.output_pad_d);
  p.stride_h =
      least(p.stride_h, p.h, p.h + p.pad_top + p.pad_bottom - p.dilation_h * (p.r - 1), p.output_pad_h);
  p.stride_w =
      least(p.stride_w, p.w, p.w + p.pad_left + p.pad_right - p.dilation_w * (p.s - 1), p.output_pad_w);
  return p;
}

Problem convolution_of(const Problem& p) {
  Problem q = p;
  q.kind = ConvolutionKind::plain;
  q.direction = p.direction == Direction::forward         ? Direction::backward_data
                : p.direction == Direction::backward_data ? Direction::forward
                                                          : Direction::backward_weights;
  q.c = p.k, q.k = p.c;
  q.d = p.z(), q.h = p.p(), q.w = p.q();
  q.output_pad_d = q.output_pad_h = q.output_pad_w = 0;
  q.epilogue = {};
  return q;
}

Math default_math(DType dtype) {
  constexpr Math kMath[] = {Math::f32, Math::f16, Math::bf16};
  return kMath[static_cast<int>(dtype)];
}

Problem with_math(Problem p) {
  if (p.math == Math::of_dtype) p.math = default_math(p.dtype);
  return p;
}

std::int64_t Problem::y_h() const {
  const Pool& pool = epilogue.pool;
  if (pool.kind == PoolKind::none) return p();
  return pooled(p(), pool.pad_top + pool.pad_bottom, pool.size_h, pool.stride_h);
}

std::int64_t Problem::y_w() const {
  const Pool& pool = epilogue.pool;
  if (pool.kind == PoolKind::none) return q();
  return pooled(q(), pool.pad_left + pool.pad_right, pool.size_w, pool.stride_w);
}

TensorShape make_shape(Layout layout, i64 n, i64 c, i64 h, i64 w) {
  return make_shape(layout, n, c, 1, h, w);
}

TensorShape make_shape(Layout layout, i64 n, i64 c, i64 d, i64 h, i64 w) {
  const i64 pixels = d * h * w;
  if (layout == Layout::nchw) return {n, c, h, w, c * pixels, pixels, w, 1, d, h * w};
  return {n, c, h, w, pixels * c, 1, w * c, c, d, h * w * c};
}

namespace {

// Of c channels of a tensor of `pitch`.
TensorShape slice(Layout layout, i64 pitch, i64 n, i64 c, i64 d, i64 h, i64 w) {
  TensorShape shape = make_shape(layout, n, pitch, d, h, w);
  shape.c = c;
  return shape;
}

}  // namespace

TensorShape x_shape(const Problem& p) { return slice(p.layout, x_pitch(p), p.n, p.c, p.d, p.h, p.w); }
TensorShape w_shape(const Problem& p) {
  const bool transposed = is_transposed(p);
  return make_shape(p.layout, transposed ? p.c : p.k, (transposed ? p.k : p.c) / p.groups, p.t, p.r, p.s);
}
TensorShape conv_shape(const Problem& p) {
  return slice(p.layout, y_pitch(p), p.n, p.k, p.z(), p.p(), p.q());
}
TensorShape y_shape(const Problem& p) {
  return slice(p.layout, y_pitch(p), p.n, p.k, p.z(), p.y_h(), p.y_w());
}

TensorShape result_shape(const Problem& p) {
  switch (p.direction) {
    case Direction::forward:
      return y_shape(p);
    case Direction::backward_data:
      return x_shape(p);
    case Direction::backward_weights:
      return w_shape(p);
  }
  return {};
}

std::size_t bytes(const Problem& p, Tensor tensor) {
  if (tensor == Tensor::sums) return static_cast<std::size_t>(sums_of_channel(p) * p.k) * sizeof(float);
  if (tensor == Tensor::scale || tensor == Tensor::shift)
    return has_affine(p) ? static_cast<std::size_t>(p.c) * sizeof(float) : 0;
  if (tensor == Tensor::slopes) return has_slopes(p) ? static_cast<std::size_t>(p.k) * sizeof(float) : 0;
  if (tensor == Tensor::bias) return static_cast<std::size_t>(p.k * size_of(bias_dtype(p)));
  return static_cast<std::size_t>(bytes_of(p, shape_of(p, tensor)));
}

std::array<i64, 5> sizes(const Problem& p, Tensor tensor) {
  const TensorShape s = shape_of(p, tensor);
  return {s.n, s.c, s.d, s.h, s.w};
}

TensorShape summed_shape(const Problem& p) {
  return p.direction == Direction::forward ? y_shape(p) : conv_shape(p);
}

TensorShape shape_of(const Problem& p, Tensor tensor) {
  switch (tensor) {
    case Tensor::x:
      return x_shape(p);
    case Tensor::w:
      return w_shape(p);
    case Tensor::y:
      return summed_shape(p);
    case Tensor::bias:
    case Tensor::slopes:
      return make_shape(p.layout, 1, p.k, 1, 1);
    case Tensor::residual:
      return conv_shape(p);
    case Tensor::relu:
      return x_shape(p);
    case Tensor::sums:
      return make_shape(Layout::nchw, sums_of_channel(p), p.k, 1, 1);
    case Tensor::scale:
    case Tensor::shift:
      return make_shape(p.layout, 1, p.c, 1, 1);
  }
  throw Error(Status::bad_problem,
              "no tensor " + std::to_string(static_cast<int>(tensor)) +
                  "; they are x, w, y, bias, residual, relu, sums, scale, shift and slopes");
}

void* result_pointer(const Problem& p, const Tensors& t) {
  switch (p.direction) {
    case Direction::forward:
      return t.y;
    case Direction::backward_data:
      return t.x;
    case Direction::backward_weights:
      return t.w;
  }
  return nullptr;
}

i64 bytes_of(const Problem& p, const TensorShape& shape) { return shape.extent() * size_of(p.dtype); }

Runs runs_of(const Problem& p, const TensorShape& s) {
  const i64 bytes = size_of(p.dtype);
  if (p.layout == Layout::nhwc) return {s.c * bytes, s.stride_w * bytes};
  return {s.c * s.stride_c * bytes, s.stride_n * bytes};
}

double phases(const Problem& p) {
  if (!is_adjoint(p)) return 1;
  const std::vector<i64> outputs = spatial_output(p);
  double all = 1;
  std::size_t axis = 0;
  for (const Dimension& d : spatial_dimensions(p))
    all *= static_cast<double>(std::min(d.stride, is_transposed(p) ? outputs[axis++] : d.in));
  return all;
}

double flops(const Problem& p) {
  // Each pixel of the smaller side meets every tap once.
  const TensorShape pixels = is_transposed(p) ? x_shape(p) : conv_shape(p), w = w_shape(p);
  return 2.0 * static_cast<double>(p.n) * static_cast<double>(w.n) *
         static_cast<double>(pixels.d * pixels.h) * static_cast<double>(pixels.w) * static_cast<double>(w.c) *
         static_cast<double>(p.t * p.r * p.s);
}

double min_bytes(const Problem& p) {
  i64 elements = x_shape(p).elements() + w_shape(p).elements() + y_shape(p).elements();
  if (p.epilogue.residual) elements += conv_shape(p).elements();
  if (p.training == Training::drelu) elements += x_shape(p).elements();
  const std::size_t beside = bytes(p, Tensor::sums) + (p.epilogue.bias ? bytes(p, Tensor::bias) : 0) +
                             bytes(p, Tensor::scale) + bytes(p, Tensor::shift) + bytes(p, Tensor::slopes);
  return static_cast<double>(elements) * size_of(p.dtype) + static_cast<double>(beside);
}

double touched_bytes(const Problem& p) {
  if (p.direction == Direction::backward_data || is_transposed(p)) return min_bytes(p);
  const std::vector<i64> outputs = spatial_output(p);
  double reached = 1;
  std::size_t axis = 0;
  for (const Dimension& d : spatial_dimensions(p)) {
    reached *= static_cast<double>(inputs_read(d, outputs[axis])) / static_cast<double>(d.in);
    ++axis;
  }
  return min_bytes(p) - (1 - reached) * static_cast<double>(x_shape(p).elements()) * size_of(p.dtype);
}

i64 reduction_length(const Problem& p) {
  switch (p.direction) {
    case Direction::forward:
      return p.c / p.groups * p.t * p.r * p.s;
    case Direction::backward_data:
      return p.k / p.groups * p.t * p.r * p.s;
    case Direction::backward_weights:
      return is_transposed(p) ? p.n * p.d * p.h * p.w : p.n * p.z() * p.p() * p.q();
  }
  return 0;
}

void check_pointers(const Problem& p, const Tensors& t, bool weights_are_packed) {
  const auto need = [&](const char* what, const void* pointer) {
    if (pointer == nullptr) {
      throw Error(Status::bad_problem, std::string("tensor ") + what + " is null, but " + name(p.direction) +
                                           " of " + to_string(p) + " needs it");
    }
  };
  need("x", t.x);
  if (!weights_are_packed) need("w", t.w);
  need("y", t.y);
  if (p.epilogue.bias) need("bias", t.bias);
  if (p.epilogue.residual) need("residual", t.residual);
  if (p.training == Training::drelu) need("relu", t.relu);
  if (sums_of_channel(p) > 0) need("sums", t.sums);
  if (has_affine(p)) need("scale", t.scale), need("shift", t.shift);
  if (has_slopes(p)) need("slopes", t.slopes);
}

}  // namespace faltung
