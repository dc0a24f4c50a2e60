#include "src/problem/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

struct F32 {
  using Storage = float;
  static double load(float v) { return v; }
};
struct F16 {
  using Storage = std::uint16_t;
  static double load(std::uint16_t v) { return f16_to_float(v); }
};
struct BF16 {
  using Storage = std::uint16_t;
  static double load(std::uint16_t v) { return bf16_to_float(v); }
};

template <class T>
class Reader {
 public:
  Reader(const void* data, const TensorShape& shape)
      : data_(static_cast<const typename T::Storage*>(data)), shape_(shape) {}
  double operator()(const Position& i) const { return T::load(data_[shape_.offset(i)]); }
  // The elements that differ in one place: those along w, say, with &TensorShape::stride_w.
  auto along(i64 TensorShape::*stride, const Position& first) const {
    return [from = data_ + shape_.offset(first), step = shape_.*stride](i64 i) {
      return T::load(from[i * step]);
    };
  }

 private:
  const typename T::Storage* data_;
  TensorShape shape_;
};

struct Sum {
  double value = 0, magnitude = 0, factors = 0;
  bool may_be_nan = false;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
    factors += std::abs(a) + std::abs(b);
  }
  // A factor whose other one is padding.
  void pass(double a) { may_be_nan = may_be_nan || !std::isfinite(a); }
};

struct Chain {
  float value = 0;
  void add(double a, double b) { value = std::fma(static_cast<float>(a), static_cast<float>(b), value); }
  void pass(double) {}
};

// A convolution at one output pixel, before the epilogue.
template <class T, class Sum>
Sum convolve(const Problem& p, const Tensors& t, const Position& y) {
  const Reader<T> x(t.x, x_shape(p)), w(t.w, w_shape(p));
  const i64 group_c = p.c / p.groups, first_c = y.c / (p.k / p.groups) * group_c;
  Sum sum;
  for (i64 i = 0; i < p.t; ++i) {
    const i64 d = y.d * p.stride_d - p.pad_front + i * p.dilation_d;
    for (i64 r = 0; r < p.r; ++r) {
      const i64 h = y.h * p.stride_h - p.pad_top + r * p.dilation_h;
      for (i64 s = 0; s < p.s; ++s) {
        const i64 iw = y.w * p.stride_w - p.pad_left + s * p.dilation_w;
        const auto w_of = w.along(&TensorShape::stride_c, {y.c, 0, i, r, s});
        if (d < 0 || d >= p.d || h < 0 || h >= p.h || iw < 0 || iw >= p.w) {
          for (i64 c = 0; c < group_c; ++c) sum.pass(w_of(c));
        } else {
          const auto x_of = x.along(&TensorShape::stride_c, {y.n, first_c, d, h, iw});
          for (i64 c = 0; c < group_c; ++c) sum.add(x_of(c), w_of(c));
        }
      }
    }
  }
  return sum;
}

// The output that takes tap `tap` of a convolution from input `at`; kBeyond where that would lie outside of
// them, kNone where a stride passes over the input.
constexpr i64 kBeyond = -1, kNone = -2;
i64 taker(i64 at, i64 tap, i64 stride, i64 dilation, i64 pad, i64 outputs) {
  const i64 from_first = at + pad - tap * dilation;
  if (from_first % stride != 0) return kNone;
  return from_first < 0 || from_first / stride >= outputs ? kBeyond : from_first / stride;
}

// What a convolution's input gathers from its outputs: from every one that took the element, by the weight it
// was taken with.
template <class T, class Sum>
Sum gather(const Problem& p, const Tensors& t, const Position& x) {
  const Reader<T> w(t.w, w_shape(p)), y(t.y, conv_shape(p));
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups, g = x.c / group_c, first_k = g * group_k;
  const i64 outputs_z = p.z(), outputs_p = p.p(), outputs_q = p.q();
  Sum sum;
  for (i64 i = 0; i < p.t; ++i) {
    const i64 z = taker(x.d, i, p.stride_d, p.dilation_d, p.pad_front, outputs_z);
    for (i64 r = 0; z != kNone && r < p.r; ++r) {
      const i64 op = taker(x.h, r, p.stride_h, p.dilation_h, p.pad_top, outputs_p);
      for (i64 s = 0; op != kNone && s < p.s; ++s) {
        const i64 oq = taker(x.w, s, p.stride_w, p.dilation_w, p.pad_left, outputs_q);
        if (oq == kNone) continue;
        const auto w_of = w.along(&TensorShape::stride_n, {first_k, x.c - g * group_c, i, r, s});
        if (z == kBeyond || op == kBeyond || oq == kBeyond) {
          for (i64 k = 0; k < group_k; ++k) sum.pass(w_of(k));
        } else {
          const auto y_of = y.along(&TensorShape::stride_c, {x.n, first_k, z, op, oq});
          for (i64 k = 0; k < group_k; ++k) sum.add(y_of(k), w_of(k));
        }
      }
    }
  }
  return sum;
}

// The gradient of a convolution's filter.
template <class T, class Sum>
Sum correlate(const Problem& p, const Tensors& t, const Position& at) {
  const Reader<T> x(t.x, x_shape(p)), dy(t.y, conv_shape(p));
  const i64 input_c = at.n / (p.k / p.groups) * (p.c / p.groups) + at.c;
  const i64 outputs_z = p.z(), outputs_p = p.p(), outputs_q = p.q();
  Sum sum;
  for (i64 n = 0; n < p.n; ++n) {
    for (i64 z = 0; z < outputs_z; ++z) {
      const i64 d = z * p.stride_d - p.pad_front + at.d * p.dilation_d;
      for (i64 op = 0; op < outputs_p; ++op) {
        const i64 h = op * p.stride_h - p.pad_top + at.h * p.dilation_h;
        const bool is_beyond = d < 0 || d >= p.d || h < 0 || h >= p.h;
        const auto dy_of = dy.along(&TensorShape::stride_w, {n, at.n, z, op, 0});
        const auto x_of =
            x.along(&TensorShape::stride_w, {n, input_c, is_beyond ? 0 : d, is_beyond ? 0 : h, 0});
        for (i64 oq = 0; oq < outputs_q; ++oq) {
          const i64 iw = oq * p.stride_w - p.pad_left + at.w * p.dilation_w;
          if (is_beyond || iw < 0 || iw >= p.w) {
            sum.pass(dy_of(oq));
          } else {
            sum.add(x_of(iw), dy_of(oq));
          }
        }
      }
    }
  }
  return sum;
}

// A problem without its epilogue, at one element of what it computes.
template <class T, class Sum>
Sum sum_of(const Problem& p, const Tensors& t, const Position& at) {
  if (is_transposed(p)) {
    Tensors exchanged = t;
    exchanged.x = t.y, exchanged.y = t.x;
    return sum_of<T, Sum>(convolution_of(p), exchanged, at);
  }
  switch (p.direction) {
    case Direction::forward:
      return convolve<T, Sum>(p, t, at);
    case Direction::backward_data:
      return gather<T, Sum>(p, t, at);
    case Direction::backward_weights:
      return correlate<T, Sum>(p, t, at);
  }
  return {};
}

template <class T>
Expected before_pool(const Problem& p, const Tensors& t, const Position& at) {
  // The gradient through a ReLU; a NaN lets it pass, as frameworks have it.
  if (p.training == Training::drelu && Reader<T>(t.relu, x_shape(p))(at) <= 0) return {0, 0};
  Sum sum = sum_of<T, Sum>(p, t, at);
  const double factors = sum.factors;
  if (p.epilogue.bias) sum.add(load_element(bias_dtype(p), t.bias, at.c), 1);
  const bool after = p.epilogue.residual_order == ResidualOrder::after_activation;
  const double residual = p.epilogue.residual ? Reader<T>(t.residual, conv_shape(p))(at) : 0;
  if (!after && p.epilogue.residual) sum.add(residual, 1);
  ActivationCall activation = activation_of(p.epilogue);
  if (has_slopes(p)) activation.a = static_cast<const float*>(t.slopes)[at.c];
  const double active = activate(activation, sum.value);
  return {after ? active + residual : active, sum.magnitude, sum.may_be_nan, factors,
          after ? std::abs(residual) : 0,     activation.a};
}

template <class T>
Expected element(const Problem& p, const Tensors& t, const Position& at) {
  const Pool& pool = p.epilogue.pool;
  if (pool.kind == PoolKind::none) return before_pool<T>(p, t, at);
  const bool is_max = pool.kind == PoolKind::max;
  Expected result{is_max ? -std::numeric_limits<double>::infinity() : 0.0, 0.0};
  i64 count = 0;
  for (i64 i = 0; i < pool.size_h; ++i) {
    for (i64 j = 0; j < pool.size_w; ++j) {
      const i64 op = at.h * pool.stride_h - pool.pad_top + i, oq = at.w * pool.stride_w - pool.pad_left + j;
      if (op < 0 || op >= p.p() || oq < 0 || oq >= p.q()) continue;
      const Expected e = before_pool<T>(p, t, {at.n, at.c, 0, op, oq});
      if (is_max) {
        result.value = std::isnan(e.value) || e.value > result.value ? e.value : result.value;
      } else {
        result.value += e.value;
      }
      result.magnitude = std::max(result.magnitude, e.magnitude);
      result.factors = std::max(result.factors, e.factors);
      result.beside = std::max(result.beside, e.beside);
      result.slope = e.slope;
      result.may_be_nan = result.may_be_nan || e.may_be_nan;
      ++count;
    }
  }
  if (!is_max) result.value /= static_cast<double>(count);
  return result;
}

}  // namespace

double activate(const ActivationCall& activation, double x) {
  const double a = activation.a, b = activation.b;
  switch (activation.kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::relu6:
      return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::leaky_relu:
    case Activation::prelu:
      return x < 0 ? a * x : x;
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::hardswish:
      return x * (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6;
    case Activation::hardsigmoid: {
      const double line = a * x + 0.5;
      return line < 0 ? 0 : line > 1 ? 1 : line;
    }
    case Activation::clip:
      return x < a ? a : x > b ? b : x;
  }
  return x;
}

std::unique_ptr<std::byte[]> x_as_read(const Problem& p, const Tensors& t) {
  const TensorShape from = x_shape(p), to = x_shape(without_affine(p));
  auto x = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes_of(p, to)));
  const auto *const scale = static_cast<const float*>(t.scale), *const shift =
                                                                    static_cast<const float*>(t.shift);
  const Activation activation = p.affine == Affine::affine_relu ? Activation::relu : Activation::none;
  for (i64 i = 0; i < to.elements(); ++i) {
    const Position at = to.position(i);
    const float line = std::fma(scale[at.c], load_element(p.dtype, t.x, from.offset(at)), shift[at.c]);
    store_element(p.dtype, x.get(), to.offset(at), static_cast<float>(activate({activation}, line)));
  }
  return x;
}

Expected reference(const Problem& p, const Tensors& t, const Position& at) {
  if (has_affine(p)) throw Error(Status::internal, "the reference reads x as it is, not as " + to_string(p));
  switch (p.dtype) {
    case DType::f32:
      return element<F32>(p, t, at);
    case DType::f16:
      return element<F16>(p, t, at);
    case DType::bf16:
      return element<BF16>(p, t, at);
  }
  return {};
}

float chain_of_fp32(const Problem& p, const Tensors& t, const Position& at) {
  return sum_of<F32, Chain>(p, t, at).value;
}

}  // namespace faltung
