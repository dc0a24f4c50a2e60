#include "src/problem/rewrite.hpp"

#include <algorithm>
#include <atomic>

#include "src/problem/integers.hpp"
#include "src/problem/slide.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

Index size_of(const TensorShape& shape) { return {shape.n, shape.c, shape.h, shape.w}; }

i64 stride_of(const TensorShape& shape, Axis axis) {
  const i64 strides[] = {shape.stride_n, shape.stride_c, shape.stride_h, shape.stride_w};
  return strides[axis];
}

// Element for element.
IndexMap same(Operand of, const TensorShape& shape) {
  IndexMap map{of, size_of(shape), size_of(shape), {}, {}};
  for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) map.digits[axis] = {{map.size[axis], axis, 1}};
  return map;
}

bool pools(const Problem& p) { return p.epilogue.pool.kind != PoolKind::none; }
bool pads(const Problem& p) {
  return p.pad_top != 0 || p.pad_bottom != 0 || p.pad_left != 0 || p.pad_right != 0;
}

// Of a tensor that is rewritten: from outer to inner sizes, before its digits are set.
IndexMap resized(Operand of, const Problem& outer, const Problem& inner) {
  IndexMap map = same(of, operand_shape(outer, of));
  map.size = size_of(operand_shape(inner, of));
  return map;
}

// -------------------------------------------------------------------------------------------- fold_rows

std::string fold_rows_declines(const Problem& p) {
  if (p.s == 1) return "its filter is one column wide: there is nothing to fold";
  if (p.direction == Direction::backward_data)
    return "folded rows overlap: an element of x's gradient would be the sum of several";
  return "";
}

Rewrite fold_rows(const Problem& p) {
  Rewrite r = unchanged(p);
  Problem& q = r.inner;
  q.w = p.q(), q.c = p.c * p.s, q.s = 1;
  q.stride_w = q.dilation_w = 1;
  q.pad_left = q.pad_right = 0;
  const i64 group_c = p.c / p.groups;
  r.x = resized(Operand::x, p, q);
  r.x.start[kAxisW] = -p.pad_left;
  r.x.digits[kAxisC] = {{group_c, kAxisC, 1}, {p.s, kAxisW, p.dilation_w}, {p.groups, kAxisC, group_c}};
  r.x.digits[kAxisW] = {{q.w, kAxisW, p.stride_w}};
  r.w = resized(Operand::w, p, q);
  r.w.digits[kAxisC] = {{group_c, kAxisC, 1}, {p.s, kAxisW, 1}};
  r.w.digits[kAxisW] = {{1, kAxisW, 1}};
  return r;
}

// --------------------------------------------------------------------------------------- space_to_depth

std::string space_to_depth_declines(const Problem& p) {
  if (p.stride_h == 1 && p.stride_w == 1) return "its strides are 1: there are no blocks of pixels";
  if (p.dilation_h != 1 || p.dilation_w != 1) return "a dilated filter takes not all pixels of a block";
  if (p.r < p.stride_h || p.s < p.stride_w)
    return "a filter smaller than its strides takes not all pixels of a block";
  return "";
}

Rewrite space_to_depth(const Problem& p) {
  Rewrite r = unchanged(p);
  Problem& q = r.inner;
  q.c = p.c * p.stride_h * p.stride_w;
  q.r = ceil_div(p.r, p.stride_h), q.s = ceil_div(p.s, p.stride_w);
  q.h = p.p() + q.r - 1, q.w = p.q() + q.s - 1;
  q.stride_h = q.stride_w = 1;
  q.pad_top = q.pad_bottom = q.pad_left = q.pad_right = 0;
  const i64 group_c = p.c / p.groups;
  for (IndexMap* map : {&r.x, &r.w}) {
    *map = resized(map->of, p, q);
    map->digits[kAxisC] = {{group_c, kAxisC, 1}, {p.stride_w, kAxisW, 1}, {p.stride_h, kAxisH, 1}};
    map->digits[kAxisH] = {{map->size[kAxisH], kAxisH, p.stride_h}};
    map->digits[kAxisW] = {{map->size[kAxisW], kAxisW, p.stride_w}};
  }
  r.x.digits[kAxisC].push_back({p.groups, kAxisC, group_c});
  r.x.start[kAxisH] = -p.pad_top, r.x.start[kAxisW] = -p.pad_left;
  return r;
}

// ----------------------------------------------------------------------------------------- 1x1 filters

std::string thin_declines(const Problem& p) {
  if (p.r != 1 || p.s != 1) return "a filter larger than 1x1 takes more than the pixels of its strides";
  if (p.stride_h == 1 && p.stride_w == 1 && !pads(p)) return "it takes every pixel";
  return "";
}

Rewrite thin(const Problem& p) {
  Rewrite r = unchanged(p);
  Problem& q = r.inner;
  q.h = p.p(), q.w = p.q();
  q.stride_h = q.stride_w = 1;
  q.pad_top = q.pad_bottom = q.pad_left = q.pad_right = 0;
  r.x = resized(Operand::x, p, q);
  r.x.start[kAxisH] = -p.pad_top, r.x.start[kAxisW] = -p.pad_left;
  r.x.digits[kAxisH] = {{q.h, kAxisH, p.stride_h}};
  r.x.digits[kAxisW] = {{q.w, kAxisW, p.stride_w}};
  return r;
}

std::string flatten_declines(const Problem& p) {
  if (p.r != 1 || p.s != 1) return "a filter larger than 1x1 takes neighbours in two dimensions";
  if (p.stride_h != 1 || p.stride_w != 1 || pads(p))
    return "its results are not the input's pixels, each once";
  if (pools(p)) return "windows of a pool are of two dimensions";
  return "";
}

Rewrite flatten(const Problem& p) {
  Rewrite r = unchanged(p);
  Problem& q = r.inner;
  q.n = p.layout == Layout::nhwc ? 1 : p.n;
  q.h = 1, q.w = p.n / q.n * p.h * p.w;
  for (IndexMap* map : {&r.x, &r.y}) {
    *map = resized(map->of, p, q);
    map->digits[kAxisN] = {{q.n, kAxisN, 1}};
    map->digits[kAxisH] = {{1, kAxisH, 1}};
    map->digits[kAxisW] = {{p.w, kAxisW, 1}, {p.h, kAxisH, 1}, {p.n / q.n, kAxisN, 1}};
  }
  return r;
}

// ---------------------------------------------------------------------------------------- change_layout

std::string change_layout_declines(const Problem&) { return ""; }

Rewrite change_layout(const Problem& p) {
  Rewrite r = unchanged(p);
  r.inner.layout = p.layout == Layout::nchw ? Layout::nhwc : Layout::nchw;
  return r;
}

// ---------------------------------------------------------------------------------------- backward_data

// What a slide over y's gradient reads of it, and the zeros around that.
struct Window {
  i64 begin, size, before, after;
};

Window window(const Slide& s) {
  const i64 lowest = s.origin, highest = s.origin + (s.taps - 1) * s.spacing + s.count - 1;
  const i64 begin = std::max<i64>(lowest, 0), last = std::min(highest, s.size - 1);
  return {begin, last - begin + 1, std::max<i64>(-lowest, 0), std::max<i64>(highest - (s.size - 1), 0)};
}

// The pixels of x's gradient that two slides write, over y's gradient.
Rewrite data_phase(const Problem& p, const Slide& rows, const Slide& columns) {
  const Window h = window(rows), w = window(columns);
  const bool zero = rows.taps == 0 || columns.taps == 0 || h.size <= 0 || w.size <= 0;
  const i64 group_c = p.c / p.groups, group_k = p.k / p.groups;
  Rewrite r;
  Problem& q = r.inner = p;
  q.direction = Direction::forward;
  q.c = p.k, q.k = p.c;
  q.stride_h = q.stride_w = 1;
  if (zero) {
    q.h = rows.count, q.w = columns.count;
    q.r = q.s = q.dilation_h = q.dilation_w = 1;
    q.pad_top = q.pad_bottom = q.pad_left = q.pad_right = 0;
  } else {
    q.h = h.size, q.w = w.size, q.r = rows.taps, q.s = columns.taps;
    q.dilation_h = q.r == 1 ? 1 : rows.spacing, q.dilation_w = q.s == 1 ? 1 : columns.spacing;
    q.pad_top = h.before, q.pad_bottom = h.after, q.pad_left = w.before, q.pad_right = w.after;
  }
  r.x = same(Operand::y, conv_shape(p));
  r.x.size = size_of(x_shape(q));
  r.x.start[kAxisH] = h.begin, r.x.start[kAxisW] = w.begin;
  r.x.digits[kAxisH] = {{q.h, kAxisH, 1}}, r.x.digits[kAxisW] = {{q.w, kAxisW, 1}};
  // The filter of one group, its input and output channels exchanged, its taps from the last one back.
  r.w = same(Operand::w, w_shape(p));
  r.w.size = size_of(w_shape(q));
  r.w.start[kAxisH] = rows.tap, r.w.start[kAxisW] = columns.tap;
  r.w.digits[kAxisN] = {{group_c, kAxisC, 1}, {p.groups, kAxisN, group_k}};
  r.w.digits[kAxisC] = {{group_k, kAxisN, 1}};
  r.w.digits[kAxisH] = {{q.r, kAxisH, rows.tap_step}};
  r.w.digits[kAxisW] = {{q.s, kAxisW, columns.tap_step}};
  r.y = same(Operand::x, x_shape(p));
  r.y.size = size_of(conv_shape(q));
  r.y.start[kAxisH] = rows.first, r.y.start[kAxisW] = columns.first;
  r.y.digits[kAxisH] = {{q.p(), kAxisH, rows.step}}, r.y.digits[kAxisW] = {{q.q(), kAxisW, columns.step}};
  if (zero) r.x.outer_size = r.w.outer_size = {};
  return r;
}

std::string data_as_forward_declines(const Problem& p) {
  if (p.direction != Direction::backward_data)
    return std::string("it is ") + name(p.direction) + ", not bwd_d";
  if (p.stride_h != 1 || p.stride_w != 1) return "with strides it is several convolutions: see data_phases";
  return "";
}

Rewrite data_as_forward(const Problem& p) { return data_phases(p).front(); }

}  // namespace

std::optional<Index> IndexMap::along(Axis axis, i64 i) const {
  Index moved{};
  for (const Digit& digit : digits[axis]) {
    moved[digit.to] += i % digit.count * digit.step;
    i /= digit.count;
  }
  if (i != 0) return {};
  return moved;
}

std::optional<Index> IndexMap::operator()(const Index& inner) const {
  if (!diagonal.has(inner)) return {};
  Index outer = start;
  for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) {
    const std::optional<Index> moved = along(axis, inner[axis]);
    if (!moved) return {};
    for (std::size_t to = 0; to < kAxes; ++to) outer[to] += (*moved)[to];
  }
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (outer[axis] < 0 || outer[axis] >= outer_size[axis]) return {};
  }
  return outer;
}

StridedView IndexMap::view(const TensorShape& outer, const Index& first) const {
  const std::optional<Index> there = (*this)(first);
  if (!there) throw Error(Status::internal, "a view begins where nothing comes from");
  StridedView view{};
  view.offset = outer.offset((*there)[kAxisN], (*there)[kAxisC], (*there)[kAxisH], (*there)[kAxisW]);
  for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) {
    const Digit& fastest = digits[axis].front();
    view.strides[axis] = fastest.step * stride_of(outer, fastest.to);
  }
  return view;
}

bool IndexMap::is_in_place(const TensorShape& inner, const TensorShape& outer) const {
  if (start != Index{} || is_zero() || diagonal.groups > 1) return false;
  if (inner.elements() != outer.elements()) return false;
  for (const Axis axis : {kAxisN, kAxisC, kAxisH, kAxisW}) {
    i64 counted = 1;
    for (const Digit& digit : digits[axis]) {
      const i64 here = stride_of(inner, axis) * counted, there = digit.step * stride_of(outer, digit.to);
      if (digit.count > 1 && here != there) return false;
      counted *= digit.count;
    }
    if (counted != size[axis]) return false;
  }
  return true;
}

const IndexMap& Rewrite::result() const { return map(result_operand(inner.direction)); }

Operand result_operand(Direction direction) {
  return direction == Direction::forward         ? Operand::y
         : direction == Direction::backward_data ? Operand::x
                                                 : Operand::w;
}

TensorShape operand_shape(const Problem& p, Operand operand) {
  return operand == Operand::x ? x_shape(p) : operand == Operand::w ? w_shape(p) : y_shape(p);
}

namespace {
std::atomic<std::size_t> rules_asked{0};
}  // namespace

std::size_t rewrites_asked() { return rules_asked; }

std::string RewriteRule::why_not(const Problem& p) const {
  ++rules_asked;
  if (!is_plain(p)) return "it is not of two dimensions, or transposed: see toward_plain";
  std::string why = declines(p);
  if (!why.empty()) return why;
  try {
    validate(make(p).inner);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Rewrite RewriteRule::operator()(const Problem& p) const {
  const std::string why = why_not(p);
  if (why.empty()) return make(p);
  throw Error(Status::bad_problem, std::string(name) + " does not apply to " + to_string(p) + ": " + why);
}

namespace rewrites {

const RewriteRule fold_rows{"fold_rows", fold_rows_declines, faltung::fold_rows};
const RewriteRule space_to_depth{"space_to_depth", space_to_depth_declines, faltung::space_to_depth};
const RewriteRule thin{"thin", thin_declines, faltung::thin};
const RewriteRule flatten{"flatten", flatten_declines, faltung::flatten};
const RewriteRule change_layout{"change_layout", change_layout_declines, faltung::change_layout};
const RewriteRule data_as_forward{"data_as_forward", data_as_forward_declines, faltung::data_as_forward};

}  // namespace rewrites

Rewrite unchanged(const Problem& p) {
  return {p, same(Operand::x, x_shape(p)), same(Operand::w, w_shape(p)), same(Operand::y, y_shape(p))};
}

Rewrite forward_form(const Problem& p) {
  return p.direction == Direction::forward ? unchanged(p) : rewrites::data_as_forward(p);
}

std::vector<Rewrite> data_phases(const Problem& p) {
  if (p.direction != Direction::backward_data)
    throw Error(Status::bad_problem, "phases are of bwd_d, not of " + to_string(p));
  std::vector<Rewrite> phases;
  for (const Slide& rows : backward_slides(p.p(), p.h, p.r, p.stride_h, p.dilation_h, p.pad_top)) {
    for (const Slide& columns : backward_slides(p.q(), p.w, p.s, p.stride_w, p.dilation_w, p.pad_left))
      phases.push_back(data_phase(p, rows, columns));
  }
  return phases;
}

Rewrite pad_channels(Rewrite r, i64 unit) {
  if (r.inner.groups != 1)
    throw Error(Status::bad_problem, "channels of groups are not padded: " + to_string(r.inner));
  r.inner.c = r.x.size[kAxisC] = r.w.size[kAxisC] = round_up(r.inner.c, unit);
  return r;
}

Rewrite merge_groups(Rewrite r, i64 together) {
  Problem& p = r.inner;
  if (together < 1 || p.groups % together != 0) {
    throw Error(Status::bad_problem, std::to_string(p.groups) + " groups do not become one by " +
                                         std::to_string(together) + ": " + to_string(p));
  }
  if (together == 1) return r;
  r.w.diagonal = {p.k / p.groups, p.c / p.groups, together};
  r.w.digits[kAxisC].push_back({together, kAxisC, 0});
  r.w.size[kAxisC] *= together;
  p.groups /= together;
  return r;
}

}  // namespace faltung
