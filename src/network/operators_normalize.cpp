// Normalizations.
#include <algorithm>
#include <cmath>

#include "src/network/moments.hpp"
#include "src/network/reduction.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

double epsilon(const Site& s) { return s.node().number("epsilon", 1e-5f); }

struct Moments {
  double mean, inverse;  // one over the standard deviation
};
Moments moments(const double* x, i64 count, double epsilon) {
  double sum = 0, squares = 0;
  for (i64 i = 0; i < count; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(count);
  for (i64 i = 0; i < count; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<double>(count) + epsilon)};
}

i64 channels(const Site& s) {
  s.require(s.in(0).rank() >= 2, "it needs a tensor with channels");
  return s.in(0).shape[1];
}
void require_length(const Site& s, std::size_t input, i64 length) {
  s.require(elements(s.in(input).shape) == length, "an input has not one element a channel");
}

std::vector<Result> batch(const Site& s) {
  if (s.node().integer("training_mode", 0) != 0 || s.node().outputs.size() > 1)
    s.decline("training mode is not known");
  for (std::size_t i = 1; i < 5; ++i) require_length(s, i, channels(s));
  return like_input(s);
}
void evaluate_batch(const Site& s, std::vector<Array>& out) {
  const Extent e = extent(s.in(0).shape, 1, 2);
  for (std::size_t i = 0; i < out[0].data.size(); ++i) {
    const i64 c = static_cast<i64>(i) / e.inner % e.length;
    const double inverse = 1 / std::sqrt(s.in(4).data[c] + epsilon(s));
    out[0].data[i] = (s.in(0).data[i] - s.in(3).data[c]) * inverse * s.in(1).data[c] + s.in(2).data[c];
  }
}

// Each channel of each image, or each group of channels, on its own. Scales and biases are a channel's, in
// GroupNormalization before opset 21 a group's.
i64 groups(const Site& s) {
  return s.node().op == "GroupNormalization" ? s.node().integer("num_groups", 1) : channels(s);
}
std::vector<Result> group(const Site& s) {
  const i64 c = channels(s), g = groups(s);
  s.require(g > 0 && c % g == 0, "its groups do not divide the channels");
  const i64 length = s.node().op == "GroupNormalization" && s.opset() < 21 ? g : c;
  require_length(s, 1, length), require_length(s, 2, length);
  return like_input(s);
}
void evaluate_group(const Site& s, std::vector<Array>& out) {
  const i64 c = channels(s), g = groups(s), n = s.in(0).shape[0];
  const i64 row = elements(s.in(0).shape) / std::max<i64>(1, n * g), plane = row / (c / g);
  const i64 parameters = elements(s.in(1).shape);
  for (i64 r = 0; r < n * g; ++r) {
    const double* const x = s.in(0).data + r * row;
    const Moments m = moments(x, row, epsilon(s));
    for (i64 i = 0; i < row; ++i) {
      const i64 at = (r % g * (c / g) + i / plane) * parameters / c;
      out[0].data[static_cast<std::size_t>(r * row + i)] =
          (x[i] - m.mean) * m.inverse * s.in(1).data[at] + s.in(2).data[at];
    }
  }
}

// Over all dimensions from the axis on, or groups of an image's channels. LayerNormalization's other results
// are the moments.
Extent layer_extent(const Site& s) {
  if (standardizes_groups(s.node())) return rows_of_groups(s.in(0).shape, s.node());
  const std::size_t axis = s.axis(s.node().integer("axis", -1), s.in(0).rank());
  return extent(s.in(0).shape, axis, s.in(0).shape.size());
}
std::vector<Result> layer(const Site& s) {
  const Extent e = layer_extent(s);
  for (std::size_t i = 1; i < s.count(); ++i) {
    if (s.has(i))
      s.require(elements(s.in(i).shape) == e.length, "its scale or bias is not of the normalized shape");
  }
  std::vector<Result> results = like_input(s);
  Shape kept = s.in(0).shape;
  for (std::size_t d = s.axis(s.node().integer("axis", -1), s.in(0).rank()); d < kept.size(); ++d)
    kept[d] = 1;
  results.push_back({s.in(0).type, kept});
  results.push_back({s.in(0).type, kept});
  return results;
}
void evaluate_layer(const Site& s, std::vector<Array>& out) {
  const Extent e = layer_extent(s);
  for (i64 r = 0; r < e.outer; ++r) {
    const double* const x = s.in(0).data + r * e.length;
    const Moments m = moments(x, e.length, epsilon(s));
    for (i64 i = 0; i < e.length; ++i) {
      double y = (x[i] - m.mean) * m.inverse;
      if (s.has(1)) y *= s.in(1).data[i];
      if (s.has(2)) y += s.in(2).data[i];
      out[0].data[static_cast<std::size_t>(r * e.length + i)] = y;
    }
    if (out.size() > 1) out[1].data[static_cast<std::size_t>(r)] = m.mean;
    if (out.size() > 2) out[2].data[static_cast<std::size_t>(r)] = m.inverse;
  }
}

// Each element over a power of the squares of its neighbours among the channels.
std::vector<Result> local(const Site& s) {
  channels(s);
  s.require(s.node().integer("size", 0) > 0, "its size is not positive");
  return like_input(s);
}
void evaluate_local(const Site& s, std::vector<Array>& out) {
  const Extent e = extent(s.in(0).shape, 1, 2);
  const i64 size = s.node().integer("size", 1);
  const double alpha = s.node().number("alpha", 1e-4f), beta = s.node().number("beta", 0.75f),
               bias = s.node().number("bias", 1);
  for (std::size_t i = 0; i < out[0].data.size(); ++i) {
    const i64 at = static_cast<i64>(i), c = at / e.inner % e.length;
    const i64 first = std::max<i64>(0, c - (size - 1) / 2), last = std::min(e.length - 1, c + size / 2);
    double squares = 0;
    for (i64 j = first; j <= last; ++j) {
      const double x = s.in(0).data[at + (j - c) * e.inner];
      squares += x * x;
    }
    out[0].data[i] = s.in(0).data[i] * std::pow(bias + alpha / static_cast<double>(size) * squares, -beta);
  }
}

constexpr Operator kNormalizeOperators[] = {
    {"BatchNormalization", 5, 5, batch, evaluate_batch},
    {"InstanceNormalization", 3, 3, group, evaluate_group},
    {"GroupNormalization", 3, 3, group, evaluate_group},
    {"LayerNormalization", 1, 3, layer, evaluate_layer},
    // LayerNormalization without scale and bias: what the passes leave of all of them.
    {"faltung.Standardize", 1, 1, layer, evaluate_layer},
    // Of an image, each group of channels: what is left of a group norm where it is no view of rows.
    {"faltung.StandardizeGroups", 1, 1, like_input, evaluate_layer},
    {"LRN", 1, 1, local, evaluate_local},
};

}  // namespace

std::span<const Operator> normalize_operators() { return kNormalizeOperators; }

}  // namespace faltung::network
