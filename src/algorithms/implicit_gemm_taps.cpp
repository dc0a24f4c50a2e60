#include "src/algorithms/implicit_gemm_taps.hpp"

#include <algorithm>
#include <tuple>

#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"
#include "src/problem/slide.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A dense convolution that a rewrite in height and width and a slide in depth make of a convolution, over its
// own tensors.
TapConvolution taps_of(const Problem& p, const Rewrite& rewrite, const Slide& depth) {
  const Problem& q = rewrite.inner;
  TapConvolution t{};
  t.groups = q.groups, t.in_channels = q.c / q.groups, t.out_channels = q.k / q.groups;
  t.rows = t.image_rows = q.p(), t.columns = q.q(), t.depths = depth.count;
  t.step_h = q.stride_h, t.step_w = q.stride_w, t.step_d = depth.stride;
  t.out_h0 = rewrite.y.start[kAxisH], t.out_w0 = rewrite.y.start[kAxisW], t.out_d0 = depth.first;
  t.out_step_h = rewrite.y.digits[kAxisH].front().step, t.out_step_w = rewrite.y.digits[kAxisW].front().step;
  t.out_step_d = depth.step;
  const bool forward = p.direction == Direction::forward;
  t.in = forward ? x_shape(p) : conv_shape(p), t.out = forward ? conv_shape(p) : x_shape(p);
  if (rewrite.x.is_zero()) return t;
  std::vector<Tap> taps;
  for (i64 i = 0; i < depth.taps; ++i) {
    for (i64 r = 0; r < q.r; ++r) {
      for (i64 s = 0; s < q.s; ++s) {
        const Index from = *rewrite.w({0, 0, r, s});
        taps.push_back({rewrite.first_row() + r * q.dilation_h, rewrite.first_column() + s * q.dilation_w,
                        from[kAxisH], from[kAxisW], depth.origin + i * depth.spacing,
                        depth.tap + i * depth.tap_step});
      }
    }
  }
  t.set_taps(std::move(taps));
  return t;
}

// What each plane of the problem is.
Problem of_planes(Problem p) {
  const Problem usual;
  p.dimensions = 2;
  p.d = usual.d, p.t = usual.t, p.stride_d = usual.stride_d, p.dilation_d = usual.dilation_d;
  p.pad_front = p.pad_back = p.output_pad_d = 0;
  return p;
}

}  // namespace

void TapConvolution::set_taps(std::vector<Tap> in_any_order) {
  taps = std::move(in_any_order);
  std::sort(taps.begin(), taps.end(),
            [](const Tap& a, const Tap& b) { return std::tie(a.d, a.h, a.w) < std::tie(b.d, b.h, b.w); });
  planes_ = {0};
  if (taps.empty()) return;
  planes_.clear();
  for (const Tap& tap : taps) {
    if (planes_.empty() || planes_.back() != tap.d) planes_.push_back(tap.d);
  }
  const auto [top, bottom] =
      std::minmax_element(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.h < b.h; });
  const auto [left, right] =
      std::minmax_element(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.w < b.w; });
  min_h_ = top->h, extent_h_ = bottom->h - min_h_ + 1;
  min_w_ = left->w, extent_w_ = right->w - min_w_ + 1;
}

std::string TapConvolution::tap_words() const {
  std::string words = column_phases > 1 ? std::to_string(column_phases) + " columns' taps" : "taps";
  for (const Tap& tap : taps) {
    words += " " + std::to_string(tap.r) + "." + std::to_string(tap.s);
    if (planes_.size() > 1 || tap.t > 0) words += "." + std::to_string(tap.t);
  }
  return words;
}

i64 TapConvolution::plane_of(const Tap& tap) const {
  return std::lower_bound(planes_.begin(), planes_.end(), tap.d) - planes_.begin();
}

bool TapConvolution::padded() const {
  return min_h() < 0 || min_w() < 0 || planes_.front() < 0 ||
         (image_rows - 1) * step_h + min_h() + extent_h() > in.h ||
         (columns - 1) * step_w + min_w() + extent_w() > in.w ||
         (depths - 1) * step_d + planes_.back() >= in.d;
}

TapConvolution::TapRange TapConvolution::taps_inside(i64 row) const {
  i64 first = 0, end = static_cast<i64>(taps.size());
  if (planes_.size() > 1) return {first, end};
  const auto reads = [&](i64 tap) { return taps[static_cast<std::size_t>(tap)].h + row * step_h; };
  while (first < end && reads(first) < 0) ++first;
  while (first < end && reads(end - 1) >= in.h) --end;
  return {first, end};
}

double TapConvolution::share_of_rows() const {
  const i64 all = static_cast<i64>(taps.size());
  i64 left_out = 0, row = 0, last = image_rows - 1;
  const auto out = [&](i64 at) { return all - (taps_inside(at).end - taps_inside(at).first); };
  for (; row <= last && out(row) > 0; ++row) left_out += out(row);  // rows of the middle have all
  for (; last > row && out(last) > 0; --last) left_out += out(last);
  return all == 0 ? 1 : 1 - static_cast<double>(left_out) / static_cast<double>(image_rows * all);
}

double TapConvolution::share_of_depths() const {
  if (taps.empty()) return 1;
  double inside = 0;
  for (const Tap& tap : taps) inside += faltung::taps_inside({depths, 0, 1, 1, 0, 1, step_d, tap.d, 1, in.d});
  return inside / (static_cast<double>(depths) * static_cast<double>(taps.size()));
}

std::vector<TapConvolution> tap_convolutions(const Problem& given) {
  const Problem p = is_transposed(given) ? convolution_of(given) : given, plane = of_planes(p);
  const bool forward = p.direction == Direction::forward;
  std::vector<TapConvolution> parts;
  for (const Slide& depth : forward
                                ? forward_slides(p.d, p.z(), p.t, p.stride_d, p.dilation_d, p.pad_front)
                                : backward_slides(p.z(), p.d, p.t, p.stride_d, p.dilation_d, p.pad_front)) {
    for (const Rewrite& rewrite : forward ? std::vector<Rewrite>{unchanged(plane)} : data_phases(plane))
      parts.push_back(taps_of(p, rewrite, depth));
  }
  return parts;
}

std::vector<TapConvolution> with_joined_columns(const Problem& given,
                                                const std::vector<TapConvolution>& convolutions) {
  const Problem p = is_transposed(given) ? convolution_of(given) : given;
  if (p.direction != Direction::backward_data || p.groups > 1 || p.stride_w == 1 || p.dilation_w > 1 ||
      p.w < p.stride_w)
    return {};
  std::vector<TapConvolution> joined;
  std::vector<std::vector<Tap>> taps;  // theirs
  for (const TapConvolution& t : convolutions) {
    const auto same = std::find_if(joined.begin(), joined.end(), [&](const TapConvolution& other) {
      return other.out_d0 == t.out_d0 && other.out_h0 == t.out_h0;
    });
    const auto at = static_cast<std::size_t>(same - joined.begin());
    if (same == joined.end()) joined.push_back(t), taps.emplace_back();
    if (t.out_w0 == 0) joined[at] = t;
    for (Tap tap : t.taps) {
      tap.s -= t.out_w0;
      const bool known = std::any_of(taps[at].begin(), taps[at].end(), [&](const Tap& other) {
        return other.d == tap.d && other.h == tap.h && other.w == tap.w;
      });
      if (!known) taps[at].push_back(tap);
    }
  }
  if (std::any_of(joined.begin(), joined.end(), [](const TapConvolution& t) { return t.out_w0 != 0; }))
    return {};
  for (std::size_t i = 0; i < joined.size(); ++i) {
    joined[i].column_phases = p.stride_w, joined[i].out_channels *= p.stride_w;
    joined[i].set_taps(std::move(taps[i]));
  }
  return joined;
}

std::vector<std::vector<TapConvolution>> by_columns(const std::vector<TapConvolution>& convolutions) {
  std::vector<std::vector<TapConvolution>> all;
  for (const TapConvolution& t : convolutions) {
    if (t.out_step_w == 1 || t.taps.empty()) return {};
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& others) {
      return others.front().out_d0 == t.out_d0 && others.front().out_h0 == t.out_h0;
    });
    (same == all.end() ? all.emplace_back() : *same).push_back(t);
  }
  for (std::vector<TapConvolution>& group : all) {
    if (static_cast<i64>(group.size()) != group.front().out_step_w) return {};
    std::sort(group.begin(), group.end(),
              [](const TapConvolution& a, const TapConvolution& b) { return a.out_w0 < b.out_w0; });
  }
  return all;
}

namespace {

// Of the tensor that it is a slice of; 0: it is none.
i64 pitch_of(const TensorShape& s, Layout layout) {
  const i64 pitch = layout == Layout::nhwc ? s.stride_w : s.stride_n / s.stride_c;
  return pitch == s.c ? 0 : pitch;
}

}  // namespace

TapConvolution flattened(const TapConvolution& t, Layout layout) {
  const bool dense = t.taps.size() == 1 && t.taps[0].h == 0 && t.taps[0].w == 0 && t.step_h == 1 &&
                     t.step_w == 1 && t.out_step_h == 1 && t.out_step_w == 1 && t.rows == t.in.h &&
                     t.columns == t.in.w && (t.rows == 1 || t.in.stride_h == t.columns * t.in.stride_w);
  if (!dense || t.in.d > 1 || t.out.d > 1) return t;
  Problem product;  // in its sizes
  product.layout = layout, product.groups = t.groups;
  product.n = t.in.n, product.c = t.in.c, product.h = t.in.h, product.w = t.in.w, product.k = t.out.c;
  product.x_pitch = pitch_of(t.in, layout), product.y_pitch = pitch_of(t.out, layout);
  if (!rewrites::flatten.applies(product)) return t;
  product = rewrites::flatten(product).inner;
  TapConvolution flat = t;
  flat.rows = flat.image_rows = product.p(), flat.columns = product.q();
  flat.in = x_shape(product), flat.out = conv_shape(product);
  return flat;
}

std::optional<TapConvolution> without_stride(const TapConvolution& t) {
  const bool lone = t.taps.size() == 1 && t.taps[0].h == 0 && t.taps[0].w == 0 && t.step_h * t.step_w > 1;
  const bool whole = t.out_h0 == 0 && t.out_w0 == 0 && t.out_step_h == 1 && t.out_step_w == 1 &&
                     t.rows == t.out.h && t.columns == t.out.w && t.column_phases == 1;
  if (!lone || !whole || t.padded() || t.in.d > 1 || t.out.d > 1) return std::nullopt;
  TapConvolution dense = t;
  dense.in.h = t.rows, dense.in.w = t.columns;
  dense.in.stride_h *= t.step_h, dense.in.stride_w *= t.step_w;
  dense.step_h = dense.step_w = 1;
  return dense;
}

FilterView filter_view(const Problem& p, const Tap& tap, std::int64_t group) {
  const TensorShape w = w_shape(p);
  const i64 base = w.offset({group * (w.n / p.groups), 0, tap.t, tap.r, tap.s});
  if (is_adjoint(p)) return {base, w.stride_n, w.stride_c};
  return {base, w.stride_c, w.stride_n};
}

}  // namespace faltung
