// Operators that join, divide and repeat tensors, and gather by tables of indices.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "src/network/operator.hpp"
#include "src/network/pads.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// ---- several outputs or inputs

std::vector<Result> split(const Site& s) {
  const std::size_t outputs = s.node().outputs.size();
  const Shape& from = s.in(0).shape;
  const std::size_t axis = s.axis(s.node().integer("axis", 0), s.in(0).rank());
  std::vector<i64> parts;
  if (const auto given = s.integers("split", 1)) {
    parts = *given;
  } else {  // the last one may be smaller
    const i64 each =
        (from[axis] + static_cast<i64>(outputs) - 1) / static_cast<i64>(std::max<std::size_t>(outputs, 1));
    for (std::size_t i = 0; i < outputs; ++i) {
      parts.push_back(std::clamp<i64>(from[axis] - static_cast<i64>(i) * each, 0, each));
    }
  }
  s.require(parts.size() == outputs && std::accumulate(parts.begin(), parts.end(), i64{0}) == from[axis] &&
                std::ranges::all_of(parts, [](i64 p) { return p >= 0; }),
            fmt::format("its parts {} do not make up {}", to_string(parts), from[axis]));
  std::vector<Result> results;
  for (const i64 part : parts) {
    results.push_back({s.in(0).type, from});
    results.back().shape[axis] = part;
  }
  return results;
}
void evaluate_split(const Site& s, std::vector<Array>& out) {
  const Shape strides = contiguous_strides(s.in(0).shape);
  const std::size_t axis = s.axis(s.node().integer("axis", 0), s.in(0).rank());
  i64 begin = 0;
  for (Array& part : out) {
    Odometer at(part.shape, {strides});
    for (double& y : part.data) {
      y = s.in(0).data[begin + at.offset()];
      at.next();
    }
    begin += part.shape[axis] * strides[axis];
  }
}

std::vector<Result> concat(const Site& s) {
  Shape shape = s.in(0).shape;
  const std::size_t axis = s.axis(s.node().integer("axis", 1), s.in(0).rank());
  for (std::size_t i = 1; i < s.count(); ++i) {
    Shape other = s.in(i).shape;
    s.require(other.size() == shape.size(), "its inputs differ in their number of dimensions");
    shape[axis] += other[axis];
    other[axis] = shape[axis];
    s.require(other == shape, fmt::format("inputs of shapes {} and {} differ beside its axis",
                                          to_string(s.in(0).shape), to_string(s.in(i).shape)));
  }
  return with_shape(s, std::move(shape));
}
void evaluate_concat(const Site& s, std::vector<Array>& out) {
  const Shape strides = contiguous_strides(out[0].shape);
  const std::size_t axis = s.axis(s.node().integer("axis", 1), s.in(0).rank());
  i64 begin = 0;
  for (std::size_t i = 0; i < s.count(); ++i) {
    Odometer at(s.in(i).shape, {strides});
    for (i64 j = 0; j < elements(s.in(i).shape); ++j, at.next()) {
      out[0].data[static_cast<std::size_t>(begin + at.offset())] = s.in(i).data[j];
    }
    begin += s.in(i).shape[axis] * strides[axis];
  }
}

// ---- tables of indices: gather, pad, tile

std::vector<Result> gather(const Site& s) {
  const Shape &from = s.in(0).shape, &indices = s.in(1).shape;
  const auto axis = static_cast<i64>(s.axis(s.node().integer("axis", 0), s.in(0).rank()));
  Shape to(from.begin(), from.begin() + axis);
  to.insert(to.end(), indices.begin(), indices.end());
  to.insert(to.end(), from.begin() + axis + 1, from.end());
  return with_shape(s, std::move(to));
}
void evaluate_gather(const Site& s, std::vector<Array>& out) {
  const Shape& from = s.in(0).shape;
  const std::size_t axis = s.axis(s.node().integer("axis", 0), s.in(0).rank());
  const i64 inner = contiguous_strides(from)[axis], size = from[axis];
  const std::vector<i64> indices = s.integers(1);
  const i64 outer = elements(Shape(from.begin(), from.begin() + static_cast<i64>(axis)));
  auto to = out[0].data.begin();
  for (i64 o = 0; o < outer; ++o) {
    for (const i64 index : indices) {
      s.require(index >= -size && index < size, fmt::format("index {} in an axis of {}", index, size));
      const double* const row = s.in(0).data + (o * size + (index < 0 ? index + size : index)) * inner;
      to = std::copy_n(row, inner, to);
    }
  }
}

std::vector<Result> pad(const Site& s) {
  const Pads pads = read_pads(s);
  const std::string mode = s.node().text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    s.decline("the padding mode " + in_quotes(mode) + " is not known");
  Shape shape = s.in(0).shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    constexpr i64 kMost = i64{1} << 48;
    s.require(std::abs(pads.before[i]) < kMost && std::abs(pads.after[i]) < kMost, "a pad is too large");
    const i64 size = shape[i] + pads.before[i] + pads.after[i];
    s.require(size >= 0, "it takes away more than there is");
    s.require(mode == "constant" || shape[i] > 0 || size == 0, "nothing can be repeated of an empty axis");
    shape[i] = size;
  }
  return with_shape(s, std::move(shape));
}
void evaluate_pad(const Site& s, std::vector<Array>& out) {
  const Pads pads = read_pads(s);
  const std::string mode = s.node().text("mode", "constant");
  const double value = s.has(2) ? s.numbers(2).at(0) : s.node().number("value", 0);
  const Shape& from = s.in(0).shape;
  const Shape strides = contiguous_strides(from);
  Odometer at(out[0].shape, {});
  for (double& y : out[0].data) {
    i64 offset = 0;
    for (std::size_t d = 0; d < from.size() && offset >= 0; ++d) {
      const i64 index = padded_from(at.index()[d] - pads.before[d], from[d], mode);
      offset = index < 0 ? -1 : offset + index * strides[d];
    }
    y = offset < 0 ? value : s.in(0).data[offset];
    at.next();
  }
}

std::vector<Result> tile(const Site& s) {
  const std::vector<i64> repeats = s.integers(1);
  Shape shape = s.in(0).shape;
  s.require(repeats.size() == shape.size(), "it has not one repeat a dimension");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    s.require(repeats[i] >= 0 && repeats[i] < (i64{1} << 48) && shape[i] < (i64{1} << 14),
              "a repeat is negative or too large");
    shape[i] *= repeats[i];
  }
  return with_shape(s, std::move(shape));
}
void evaluate_tile(const Site& s, std::vector<Array>& out) {
  const Shape& from = s.in(0).shape;
  const Shape strides = contiguous_strides(from);
  Odometer at(out[0].shape, {});
  for (double& y : out[0].data) {
    i64 offset = 0;
    for (std::size_t d = 0; d < from.size(); ++d) offset += at.index()[d] % from[d] * strides[d];
    y = s.in(0).data[offset];
    at.next();
  }
}

constexpr Operator kJoinOperators[] = {
    {"Split", 1, 2, split, evaluate_split},    {"Concat", 1, kAny, concat, evaluate_concat},
    {"Gather", 2, 2, gather, evaluate_gather}, {"Pad", 1, 4, pad, evaluate_pad},
    {"Tile", 2, 2, tile, evaluate_tile},
};

}  // namespace

Pads read_pads(const Site& s) {
  const auto rank = static_cast<std::size_t>(s.in(0).rank());
  const auto given = s.integers("pads", 1);
  s.require(given.has_value(), "it has no pads");
  std::vector<std::size_t> axes(rank);
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  if (s.has(3)) axes = s.axes(s.integers(3), s.in(0).rank());
  s.require(given->size() == 2 * axes.size(), "it has not two pads an axis");
  Pads pads{std::vector<i64>(rank), std::vector<i64>(rank)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    pads.before[axes[i]] = (*given)[i];
    pads.after[axes[i]] = (*given)[axes.size() + i];
  }
  return pads;
}

i64 padded_from(i64 index, i64 size, const std::string& mode) {
  if (index >= 0 && index < size) return index;
  if (mode == "edge") return std::clamp<i64>(index, 0, size - 1);
  if (mode == "wrap") return (index % size + size) % size;
  if (mode != "reflect") return -1;
  if (size == 1) return 0;
  const i64 period = 2 * (size - 1);
  const i64 folded = (index % period + period) % period;
  return folded < size ? folded : period - folded;
}

std::span<const Operator> join_operators() { return kJoinOperators; }

}  // namespace faltung::network
