#include "src/algorithms/implicit_gemm_taps.hpp"

#include <algorithm>

#include "src/problem/integers.hpp"
#include "src/problem/rewrite.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// A dense convolution that a rewrite makes of the problem, over the problem's own tensors.
TapConvolution taps_of(const Problem& p, const Rewrite& rewrite) {
  const Problem& q = rewrite.inner;
  TapConvolution t{};
  t.groups = q.groups, t.in_channels = q.c / q.groups, t.out_channels = q.k / q.groups;
  t.rows = t.image_rows = q.p(), t.columns = q.q();
  t.step_h = q.stride_h, t.step_w = q.stride_w;
  t.out_h0 = rewrite.y.start[kAxisH], t.out_w0 = rewrite.y.start[kAxisW];
  t.out_step_h = rewrite.y.digits[kAxisH].front().step, t.out_step_w = rewrite.y.digits[kAxisW].front().step;
  const bool forward = p.direction == Direction::forward;
  t.in = forward ? x_shape(p) : conv_shape(p), t.out = forward ? conv_shape(p) : x_shape(p);
  if (rewrite.x.is_zero()) return t;
  std::vector<Tap> taps;
  for (i64 r = 0; r < q.r; ++r) {
    for (i64 s = 0; s < q.s; ++s) {
      const Index from = *rewrite.w({0, 0, r, s});
      taps.push_back({rewrite.first_row() + r * q.dilation_h, rewrite.first_column() + s * q.dilation_w,
                      from[kAxisH], from[kAxisW]});
    }
  }
  t.set_taps(std::move(taps));
  return t;
}

}  // namespace

void TapConvolution::set_taps(std::vector<Tap> in_any_order) {
  taps = std::move(in_any_order);
  std::sort(taps.begin(), taps.end(),
            [](const Tap& a, const Tap& b) { return a.h != b.h ? a.h < b.h : a.w < b.w; });
  if (taps.empty()) return;
  const auto [left, right] =
      std::minmax_element(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.w < b.w; });
  min_h_ = taps.front().h, extent_h_ = taps.back().h - min_h_ + 1;
  min_w_ = left->w, extent_w_ = right->w - min_w_ + 1;
}

std::string TapConvolution::tap_words() const {
  std::string words = "taps";
  for (const Tap& tap : taps) words += " " + std::to_string(tap.r) + "." + std::to_string(tap.s);
  return words;
}

bool TapConvolution::padded() const {
  return min_h() < 0 || min_w() < 0 || (image_rows - 1) * step_h + min_h() + extent_h() > in.h ||
         (columns - 1) * step_w + min_w() + extent_w() > in.w;
}

std::vector<TapConvolution> tap_convolutions(const Problem& p) {
  if (p.direction == Direction::forward) return {taps_of(p, unchanged(p))};
  std::vector<TapConvolution> phases;
  for (const Rewrite& phase : data_phases(p)) phases.push_back(taps_of(p, phase));
  return phases;
}

TapConvolution flattened(const TapConvolution& t, Layout layout) {
  const bool dense = t.taps.size() == 1 && t.taps[0].h == 0 && t.taps[0].w == 0 && t.step_h == 1 &&
                     t.step_w == 1 && t.out_step_h == 1 && t.out_step_w == 1 && t.rows == t.in.h &&
                     t.columns == t.in.w;
  if (!dense) return t;
  Problem product;  // in its sizes
  product.layout = layout, product.groups = t.groups;
  product.n = t.in.n, product.c = t.in.c, product.h = t.in.h, product.w = t.in.w, product.k = t.out.c;
  if (!rewrites::flatten.applies(product)) return t;
  product = rewrites::flatten(product).inner;
  TapConvolution flat = t;
  flat.rows = flat.image_rows = product.p(), flat.columns = product.q();
  flat.in = x_shape(product), flat.out = conv_shape(product);
  return flat;
}

FilterView filter_view(const Problem& p, const Tap& tap, std::int64_t group) {
  const TensorShape w = w_shape(p);
  const i64 base = w.offset(group * (p.k / p.groups), 0, tap.r, tap.s);
  if (p.direction == Direction::backward_data) return {base, w.stride_n, w.stride_c};
  return {base, w.stride_c, w.stride_n};
}

}  // namespace faltung
