#include "src/algorithms/implicit_gemm_taps.hpp"

#include <algorithm>

namespace faltung {
namespace {

using i64 = std::int64_t;

TapConvolution forward(const Problem& p) {
  TapConvolution t{};
  t.groups = p.groups, t.in_channels = p.c / p.groups, t.out_channels = p.k / p.groups;
  t.rows = t.image_rows = p.p(), t.columns = p.q();
  t.step_h = p.stride_h, t.step_w = p.stride_w;
  t.out_step_h = t.out_step_w = 1;
  t.in = x_shape(p), t.out = conv_shape(p);
  std::vector<Tap> taps;
  for (i64 r = 0; r < p.r; ++r) {
    for (i64 s = 0; s < p.s; ++s) {
      taps.push_back({r * p.dilation_h - p.pad_top, s * p.dilation_w - p.pad_left, r, s});
    }
  }
  t.set_taps(std::move(taps));
  return t;
}

// Pixels (row, column) + i * stride of x's gradient: each output position they were read from at some tap is
// a whole number of output pixels away from i.
TapConvolution phase(const Problem& p, i64 row, i64 column) {
  TapConvolution t{};
  t.groups = p.groups, t.in_channels = p.k / p.groups, t.out_channels = p.c / p.groups;
  t.rows = t.image_rows = (p.h - row + p.stride_h - 1) / p.stride_h;
  t.columns = (p.w - column + p.stride_w - 1) / p.stride_w;
  t.step_h = t.step_w = 1;
  t.out_h0 = row, t.out_w0 = column, t.out_step_h = p.stride_h, t.out_step_w = p.stride_w;
  t.in = conv_shape(p), t.out = x_shape(p);
  std::vector<Tap> taps;
  for (i64 r = 0; r < p.r; ++r) {
    const i64 h = row + p.pad_top - r * p.dilation_h;
    if (h % p.stride_h != 0) continue;
    for (i64 s = 0; s < p.s; ++s) {
      const i64 w = column + p.pad_left - s * p.dilation_w;
      if (w % p.stride_w == 0) taps.push_back({h / p.stride_h, w / p.stride_w, r, s});
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

bool TapConvolution::padded() const {
  return min_h() < 0 || min_w() < 0 || (image_rows - 1) * step_h + min_h() + extent_h() > in.h ||
         (columns - 1) * step_w + min_w() + extent_w() > in.w;
}

std::vector<TapConvolution> tap_convolutions(const Problem& p) {
  if (p.direction == Direction::forward) return {forward(p)};
  std::vector<TapConvolution> phases;
  for (i64 row = 0; row < std::min(p.stride_h, p.h); ++row) {
    for (i64 column = 0; column < std::min(p.stride_w, p.w); ++column)
      phases.push_back(phase(p, row, column));
  }
  return phases;
}

TapConvolution flattened(const TapConvolution& t, Layout layout) {
  const bool dense = t.taps.size() == 1 && t.taps[0].h == 0 && t.taps[0].w == 0 && t.step_h == 1 &&
                     t.step_w == 1 && t.out_step_h == 1 && t.out_step_w == 1 && t.rows == t.in.h &&
                     t.columns == t.in.w;
  if (!dense) return t;
  TapConvolution flat = t;
  const i64 images = layout == Layout::nhwc ? 1 : t.in.n;
  flat.rows = flat.image_rows = 1, flat.columns = t.in.n / images * t.in.h * t.in.w;
  flat.in = make_shape(layout, images, t.in.c, 1, flat.columns);
  flat.out = make_shape(layout, images, t.out.c, 1, flat.columns);
  return flat;
}

FilterView filter_view(const Problem& p, const Tap& tap, std::int64_t group) {
  const TensorShape w = w_shape(p);
  const i64 base = w.offset(group * (p.k / p.groups), 0, tap.r, tap.s);
  if (p.direction == Direction::backward_data) return {base, w.stride_n, w.stride_c};
  return {base, w.stride_c, w.stride_n};
}

}  // namespace faltung
