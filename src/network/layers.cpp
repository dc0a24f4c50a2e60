// Which nodes are linear layers of few rows, and their step on a GPU.
#include <algorithm>
#include <cmath>

#include "src/network/epilogue.hpp"
#include "src/network/layer.hpp"
#include "src/network/lowering.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// Weights and bias are constant, and nothing but an activation is behind them.
bool is_plain(const Graph& graph, const Node& node) {
  const auto has = [&](std::size_t i) { return i < node.inputs.size() && node.inputs[i] != kNone; };
  return graph.is_constant(node.inputs[1]) && (!has(2) || graph.is_constant(node.inputs[2])) && !has(3) &&
         layer_activation(node).has_value();
}

}  // namespace

std::optional<MapInstruction> layer_activation(const Node& node) {
  const ActivationCall activation = read_activation(node).call;
  const auto is = [](MapOp op, float a = 0, float b = 0) { return MapInstruction{op, 0, 0, 0, 0, a, b}; };
  switch (activation.kind) {
    case Activation::none:
      return is(MapOp::copy);
    case Activation::relu:
      return is(MapOp::relu);
    case Activation::relu6:
      return is(MapOp::clip, 0, 6);
    case Activation::leaky_relu:
      return is(MapOp::leaky_relu, activation.a);
    case Activation::sigmoid:
      return is(MapOp::sigmoid);
    case Activation::silu:
      return is(MapOp::silu);
    case Activation::hardswish:
      return is(MapOp::hardswish);
    case Activation::hardsigmoid:
      return is(MapOp::hard_sigmoid, activation.a, 0.5f);
    case Activation::clip:
      return is(MapOp::clip, activation.a, activation.b);
    default:
      return std::nullopt;
  }
}

bool is_layer(const Graph& graph, const Node& node) {
  if (node.op != "Conv" || !(node.domain.empty() || node.domain == "faltung")) return false;
  if (!is_plain(graph, node) || node.has("pool")) return false;
  if (std::ranges::any_of(node.integers("pads").value_or(Shape()), [](i64 p) { return p != 0; }))
    return false;
  const Shape& f = *graph.at(node.inputs[1]).shape;
  return is_pixel(f) && node.integer("group", 1) == 1 && is_pixel(*graph.at(node.inputs[0]).shape) &&
         is_pixel(*graph.at(node.outputs[0]).shape);
}

Type weight_type(Type type, std::initializer_list<const Array*> weights) {
  constexpr double kMostHalf = 65504;
  const auto fits = [&](const Array* w) {
    return std::ranges::all_of(w->data, [&](double v) { return std::abs(v) <= kMostHalf; });
  };
  return type == Type::f16 && !std::ranges::all_of(weights, fits) ? Type::f32 : type;
}

Array bias_of(const Graph& graph, const Node& layer) {
  const i64 size = graph.at(layer.inputs[1]).shape->front();
  const std::optional<Array> bias = graph.constant(layer.inputs.size() > 2 ? layer.inputs[2] : kNone);
  return {Type::f32, {size}, bias ? bias->data : std::vector<double>(static_cast<std::size_t>(size), 0.0)};
}

// A product whose result is widened at once writes it so.
void Lowering::find_layers() {
  const std::vector<int> uses = count_uses(graph_);
  const auto widens = [&](std::size_t i, ValueId y) {
    const Node& node = graph_.nodes[i];
    return groups_[i] == static_cast<int>(i) && node.op == "Cast" && node.has("by_precision") &&
           node.inputs[0] == y && uses[static_cast<std::size_t>(y)] == 1 && chain(i).size() == 1;
  };
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (absorbed_.contains(i)) continue;  // a gate's
    const bool linear = node.domain == "faltung" && node.op == "Linear" && is_plain(graph_, node);
    if (!linear && !is_layer(graph_, node)) continue;
    if (elements(shape(node.inputs[0])) > kMostLayerRows * shape(node.inputs[1])[1]) continue;
    std::size_t last = i;
    for (std::size_t j = i + 1; j < graph_.nodes.size(); ++j) {
      if (widens(j, node.outputs[0])) last = j;
    }
    layers_.emplace(last, i);
    if (last != i) absorbed_.insert(i);
  }
}

void Lowering::lower_layer(std::size_t last, std::size_t layer) {
  const Node &end = graph_.nodes[last], &node = graph_.nodes[layer];
  const ValueId x = node.inputs[0], y = end.outputs[0];
  if (only_plans_) return static_cast<void>(write(y, Layout::nchw));
  Array weights = *graph_.constant(node.inputs[1]);
  LayerCall call;
  call.results = weights.shape[0], call.terms = weights.shape[1];
  call.rows = elements(shape(x)) / call.terms;
  call.x = element_of(*this, x, node), call.y = element_of(*this, y, end);
  weights.type = weight_type(graph_.at(x).type, {&weights});
  call.weight = map_element(weights.type, node.title());
  call.activation = *layer_activation(node);
  std::vector<Ref> reads{read(x, Layout::nchw), constant(weights), constant(bias_of(graph_, node))};
  emit(end, call, std::move(reads), write(y, Layout::nchw), Layout::nchw);
  drafts.back().name = node.op + " " + node.name;
}

}  // namespace faltung::network
