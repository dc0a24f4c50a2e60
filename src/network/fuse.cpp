// Normalizations and logarithms of sums in parts that are scheduled, and what a convolution or product does
// to its result itself.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/network/epilogue.hpp"
#include "src/network/passes.hpp"
#include "src/network/reduction.hpp"
#include "src/network/rewriting.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// ---- normalizations, and logarithms of sums

class Splitter {
 public:
  explicit Splitter(Graph graph) : graph_(std::move(graph)) {}

  Graph run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (!split(node)) graph_.nodes.push_back(std::move(node));
    }
    return std::move(graph_);
  }

 private:
  ValueId value(const Node& of, const char* what, Shape shape) {
    Value v;
    v.name = of.name + " " + what;
    v.type = graph_.at(of.inputs[0]).type;
    v.shape = std::move(shape);
    return graph_.add(std::move(v));
  }
  void emit(const Node& of, std::string op, std::string domain, std::vector<ValueId> inputs, ValueId output,
            std::map<std::string, Attribute, std::less<>> attributes = {}) {
    Node node;
    node.op = std::move(op), node.domain = std::move(domain), node.name = of.name;
    node.inputs = std::move(inputs), node.outputs = {output};
    node.attributes = std::move(attributes);
    graph_.nodes.push_back(std::move(node));
  }
  // x seen with this shape.
  ValueId reshaped(const Node& of, const char* what, ValueId x, const Shape& shape) {
    const ValueId y = value(of, what, shape);
    reshape(of, x, y, shape);
    return y;
  }
  void reshape(const Node& of, ValueId x, ValueId y, const Shape& shape) {
    Array target{Type::i64, {static_cast<i64>(shape.size())}, {shape.begin(), shape.end()}};
    emit(of, "Reshape", "", {x, graph_.add_constant(of.name + " shape", target)}, y);
  }
  // A constant vector with one element a channel, to be broadcast over a tensor of `rank` dimensions.
  ValueId channel_constant(const Node& of, const std::vector<double>& data, std::size_t rank) {
    Shape shape(rank, 1);
    shape[1] = static_cast<i64>(data.size());
    return graph_.add_constant(of.name + " by channel", {Type::f32, shape, data});
  }
  // y = x · scale + shift
  void affine(const Node& of, ValueId x, ValueId scale, ValueId shift, ValueId y) {
    ValueId at = x;
    if (scale != kNone) {
      const ValueId product = shift == kNone ? y : value(of, "scaled", *graph_.at(x).shape);
      emit(of, "Mul", "", {at, scale}, product);
      at = product;
    }
    if (shift != kNone) emit(of, "Add", "", {at, shift}, y);
  }

  bool split(const Node& node) {
    if (!node.domain.empty() || node.inputs.empty()) return false;
    const Type type = graph_.at(node.inputs[0]).type;
    if (node.op == "BatchNormalization") return type == Type::f32 && batch(node);
    if (!is_float(type) || type == Type::f64) return false;
    if (node.op == "InstanceNormalization" || node.op == "GroupNormalization") return group(node);
    if (node.op == "LayerNormalization") return layer(node);
    if (node.op == "ReduceLogSum" || node.op == "ReduceLogSumExp") return logarithm(node);
    return false;
  }

  // The shape of a reduction's result if it kept its dimensions.
  Shape kept_shape(const Node& node) const {
    const Value& of = graph_.at(node.inputs[0]);
    const Operand x{of.type, *of.shape, nullptr};
    const std::optional<Array> given = graph_.constant(node.inputs.size() > 1 ? node.inputs[1] : kNone);
    const Operand axes{Type::i64, given ? given->shape : Shape(), given ? given->data.data() : nullptr};
    Shape kept = *of.shape;
    for (const std::size_t axis : reduced_axes(Site(node, graph_.opset, {&x, given ? &axes : nullptr})))
      kept[axis] = 1;
    return kept;
  }
  // The node as another reduction over the same axes.
  void reduce(const Node& node, const char* op, ValueId x, ValueId y, bool keeps_dimensions) {
    Node other = node;
    other.op = op, other.inputs[0] = x, other.outputs = {y};
    other.attributes["keepdims"] = i64{keeps_dimensions};
    graph_.nodes.push_back(std::move(other));
  }
  // Of a sum, or of one of powers of e, out of which the largest is taken first; where that is infinite, the
  // largest number.
  bool logarithm(const Node& node) {
    const bool keeps = node.integer("keepdims", 1) != 0;
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const Shape all = *graph_.at(x).shape, result = *graph_.at(y).shape;
    const ValueId sum = value(node, "sum", result);
    if (node.op == "ReduceLogSum") {
      reduce(node, "ReduceSum", x, sum, keeps);
      emit(node, "Log", "", {sum}, y);
      return true;
    }
    constexpr float kMost = std::numeric_limits<float>::max();
    const Shape kept = kept_shape(node);
    const ValueId most = value(node, "largest", kept), finite = value(node, "taken out", kept);
    reduce(node, "ReduceMax", x, most, true);
    emit(node, "Clip", "", {most}, finite, {{"min", Attribute(-kMost)}, {"max", Attribute(kMost)}});
    const ValueId above = value(node, "above", all), powers = value(node, "powers", all),
                  log = value(node, "logarithm", result);
    emit(node, "Sub", "", {x, finite}, above);
    emit(node, "Exp", "", {above}, powers);
    reduce(node, "ReduceSum", powers, sum, keeps);
    emit(node, "Log", "", {sum}, log);
    const ValueId in_place = keeps ? finite : reshaped(node, "in its place", finite, result);
    emit(node, "Add", "", {log, in_place}, y);
    return true;
  }

  bool batch(const Node& node) {
    std::vector<std::vector<double>> p;
    for (std::size_t i = 1; i < 5; ++i) {
      const std::optional<Array> constant = graph_.constant(node.inputs[i]);
      if (!constant) return false;
      p.push_back(constant->data);
    }
    const double epsilon = node.number("epsilon", 1e-5f);
    std::vector<double> scale, shift;
    for (std::size_t c = 0; c < p[0].size(); ++c) {
      scale.push_back(p[0][c] / std::sqrt(p[3][c] + epsilon));
      shift.push_back(p[1][c] - p[2][c] * scale.back());
    }
    const std::size_t rank = graph_.at(node.inputs[0]).shape->size();
    affine(node, node.inputs[0], channel_constant(node, scale, rank), channel_constant(node, shift, rank),
           node.outputs[0]);
    return true;
  }

  // One parameter a channel, where the file has one a channel or one a group.
  std::optional<std::vector<double>> by_channel(ValueId id, i64 channels) const {
    const std::optional<Array> constant = graph_.constant(id);
    if (!constant || constant->data.empty()) return std::nullopt;
    std::vector<double> all;
    for (i64 c = 0; c < channels; ++c)
      all.push_back(
          constant->data[static_cast<std::size_t>(c * static_cast<i64>(constant->data.size()) / channels)]);
    return all;
  }

  bool group(const Node& node) {
    const Shape shape = *graph_.at(node.inputs[0]).shape;
    const i64 channels = shape[1],
              groups = node.op == "GroupNormalization" ? node.integer("num_groups", 1) : channels;
    const auto scale = by_channel(node.inputs[1], channels), shift = by_channel(node.inputs[2], channels);
    if (!scale || !shift) return false;
    // PyTorch writes GroupNorm as an InstanceNormalization by ones and zeros, with its own parameters after
    // it.
    const auto are_all = [](const std::vector<double>& all, double number) {
      return std::ranges::all_of(all, [&](double v) { return v == number; });
    };
    const bool bare = are_all(*scale, 1) && are_all(*shift, 0);
    const bool each = groups == channels;  // the image alone: no need to see it in another shape
    const Shape image(shape.begin() + 2, shape.end());
    const Shape rows{shape[0], groups, channels / groups * elements(image)};
    const ValueId x = each ? node.inputs[0] : reshaped(node, "in groups", node.inputs[0], rows);
    ValueId y = each && bare ? node.outputs[0] : value(node, "standardized", each ? shape : rows);
    emit(node, "Standardize", "faltung", {x}, y,
         {{"axis", Attribute(i64{2})}, {"epsilon", Attribute(node.number("epsilon", 1e-5f))}});
    if (!each && bare) reshape(node, y, node.outputs[0], shape);
    if (bare) return true;
    if (!each) y = reshaped(node, "in channels", y, shape);
    affine(node, y, channel_constant(node, *scale, shape.size()),
           channel_constant(node, *shift, shape.size()), node.outputs[0]);
    return true;
  }

  bool layer(const Node& node) {
    if (std::ranges::count(node.outputs, kNone) + 1 != static_cast<i64>(node.outputs.size())) return false;
    const Shape shape = *graph_.at(node.inputs[0]).shape;
    const auto parameter = [&](std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; };
    const bool bare = parameter(1) == kNone && parameter(2) == kNone;
    const ValueId y = bare ? node.outputs[0] : value(node, "standardized", shape);
    emit(node, "Standardize", "faltung", {node.inputs[0]}, y,
         {{"axis", Attribute(node.integer("axis", -1))},
          {"epsilon", Attribute(node.number("epsilon", 1e-5f))}});
    if (!bare) affine(node, y, parameter(1), parameter(2), node.outputs[0]);
    return true;
  }

  Graph graph_;
};

// ---- epilogues

bool is_convolution(const Node& node) {
  return node.op == "Conv" && (node.domain.empty() || node.domain == "faltung");
}
bool is_product(const Node& node) { return node.op == "Linear" && node.domain == "faltung"; }

bool has_input(const Node& node, std::size_t i) { return i < node.inputs.size() && node.inputs[i] != kNone; }

// None where a node takes over what its reader does; else why not, which `network explain` tells.
using Declined = std::optional<std::string>;

// The sum of the node's result and another tensor of the same shape, before or after it is activated.
Declined take_residual(const Graph& graph, Node& node, const Node& add) {
  if (node.has("pool")) return "behind the pool";
  if (has_input(node, 3)) return "a second residual";
  const ValueId y = node.outputs[0], other = add.inputs[add.inputs[0] == y ? 1 : 0];
  if (other == y) return "the result and itself";
  if (graph.is_constant(other)) return "a constant";
  if (graph.at(other).shape != graph.at(y).shape) return "terms of two shapes";
  node.inputs.resize(3, kNone);
  node.inputs.push_back(other);
  if (node.has("activation")) set_residual_order(node, ResidualOrder::after_activation);
  return std::nullopt;
}

Declined take_activation(Node& node, const FusedActivation& activation) {
  if (node.has("pool")) return "behind the pool";
  if (node.has("activation")) return "a second activation";
  set_activation(node, activation);
  return std::nullopt;
}

// Windows that a convolution's epilogue has: over two dimensions, each lying partly inside of the image.
Declined take_pool(const Graph& graph, Node& node, const Node& pool) {
  if (!is_convolution(node)) return "behind a product";
  if (node.has("pool")) return "a second pool";
  if (graph.at(node.outputs[0]).shape->size() != 4) return "not over two dimensions";
  if (pool.outputs.size() != 1) return "two results";
  const Shape pads = pool.integers("pads").value_or(Shape(4, 0));
  const bool padded = std::ranges::any_of(pads, [](i64 p) { return p != 0; });
  if (pool.text("auto_pad", "NOTSET") != "NOTSET") return "padding by its sizes";
  if (pool.integer("ceil_mode", 0) != 0) return "windows beyond the image";
  if (padded && pool.op == "AveragePool" && pool.integer("count_include_pad", 0) != 0)
    return "an average with its padding";
  if (pool.integers("dilations").value_or(Shape(2, 1)) != Shape(2, 1)) return "dilated windows";
  const Shape kernel = pool.integers("kernel_shape").value_or(Shape());
  if (kernel.size() != 2 || pads.size() != 4) return "not over two dimensions";
  for (std::size_t d = 0; d < 4; ++d) {
    if (pads[d] < 0 || pads[d] >= kernel[d % 2]) return "windows of padding alone";
  }
  node.attributes["pool"] = pool.op;
  for (const auto& [key, value] : pool.attributes) node.attributes["pool_" + key] = value;
  return std::nullopt;
}

Declined take(const Graph& graph, Node& node, const Node& reader) {
  const Shape& result = *graph.at(node.outputs[0]).shape;
  const std::size_t axis = is_product(node) ? result.size() - 1 : 1;
  if (const std::optional<FusedActivation> activation =
          as_activation(graph, reader, {axis, result.size(), result[axis]}))
    return take_activation(node, *activation);
  if (reader.domain.empty() && reader.op == "Add") return take_residual(graph, node, reader);
  if (reader.domain.empty() && (reader.op == "MaxPool" || reader.op == "AveragePool"))
    return take_pool(graph, node, reader);
  return "no epilogue has it";
}

// What has become of a node's readers, for `network explain`.
void tell_fused(Node& node, const Node& reader) {
  const std::string before = node.text("fused", "");
  node.attributes["fused"] = before + (before.empty() ? "" : ", ") + reader.op + " " + reader.name;
}
void tell_unfused(const Graph& graph, Node& node, const Node& reader, const std::string& why) {
  // Of what computes elements of a result from those of this one: others are never part of a step before.
  const bool alike = graph.at(reader.outputs[0]).shape == graph.at(node.outputs[0]).shape;
  if (is_convolution(reader) || is_product(reader) || !(alike || reader.op.ends_with("Pool"))) return;
  node.attributes["unfused"] = reader.op + " " + reader.name + ": " + why;
}

}  // namespace

Graph split_norms(Graph graph) { return Splitter(std::move(graph)).run(); }

Graph fuse_epilogues(Graph graph) {
  Rewriting r(std::move(graph));
  for (int i = 0; i < static_cast<int>(r.size()); ++i) {
    if (!is_product(r.node(i)) && !is_convolution(r.node(i))) continue;
    if (!r.graph().is_constant(r.node(i).inputs[1])) continue;
    // The node stands where what it takes over stood: its other inputs are made by then.
    for (int at = i;;) {
      Node node = r.node(at);
      if (node.outputs[0] == kNone) break;
      const int next = r.only_reader(node.outputs[0]);
      if (next < 0) {
        const int uses = r.uses(node.outputs[0]);
        if (uses > 1) r.node(at).attributes["unfused"] = fmt::format("its result is read {} times", uses);
        break;
      }
      const Node& reader = r.node(next);
      if (const Declined why = take(r.graph(), node, reader)) {
        tell_unfused(r.graph(), r.node(at), reader, *why);
        break;
      }
      tell_fused(node, reader);
      node.domain = "faltung";
      node.outputs = reader.outputs;
      r.node(next) = std::move(node);
      r.remove(at);
      at = next;
    }
  }
  return r.finish();
}

}  // namespace faltung::network
