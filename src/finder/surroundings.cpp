#include "src/finder/surroundings.hpp"

#include <algorithm>
#include <cmath>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// One dimension of what the taps walk over: how many elements lie before the tensor's own, and how far a tile
// mixes them.
struct Surrounded {
  i64 before = 0;
  int spread = 0;
};

// Of each element of a row the largest within the spread; from `from` elements to `to`.
void spread_row(const float* in, i64 in_step, i64 from, float* out, i64 out_step, i64 to,
                const Surrounded& s) {
  for (i64 i = 0; i < to; ++i) {
    float largest = 0;
    const i64 end = std::min(from, i - s.before + s.spread + 1);
    for (i64 j = std::max<i64>(0, i - s.before - s.spread); j < end; ++j)
      largest = std::max(largest, in[j * in_step]);
    out[i * out_step] = largest;
  }
}

// Where the data includes what one dimension is padded with; in: x's size.
Surrounded surround(bool adjoint, bool data_is_x, int spread, i64 filter, i64 stride, i64 dilation, i64& in,
                    i64& before, i64& after) {
  if (!adjoint) {
    const Surrounded s{before, spread};
    if (data_is_x) in += before + after;
    before = after = 0;
    return s;
  }
  // A larger padding makes what is read larger: enough for every tap of every element to lie in it.
  const i64 extent = dilation * (filter - 1);
  before += extent * stride, after += extent * stride;
  if (data_is_x) in += 2 * extent;
  return {extent, spread};
}

bool all_finite(DType dtype, const void* data, i64 count) {
  for (i64 i = 0; i < count; ++i) {
    if (!std::isfinite(load_element(dtype, data, i))) return false;
  }
  return true;
}

// The filter with zeros for what is not finite; empty where that is nothing.
std::vector<std::byte> finite_weights(const Problem& p, const Tensors& t) {
  const i64 count = w_shape(p).elements();
  if (all_finite(p.dtype, t.w, count)) return {};
  std::vector<std::byte> weights(static_cast<std::size_t>(count * size_of(p.dtype)));
  for (i64 i = 0; i < count; ++i) {
    const float value = load_element(p.dtype, t.w, i);
    store_element(p.dtype, weights.data(), i, std::isfinite(value) ? value : 0);
  }
  return weights;
}

}  // namespace

std::optional<Surroundings> tile_of(const Problem& p, const Tensors& t, const Accuracy& a,
                                    NotFinite counts_as) {
  if (!a.on_tiles()) return {};
  const bool adjoint = is_adjoint(p), data_is_x = walks_over_x(p);
  Problem q = p;
  const Surrounded d =
      surround(adjoint, data_is_x, a.spread_d, p.t, p.stride_d, p.dilation_d, q.d, q.pad_front, q.pad_back);
  const Surrounded h =
      surround(adjoint, data_is_x, a.spread_h, p.r, p.stride_h, p.dilation_h, q.h, q.pad_top, q.pad_bottom);
  const Surrounded w =
      surround(adjoint, data_is_x, a.spread_w, p.s, p.stride_w, p.dilation_w, q.w, q.pad_left, q.pad_right);
  const TensorShape from = data_is_x ? x_shape(p) : conv_shape(p);
  const TensorShape to = data_is_x ? x_shape(q) : conv_shape(q);
  const void* data = data_is_x ? t.x : t.y;
  const bool as_zero = counts_as == NotFinite::zero;
  if (!as_zero && all_finite(p.dtype, data, from.extent()) && all_finite(p.dtype, t.w, w_shape(p).elements()))
    return {};
  const float beyond = as_zero ? 0 : INFINITY;
  std::vector<std::byte> out(static_cast<std::size_t>(to.extent() * size_of(p.dtype)));
  // The largest of a box is the largest of its rows' largest, and so on.
  const auto floats = [](i64 count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  std::vector<float> own = floats(from.d * from.h * from.w), deep = floats(to.d * from.h * from.w),
                     high = floats(to.d * to.h * from.w), wide = floats(to.w);
  for (i64 n = 0; n < to.n; ++n) {
    for (i64 c = 0; c < to.c; ++c) {
      for (i64 i = 0; i < from.d * from.h * from.w; ++i) {
        const Position at{n, c, i / (from.h * from.w), i / from.w % from.h, i % from.w};
        const float size = std::abs(load_element(p.dtype, data, from.offset(at)));
        own[static_cast<std::size_t>(i)] = std::isfinite(size) ? size : beyond;
      }
      const i64 plane = from.h * from.w;
      for (i64 i = 0; i < plane; ++i)
        spread_row(own.data() + i, plane, from.d, deep.data() + i, plane, to.d, d);
      for (i64 k = 0; k < to.d; ++k) {
        for (i64 j = 0; j < from.w; ++j) {
          spread_row(deep.data() + k * plane + j, from.w, from.h, high.data() + k * to.h * from.w + j, from.w,
                     to.h, h);
        }
        for (i64 i = 0; i < to.h; ++i) {
          spread_row(high.data() + (k * to.h + i) * from.w, 1, from.w, wide.data(), 1, to.w, w);
          for (i64 j = 0; j < to.w; ++j) {
            store_element(p.dtype, out.data(), to.offset({n, c, k, i, j}), wide[static_cast<std::size_t>(j)]);
          }
        }
      }
    }
  }
  return Surroundings{q, std::move(out), as_zero ? finite_weights(p, t) : std::vector<std::byte>()};
}

std::optional<Surroundings> met_by_zeros(const Problem& p, const Tensors& t, const Accuracy& a) {
  if (!a.adds_zeros()) return {};
  const bool data_is_x = walks_over_x(p);
  const i64 count = (data_is_x ? x_shape(p) : conv_shape(p)).extent();
  const void* const data = data_is_x ? t.x : t.y;
  std::vector<std::byte> out(static_cast<std::size_t>(count * size_of(p.dtype)));
  bool finite = true;
  for (i64 i = 0; i < count; ++i) {
    if (std::isfinite(load_element(p.dtype, data, i))) continue;
    store_element(p.dtype, out.data(), i, INFINITY);
    finite = false;
  }
  if (finite) return {};
  Problem q = p;
  q.groups = p.groups / a.groups_as_one;
  const auto widen = [](i64& filter, int unit, i64 dilation, i64& after) {
    const i64 more = round_up(filter, i64{unit}) - filter;
    filter += more, after += more * dilation;
  };
  widen(q.t, a.filter_unit_d, q.dilation_d, q.pad_back);
  widen(q.r, a.filter_unit_h, q.dilation_h, q.pad_bottom);
  widen(q.s, a.filter_unit_w, q.dilation_w, q.pad_right);
  const i64 beside = a.zeros_beside_w * q.dilation_w;
  q.s += 2 * a.zeros_beside_w, q.pad_left += beside, q.pad_right += beside;
  const i64 weights = w_shape(q).elements();
  std::vector<std::byte> ones(static_cast<std::size_t>(weights * size_of(p.dtype)));
  for (i64 i = 0; i < weights; ++i) store_element(p.dtype, ones.data(), i, 1);
  return Surroundings{q, std::move(out), std::move(ones)};
}

MetChannels::MetChannels(const Problem& p, const Tensors& t)
    : problem_(is_transposed(p) ? convolution_of(p) : p),
      finite_(static_cast<std::size_t>(problem_.c), true) {
  const i64 group_c = problem_.c / problem_.groups, group_k = problem_.k / problem_.groups;
  const bool of_weights = problem_.direction == Direction::backward_weights;
  const TensorShape shape = of_weights ? x_shape(problem_) : w_shape(problem_);
  const void* const data = !of_weights ? t.w : is_transposed(p) ? t.y : t.x;
  for (i64 i = 0; i < shape.elements(); ++i) {
    const Position at = shape.position(i);
    if (std::isfinite(load_element(problem_.dtype, data, shape.offset(at)))) continue;
    finite_[static_cast<std::size_t>(of_weights ? at.c : at.n / group_k * group_c + at.c)] = false;
  }
}

bool MetChannels::is_finite(const Position& at) const {
  const Problem& p = problem_;
  const bool of_weights = p.direction == Direction::backward_weights;
  return finite_[static_cast<std::size_t>(of_weights ? at.n / (p.k / p.groups) * (p.c / p.groups) + at.c
                                                     : at.c)];
}

double Surroundings::magnitude(const Tensors& given, const Position& at) const {
  Tensors t = given;  // of which the reference writes none
  (walks_over_x(problem) ? t.x : t.y) = const_cast<std::byte*>(data.data());
  if (!weights.empty()) t.w = const_cast<std::byte*>(weights.data());
  return reference(problem, t, at).magnitude;
}

}  // namespace faltung
