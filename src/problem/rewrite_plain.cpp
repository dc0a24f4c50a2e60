#include "src/problem/rewrite_plain.hpp"

#include <algorithm>

#include "src/problem/slide.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

// The same problem of so many dimensions; what it has of others is dropped.
Problem with_dimensions(Problem p, int dimensions) {
  const Problem usual;
  p.dimensions = dimensions;
  p.d = usual.d, p.t = usual.t, p.stride_d = usual.stride_d, p.dilation_d = usual.dilation_d;
  p.pad_front = p.pad_back = p.output_pad_d = 0;
  return p;
}

// From planes of the outer problem's tensor to those of the inner one's: element for element but where digits
// are set.
IndexMap plane_map(Operand of, const Problem& outer, const Problem& inner) {
  const TensorShape from = viewed(operand_shape(outer, of), View::planes);
  const TensorShape to = viewed(operand_shape(inner, of), View::planes);
  IndexMap map{of, {to.n, to.c, to.h, to.w}, {from.n, from.c, from.h, from.w}, {}, {}};
  for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) map.digits[axis] = {{map.size[axis], axis, 1}};
  return map;
}

Rewrite element_for_element(const Problem& p) {
  return {p, plane_map(Operand::x, p, p), plane_map(Operand::w, p, p), plane_map(Operand::y, p, p)};
}

// -------------------------------------------------------------------------------------- T x 1 x 1 filters

// Depth becomes height, the pixels of a plane the width.
PlainRewrite planes_as_rows(const Problem& p) {
  Problem q = with_dimensions(p, 2);
  q.h = p.d, q.w = p.h * p.w;
  q.r = p.t, q.stride_h = p.stride_d, q.dilation_h = p.dilation_d;
  q.pad_top = p.pad_front, q.pad_bottom = p.pad_back, q.output_pad_h = p.output_pad_d;
  q.dilation_w = 1;
  Rewrite r{q, plane_map(Operand::x, p, q), plane_map(Operand::w, p, q), plane_map(Operand::y, p, q)};
  for (IndexMap* map : {&r.x, &r.w, &r.y}) {
    const i64 depths = map->outer_size[kAxisH], pixels = map->outer_size[kAxisW];
    map->digits[kAxisW] = {{pixels, kAxisW, 1}, {depths, kAxisH, 1}};
  }
  return {std::move(r), View::planes};
}

// ---------------------------------------------------------------------------------------- taps as channels

// Channels with the taps among them: in nchw a channel's taps are neighbours, as they are in the filter; in
// nhwc a tap's channels are, within each group.
std::vector<Digit> channels_and_taps(Layout layout, Axis axis, i64 channels, i64 groups, i64 taps, i64 step) {
  if (layout == Layout::nchw) return {{taps, kAxisH, step}, {channels, axis, 1}};
  const i64 group = channels / groups;
  return {{group, axis, 1}, {taps, kAxisH, step}, {groups, axis, group}};
}

// Without the taps at its ends that meet zeros alone; their own gradients are zeros to be written.
Slide without_idle_taps(Slide s) {
  const auto idle = [&](i64 tap) {
    const i64 first = s.origin + tap * s.spacing;
    return first >= s.size || first + (s.count - 1) * s.stride < 0;
  };
  while (s.taps > 1 && idle(s.taps - 1)) --s.taps;
  while (s.taps > 1 && idle(0)) --s.taps, s.origin += s.spacing, s.tap += s.tap_step;
  return s;
}

PlainRewrite fold_depth(const Problem& p, const Slide& slide) {
  const Operand data = walks_over_x(p) ? Operand::x : Operand::y;
  const Operand other = walks_over_x(p) ? Operand::y : Operand::x;
  const i64 taps = std::max<i64>(1, slide.taps);
  Problem q = with_dimensions(p, 2);
  q.n = p.n * slide.count;
  (walks_over_x(p) ? q.c : q.k) *= taps;
  Rewrite r{q, plane_map(Operand::x, p, q), plane_map(Operand::w, p, q), plane_map(Operand::y, p, q)};
  IndexMap& walked = data == Operand::x ? r.x : r.y;
  walked.start[kAxisH] = slide.origin;
  walked.digits[kAxisN] = {{slide.count, kAxisH, slide.stride}, {p.n, kAxisN, 1}};
  walked.digits[kAxisC] =
      channels_and_taps(p.layout, kAxisC, walked.outer_size[kAxisC], p.groups, taps, slide.spacing);
  IndexMap& images = other == Operand::x ? r.x : r.y;
  images.start[kAxisH] = slide.first;
  images.digits[kAxisN] = {{slide.count, kAxisH, slide.step}, {p.n, kAxisN, 1}};
  const Axis folded = is_adjoint(p) ? kAxisN : kAxisC;
  r.w.start[kAxisH] = slide.tap;
  r.w.digits[folded] = channels_and_taps(p.layout, folded, r.w.outer_size[folded],
                                         folded == kAxisN ? p.groups : 1, taps, slide.tap_step);
  for (IndexMap* map : {&walked, &images, &r.w}) map->digits[kAxisH] = {{1, kAxisH, 1}};
  // No tap: zeros by zeros, for a weight may be infinite.
  if (slide.taps == 0) walked.outer_size = r.w.outer_size = {};
  return {std::move(r), View::planes};
}

std::vector<PlainRewrite> fold_depth(const Problem& p) {
  const i64 in = walks_over_x(p) ? p.d : p.z(), out = walks_over_x(p) ? p.z() : p.d;
  std::vector<PlainRewrite> all;
  for (const Slide& slide : is_adjoint(p)
                                ? backward_slides(in, out, p.t, p.stride_d, p.dilation_d, p.pad_front)
                                : forward_slides(in, out, p.t, p.stride_d, p.dilation_d, p.pad_front))
    all.push_back(
        fold_depth(p, p.direction == Direction::backward_weights ? slide : without_idle_taps(slide)));
  return all;
}

// -------------------------------------------------------------------------------------------- transposed

PlainRewrite exchanged(Rewrite r, View view = View::pixels) {
  for (IndexMap* map : {&r.x, &r.y}) map->of = map->of == Operand::x ? Operand::y : Operand::x;
  return {std::move(r), view};
}

std::vector<PlainRewrite> without_transposing(const Problem& p) {
  const Problem convolution = convolution_of(p);
  if (p.dimensions == 3) return {exchanged(element_for_element(convolution), View::planes)};
  if (p.epilogue.empty()) return {exchanged(unchanged(convolution))};
  std::vector<PlainRewrite> all;
  for (Rewrite& phase : data_phases(convolution)) {
    phase.inner.epilogue = p.epilogue;
    all.push_back(exchanged(std::move(phase)));
  }
  return all;
}

}  // namespace

bool has_planes_of_one_tap(const Problem& p) {
  return p.dimensions == 3 && p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 &&
         p.pad_bottom == 0 && p.pad_left == 0 && p.pad_right == 0;
}

TensorShape viewed(const TensorShape& s, View view) {
  if (view == View::pixels) return s;
  return {s.n, s.c, s.d, s.h * s.w, s.stride_n, s.stride_c, s.stride_d, s.stride_w};
}

std::vector<PlainRewrite> toward_plain(const Problem& p) {
  switch (p.dimensions) {
    case 1: {
      Rewrite r = unchanged(p);
      r.inner.dimensions = 2;
      return {{std::move(r), View::pixels}};
    }
    case 3:
      if (is_transposed(p) && p.epilogue.empty()) return without_transposing(p);
      if (has_planes_of_one_tap(p)) return {planes_as_rows(p)};
      return fold_depth(p);
    default:
      return without_transposing(p);
  }
}

}  // namespace faltung
