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
  double operator()(i64 n, i64 c, i64 h, i64 w) const { return T::load(data_[shape_.offset(n, c, h, w)]); }

 private:
  const typename T::Storage* data_;
  TensorShape shape_;
};

struct Sum {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

// The convolution at one output pixel, before the epilogue.
template <class T>
Sum convolve(const Problem& p, const Tensors& t, i64 n, i64 k, i64 op, i64 oq) {
  const Reader<T> x(t.x, x_shape(p)), w(t.w, w_shape(p));
  const i64 group_c = p.c / p.groups, first_c = k / (p.k / p.groups) * group_c;
  Sum sum;
  for (i64 c = 0; c < group_c; ++c) {
    for (i64 r = 0; r < p.r; ++r) {
      for (i64 s = 0; s < p.s; ++s) {
        const i64 h = op * p.stride_h - p.pad_top + r * p.dilation_h;
        const i64 iw = oq * p.stride_w - p.pad_left + s * p.dilation_w;
        if (h < 0 || h >= p.h || iw < 0 || iw >= p.w) continue;
        sum.add(x(n, first_c + c, h, iw), w(k, c, r, s));
      }
    }
  }
  return sum;
}

template <class T>
Expected forward_before_pool(const Problem& p, const Tensors& t, i64 n, i64 k, i64 op, i64 oq) {
  Sum sum = convolve<T>(p, t, n, k, op, oq);
  if (p.epilogue.bias) sum.add(Reader<T>(t.bias, make_shape(Layout::nchw, 1, p.k, 1, 1))(0, k, 0, 0), 1);
  if (p.epilogue.residual) sum.add(Reader<T>(t.residual, conv_shape(p))(n, k, op, oq), 1);
  return {activate(p.epilogue.activation, p.epilogue.slope, sum.value), sum.magnitude};
}

template <class T>
Expected forward(const Problem& p, const Tensors& t, i64 n, i64 k, i64 y, i64 x) {
  const Pool& pool = p.epilogue.pool;
  if (pool.kind == PoolKind::none) return forward_before_pool<T>(p, t, n, k, y, x);
  const bool is_max = pool.kind == PoolKind::max;
  Expected result{is_max ? -std::numeric_limits<double>::infinity() : 0.0, 0.0};
  i64 count = 0;
  for (i64 i = 0; i < pool.size_h; ++i) {
    for (i64 j = 0; j < pool.size_w; ++j) {
      const i64 op = y * pool.stride_h - pool.pad_top + i, oq = x * pool.stride_w - pool.pad_left + j;
      if (op < 0 || op >= p.p() || oq < 0 || oq >= p.q()) continue;
      const Expected e = forward_before_pool<T>(p, t, n, k, op, oq);
      if (is_max) {
        result.value = std::isnan(e.value) || e.value > result.value ? e.value : result.value;
      } else {
        result.value += e.value;
      }
      result.magnitude = std::max(result.magnitude, e.magnitude);
      ++count;
    }
  }
  if (!is_max) result.value /= static_cast<double>(count);
  return result;
}

template <class T>
Expected backward_data(const Problem& p, const Tensors& t, i64 n, i64 c, i64 h, i64 iw) {
  const Reader<T> w(t.w, w_shape(p)), dy(t.y, conv_shape(p));
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups, g = c / group_c;
  Sum sum;
  for (i64 k = g * group_k; k < (g + 1) * group_k; ++k) {
    for (i64 r = 0; r < p.r; ++r) {
      for (i64 s = 0; s < p.s; ++s) {
        const i64 top = h + p.pad_top - r * p.dilation_h, left = iw + p.pad_left - s * p.dilation_w;
        if (top < 0 || left < 0 || top % p.stride_h != 0 || left % p.stride_w != 0) continue;
        const i64 op = top / p.stride_h, oq = left / p.stride_w;
        if (op >= p.p() || oq >= p.q()) continue;
        sum.add(dy(n, k, op, oq), w(k, c - g * group_c, r, s));
      }
    }
  }
  return {sum.value, sum.magnitude};
}

template <class T>
Expected backward_weights(const Problem& p, const Tensors& t, i64 k, i64 c, i64 r, i64 s) {
  const Reader<T> x(t.x, x_shape(p)), dy(t.y, conv_shape(p));
  const i64 input_c = k / (p.k / p.groups) * (p.c / p.groups) + c;
  Sum sum;
  for (i64 n = 0; n < p.n; ++n) {
    for (i64 op = 0; op < p.p(); ++op) {
      for (i64 oq = 0; oq < p.q(); ++oq) {
        const i64 h = op * p.stride_h - p.pad_top + r * p.dilation_h;
        const i64 iw = oq * p.stride_w - p.pad_left + s * p.dilation_w;
        if (h < 0 || h >= p.h || iw < 0 || iw >= p.w) continue;
        sum.add(x(n, input_c, h, iw), dy(n, k, op, oq));
      }
    }
  }
  return {sum.value, sum.magnitude};
}

template <class T>
Expected element(const Problem& p, const Tensors& t, i64 i0, i64 i1, i64 i2, i64 i3) {
  switch (p.direction) {
    case Direction::forward:
      return forward<T>(p, t, i0, i1, i2, i3);
    case Direction::backward_data:
      return backward_data<T>(p, t, i0, i1, i2, i3);
    case Direction::backward_weights:
      return backward_weights<T>(p, t, i0, i1, i2, i3);
  }
  return {};
}

}  // namespace

double activate(Activation activation, double slope, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::relu6:
      return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::leaky_relu:
      return x < 0 ? slope * x : x;
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
  }
  return x;
}

Expected reference(const Problem& p, const Tensors& t, i64 i0, i64 i1, i64 i2, i64 i3) {
  switch (p.dtype) {
    case DType::f32:
      return element<F32>(p, t, i0, i1, i2, i3);
    case DType::f16:
      return element<F16>(p, t, i0, i1, i2, i3);
    case DType::bf16:
      return element<BF16>(p, t, i0, i1, i2, i3);
  }
  return {};
}

}  // namespace faltung
