// What scales and shifts each channel after a convolution or product becomes part of its weights and bias.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "src/network/epilogue.hpp"
#include "src/network/passes.hpp"
#include "src/network/rewriting.hpp"
#include "src/problem/integers.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Of a product whose input is a matrix for sure: it was a Gemm.
constexpr const char* kOfMatrix = "of_matrix";

// x times scale plus shift, one of each a channel, or one for all.
struct Affine {
  ValueId x = kNone;
  std::vector<double> scale, shift;
};

// The constant's elements if they are one a channel, seen from a result of `rank` dimensions whose channels
// are dimension `axis`; one for all counts. Empty if not.
std::vector<double> by_channel(const Graph& graph, ValueId id, std::size_t rank, std::size_t axis,
                               i64 channels) {
  if (!graph.is_constant(id)) return {};
  const Constant& constant = *graph.at(id).constant;
  if (constant.type != Type::f32 || constant.shape.size() > rank) return {};
  const std::size_t missing = rank - constant.shape.size();
  for (std::size_t d = 0; d < constant.shape.size(); ++d) {
    const i64 size = constant.shape[d];
    if (size != 1 && (missing + d != axis || size != channels)) return {};
  }
  return decode(constant).data;
}

std::optional<Affine> normalization(const Graph& graph, const Node& node, i64 channels) {
  std::vector<std::vector<double>> p;
  for (std::size_t i = 1; i < 5; ++i) {
    const std::optional<Array> constant = graph.constant(node.inputs.at(i));
    if (!constant || elements(constant->shape) != channels) return std::nullopt;
    p.push_back(constant->data);
  }
  if (node.outputs.size() != 1) return std::nullopt;
  const double epsilon = node.number("epsilon", 1e-5f);
  Affine a{node.inputs[0], {}, {}};
  for (std::size_t c = 0; c < p[0].size(); ++c) {
    a.scale.push_back(p[0][c] / std::sqrt(p[3].at(c) + epsilon));
    a.shift.push_back(p[1].at(c) - p[2].at(c) * a.scale.back());
  }
  return a;
}

// The node as an affine function of x, which is `input`.
std::optional<Affine> as_affine(const Graph& graph, const Node& node, ValueId input, std::size_t rank,
                                std::size_t axis, i64 channels) {
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "BatchNormalization")
    return axis == 1 && node.inputs.size() == 5 && node.inputs[0] == input
               ? normalization(graph, node, channels)
               : std::nullopt;
  if (node.inputs.size() != 2) return std::nullopt;
  const bool first = node.inputs[0] == input;
  const std::vector<double> c = by_channel(graph, node.inputs[first ? 1 : 0], rank, axis, channels);
  if (c.empty()) return std::nullopt;
  Affine a{input, std::vector<double>(c.size(), 1.0), std::vector<double>(c.size(), 0.0)};
  const double sign = node.op == "Sub" && !first ? -1 : 1;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (node.op == "Add")
      a.shift[i] = c[i];
    else if (node.op == "Sub")
      a.scale[i] = sign, a.shift[i] = -sign * c[i];
    else if (node.op == "Mul")
      a.scale[i] = c[i];
    else if (node.op == "Div" && first)
      a.scale[i] = 1 / c[i];
    else
      return std::nullopt;
  }
  return a;
}

// Where a convolution's or product's output channels lie.
std::optional<Channels> channels_of(const Graph& graph, const Node& node) {
  const bool linear = node.domain == "faltung" && node.op == "Linear";
  const bool conv = node.domain.empty() && (node.op == "Conv" || node.op == "ConvTranspose");
  if (!(linear || conv) || node.inputs.size() < 2 || !graph.is_constant(node.inputs[1])) return std::nullopt;
  if (node.inputs.size() > 3 || node.has("activation")) return std::nullopt;
  if (node.inputs.size() > 2 && node.inputs[2] != kNone && !graph.is_constant(node.inputs[2]))
    return std::nullopt;
  const Constant& w = *graph.at(node.inputs[1]).constant;
  if (w.type != Type::f32) return std::nullopt;
  if (linear) {  // of as many dimensions as its input; where that is not known yet, at least one
    const auto& shape = graph.at(node.inputs[0]).shape;
    const std::size_t rank = shape ? shape->size() : node.has(kOfMatrix) ? 2 : 1;
    return Channels{rank - 1, rank, w.shape.at(0)};
  }
  if (w.shape.size() < 3) return std::nullopt;
  const i64 count = node.op == "Conv" ? w.shape[0] : w.shape[1] * node.integer("group", 1);
  return Channels{1, w.shape.size(), count};
}

double at(const std::vector<double>& v, i64 c) {
  return v.size() == 1 ? v[0] : v[static_cast<std::size_t>(c)];
}

Array scaled(Array w, const Node& node, const std::vector<double>& scale) {
  const bool transposed = node.op == "ConvTranspose";
  const i64 k = w.shape[0], count = elements(w.shape), each = count / k;
  for (i64 i = 0; i < count; ++i) {
    // Transposed, the weights are (inputs, outputs of a group, image).
    i64 c = i / each;
    if (transposed) {
      const i64 group = c / (k / node.integer("group", 1));
      c = group * w.shape[1] + i % each / (each / w.shape[1]);
    }
    w.data[static_cast<std::size_t>(i)] *= at(scale, c);
  }
  return w;
}

void scale_weights(Graph& graph, Node& node, const Affine& a, const Channels& channels) {
  Array bias{Type::f32, {channels.count}, std::vector<double>(static_cast<std::size_t>(channels.count))};
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) bias.data = graph.constant(node.inputs[2])->data;
  for (i64 c = 0; c < channels.count; ++c) {
    double& b = bias.data[static_cast<std::size_t>(c)];
    b = b * at(a.scale, c) + at(a.shift, c);
  }
  node.inputs.resize(3, kNone);
  // Most of a network's weights may have nothing but a bias behind them: these are not looked at.
  const bool only_shift = std::ranges::all_of(a.scale, [](double s) { return s == 1; });
  if (!only_shift) {
    const Array w = scaled(*graph.constant(node.inputs[1]), node, a.scale);
    node.inputs[1] = graph.add_constant(graph.at(node.inputs[1]).name, w);
  }
  node.inputs[2] = graph.add_constant(node.name + " bias", bias);
}

// alpha times a matrix of f32 as n rows of k numbers, of which it has the columns if it is not `transposed`.
// In squares that a cache has room for: most of a network's weights may come this way.
Constant matrix_as_rows(const Constant& matrix, i64 n, i64 k, bool transposed, double alpha,
                        const Parallel& parallel) {
  const auto bytes =
      std::make_shared_for_overwrite<std::byte[]>(static_cast<std::size_t>(n * k) * sizeof(float));
  constexpr i64 kSquare = 32;
  parallel.each(ceil_div(n, kSquare), [&](i64 square, int) {
    const i64 row = square * kSquare;
    for (i64 column = 0; column < k; column += kSquare) {
      for (i64 i = row; i < std::min(n, row + kSquare); ++i) {
        for (i64 j = column; j < std::min(k, column + kSquare); ++j) {
          float value;  // files do not align their data
          const i64 from = transposed ? i * k + j : j * n + i;
          std::memcpy(&value, matrix.data + static_cast<std::size_t>(from) * sizeof value, sizeof value);
          value = static_cast<float>(alpha * static_cast<double>(value));
          std::memcpy(bytes.get() + static_cast<std::size_t>(i * k + j) * sizeof value, &value, sizeof value);
        }
      }
    }
  });
  return {Type::f32, {n, k}, bytes, bytes.get()};
}

}  // namespace

Graph fold_scales(Graph graph) {
  Rewriting r(std::move(graph));
  for (std::size_t i = 0; i < r.size(); ++i) {
    // As long as what follows it is one.
    while (const std::optional<Channels> channels = channels_of(r.graph(), r.node(static_cast<int>(i)))) {
      Node& node = r.node(static_cast<int>(i));
      const int next = r.only_reader(node.outputs[0]);
      if (next < 0) break;
      const std::optional<Affine> a = as_affine(r.graph(), r.node(next), node.outputs[0], channels->rank,
                                                channels->axis, channels->count);
      if (!a) break;
      scale_weights(r.graph(), node, *a, *channels);
      node.outputs[0] = r.node(next).outputs[0];
      r.remove(next);
    }
  }
  return r.finish();
}

Graph make_products(Graph graph, const Parallel& parallel) {
  for (Node& node : graph.nodes) {
    const bool gemm = node.op == "Gemm";
    if (!node.domain.empty() || !(gemm || node.op == "MatMul") || node.inputs.size() < 2) continue;
    if (!graph.is_constant(node.inputs[1])) continue;
    const std::shared_ptr<const Constant> b = graph.at(node.inputs[1]).constant;
    if (b->type != Type::f32 || b->shape.size() != 2 || (gemm && node.integer("transA", 0) != 0)) continue;
    const bool transposed = gemm && node.integer("transB", 0) != 0;
    const double alpha = gemm ? node.number("alpha", 1) : 1, beta = gemm ? node.number("beta", 1) : 1;
    const i64 n = b->shape[transposed ? 0 : 1], k = b->shape[transposed ? 1 : 0];
    ValueId bias = kNone;
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
      const std::optional<Array> c = graph.constant(node.inputs[2]);
      const std::vector<double> each = c ? by_channel(graph, node.inputs[2], 2, 1, n) : std::vector<double>();
      if (each.empty()) continue;
      Array values{Type::f32, {n}, std::vector<double>(static_cast<std::size_t>(n))};
      for (std::size_t i = 0; i < values.data.size(); ++i)
        values.data[i] = beta * each[each.size() == 1 ? 0 : i];
      bias = graph.add_constant(node.name + " bias", values);
    }
    ValueId w = node.inputs[1];
    if (!transposed || alpha != 1) {
      Value weights;
      weights.name = graph.at(w).name, weights.type = Type::f32, weights.shape = {n, k};
      weights.constant =
          std::make_shared<const Constant>(matrix_as_rows(*b, n, k, transposed, alpha, parallel));
      w = graph.add(std::move(weights));
    }
    node.inputs = {node.inputs[0], w};
    if (bias != kNone) node.inputs.push_back(bias);
    node.op = "Linear", node.domain = "faltung";
    node.attributes.clear();
    if (gemm) node.attributes[kOfMatrix] = i64{1};
  }
  return graph;
}

}  // namespace faltung::network
