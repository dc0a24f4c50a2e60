// Operators that say how elements are to be seen: in another shape, or with other strides; and what makes
// shapes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/network/operator.hpp"
#include "src/network/views.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

void same_elements(const Site& s, std::vector<Array>& out) {
  const double* const x = s.in(0).data;
  std::copy_n(x, out[0].data.size(), out[0].data.begin());
}

// ---- another shape, the same elements

std::vector<Result> reshape(const Site& s) {
  const Shape& from = s.in(0).shape;
  Shape to = s.integers(1);
  const bool zero_is_zero = s.node().integer("allowzero", 0) != 0;
  const i64 all = elements(from), most = all > 0 ? all : std::numeric_limits<i64>::max();
  i64 known = 1;
  std::size_t open = to.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && !zero_is_zero) {
      s.require(i < from.size(), "a 0 in its shape stands for a dimension that its input has not");
      to[i] = from[i];
    }
    if (to[i] == -1) {
      s.require(open == to.size(), "two sizes are left open");
      open = i;
    } else {
      s.require(to[i] >= 0, "a negative size");
      s.require(to[i] == 0 || known <= most / to[i], "its shape is too large");
      known *= to[i];
    }
  }
  if (open < to.size()) to[open] = known == 0 ? 0 : all / known;
  s.require(elements(to) == all, fmt::format("{} cannot become {}", to_string(from), to_string(to)));
  return with_shape(s, std::move(to));
}

std::vector<Result> flatten(const Site& s) {
  const Shape& from = s.in(0).shape;
  const i64 rank = s.in(0).rank(), given = s.node().integer("axis", 1);
  const auto axis = given == rank ? from.size() : s.axis(given, std::max<i64>(rank, 1));
  const Shape front(from.begin(), from.begin() + static_cast<i64>(axis));
  const Shape back(from.begin() + static_cast<i64>(axis), from.end());
  return with_shape(s, {elements(front), elements(back)});
}

std::vector<Result> squeeze(const Site& s) {
  const Shape& from = s.in(0).shape;
  const auto given = s.integers("axes", 1);
  Shape to;
  std::vector<std::size_t> axes;
  if (given) axes = s.axes(*given, s.in(0).rank());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool drop = given ? std::find(axes.begin(), axes.end(), i) != axes.end() : from[i] == 1;
    s.require(!drop || from[i] == 1, fmt::format("dimension {} of {} is not 1", i, to_string(from)));
    if (!drop) to.push_back(from[i]);
  }
  return with_shape(s, std::move(to));
}

std::vector<Result> unsqueeze(const Site& s) {
  const Shape& from = s.in(0).shape;
  const auto given = s.integers("axes", 1);
  s.require(given.has_value(), "it has no axes");
  const i64 rank = s.in(0).rank() + static_cast<i64>(given->size());
  Shape to(static_cast<std::size_t>(rank), -1);
  for (const std::size_t axis : s.axes(*given, rank)) to[axis] = 1;
  std::size_t next = 0;
  for (i64& size : to) {
    if (size == -1) size = from[next++];
  }
  return with_shape(s, std::move(to));
}

// ---- what is known of a shape

std::vector<i64> shape_part(const Site& s) {
  const Shape& shape = s.in(0).shape;
  const i64 rank = s.in(0).rank();
  const auto bound = [&](const char* key, i64 otherwise) {
    const i64 given = s.node().integer(key, otherwise);
    return std::clamp<i64>(given < 0 ? given + rank : given, 0, rank);
  };
  const i64 begin = bound("start", 0), end = std::max(begin, bound("end", rank));
  return {shape.begin() + begin, shape.begin() + end};
}
std::vector<Result> shape_of(const Site& s) {
  return {{Type::i64, {static_cast<i64>(shape_part(s).size())}}};
}
void evaluate_shape(const Site& s, std::vector<Array>& out) {
  std::ranges::copy(shape_part(s), out[0].data.begin());
}
std::vector<Result> size_of_all(const Site&) { return {{Type::i64, {}}}; }
void evaluate_size(const Site& s, std::vector<Array>& out) {
  out[0].data[0] = static_cast<double>(elements(s.in(0).shape));
}

Array fill_value(const Site& s) {
  const auto found = s.node().attributes.find("value");
  if (found == s.node().attributes.end()) return {Type::f32, {1}, {0}};
  const auto* constant = std::get_if<std::shared_ptr<const Constant>>(&found->second);
  s.require(constant != nullptr && (*constant)->data != nullptr && elements((*constant)->shape) == 1,
            "its value is not one number");
  return decode(**constant);
}
std::vector<Result> constant_of_shape(const Site& s) {
  Shape shape = s.integers(0);
  for (const i64 size : shape) s.require(size >= 0, "a negative size");
  return {{fill_value(s).type, std::move(shape)}};
}
void evaluate_constant_of_shape(const Site& s, std::vector<Array>& out) {
  std::ranges::fill(out[0].data, fill_value(s).data[0]);
}

std::vector<Result> range(const Site& s) {
  const std::vector<double> from = s.numbers(0), to = s.numbers(1), step = s.numbers(2);
  s.require(from.size() == 1 && to.size() == 1 && step.size() == 1 && step[0] != 0,
            "its bounds are not numbers");
  const double count = std::ceil((to[0] - from[0]) / step[0]);
  s.require(count < 0x1p48, "it has too many elements");
  return {{s.in(0).type, {static_cast<i64>(std::max(0.0, count))}}};
}
void evaluate_range(const Site& s, std::vector<Array>& out) {
  double value = s.in(0).data[0];
  for (double& y : out[0].data) y = value, value += s.in(2).data[0];
}

// ---- strided views

template <View (*kView)(const Site&)>
std::vector<Result> view_shape(const Site& s) {
  return with_shape(s, kView(s).shape);
}
template <View (*kView)(const Site&)>
void evaluate_view(const Site& s, std::vector<Array>& out) {
  View view = kView(s);
  Odometer at(view.shape, {view.strides});
  for (double& y : out[0].data) {
    y = s.in(0).data[view.begin + at.offset()];
    at.next();
  }
}

std::vector<Result> depth_to_space(const Site& s) {
  const Shape v = depth_to_space_view(s).shape;
  return with_shape(s, {v[0], v[1], v[2] * v[3], v[4] * v[5]});
}
std::vector<Result> space_to_depth(const Site& s) {
  const Shape v = space_to_depth_view(s).shape;
  return with_shape(s, {v[0], v[1] * v[2] * v[3], v[4], v[5]});
}

constexpr Operator kShapeOperators[] = {
    {"Reshape", 2, 2, reshape, same_elements},
    {"Flatten", 1, 1, flatten, same_elements},
    {"Squeeze", 1, 2, squeeze, same_elements},
    {"Unsqueeze", 1, 2, unsqueeze, same_elements},
    {"Shape", 1, 1, shape_of, evaluate_shape},
    {"Size", 1, 1, size_of_all, evaluate_size},
    {"ConstantOfShape", 1, 1, constant_of_shape, evaluate_constant_of_shape},
    {"Range", 3, 3, range, evaluate_range},
    {"Transpose", 1, 1, view_shape<transpose_view>, evaluate_view<transpose_view>},
    {"Expand", 2, 2, view_shape<expand_view>, evaluate_view<expand_view>},
    {"Slice", 1, 5, view_shape<slice_view>, evaluate_view<slice_view>},
    {"DepthToSpace", 1, 1, depth_to_space, evaluate_view<depth_to_space_view>},
    {"SpaceToDepth", 1, 1, space_to_depth, evaluate_view<space_to_depth_view>},
};

}  // namespace

std::span<const Operator> shape_operators() { return kShapeOperators; }

}  // namespace faltung::network
