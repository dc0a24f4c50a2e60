// Which nodes are squeeze-excite, and their step on a GPU.
#include "src/network/gate.hpp"

#include <algorithm>
#include <cmath>

#include "src/network/epilogue.hpp"
#include "src/network/lowering.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

std::optional<MapInstruction> instruction(const FusedActivation& activation) {
  const auto is = [](MapOp op, float a = 0, float b = 0) { return MapInstruction{op, 0, 0, 0, 0, a, b}; };
  switch (activation.kind) {
    case Activation::none:
      return is(MapOp::copy);
    case Activation::relu:
      return is(MapOp::relu);
    case Activation::relu6:
      return is(MapOp::clip, 0, 6);
    case Activation::leaky_relu:
      return is(MapOp::leaky_relu, activation.slope);
    case Activation::sigmoid:
      return is(MapOp::sigmoid);
    case Activation::silu:
      return is(MapOp::silu);
    case Activation::hardswish:
      return is(MapOp::hardswish);
    case Activation::hardsigmoid:
      return is(MapOp::hard_sigmoid, activation.slope, 0.5f);
    default:
      return std::nullopt;
  }
}

bool is_pixel(const Shape& shape) { return is_image(shape) && shape[2] * shape[3] == 1; }

// A 1×1 convolution of an image of one pixel, with nothing but a bias and an activation.
bool is_layer(const Graph& graph, const Node& node) {
  if (node.op != "Conv" || !(node.domain.empty() || node.domain == "faltung")) return false;
  const auto constant = [&](std::size_t i) {
    return i >= node.inputs.size() || node.inputs[i] == kNone || graph.is_constant(node.inputs[i]);
  };
  if (!graph.is_constant(node.inputs[1]) || !constant(2) || node.has("pool")) return false;
  if (node.inputs.size() > 3 && node.inputs[3] != kNone) return false;
  if (std::ranges::any_of(node.integers("pads").value_or(Shape()), [](i64 p) { return p != 0; }))
    return false;
  const Shape& f = *graph.at(node.inputs[1]).shape;
  return is_pixel(f) && node.integer("group", 1) == 1 && is_pixel(*graph.at(node.inputs[0]).shape) &&
         is_pixel(*graph.at(node.outputs[0]).shape) && instruction(read_activation(node)).has_value();
}

// The type in which a kernel reads weights: f32 where they are beyond f16.
Type weight_type(Type type, std::initializer_list<const Array*> weights) {
  constexpr double kMostHalf = 65504;
  const auto fits = [&](const Array* w) {
    return std::ranges::all_of(w->data, [&](double v) { return std::abs(v) <= kMostHalf; });
  };
  return type == Type::f16 && !std::ranges::all_of(weights, fits) ? Type::f32 : type;
}

// What a chain reads from outside, in the order of its program's registers.
std::vector<ValueId> inputs_of(const std::vector<const Node*>& nodes) {
  std::vector<ValueId> inputs;
  for (const Node* node : nodes) {
    for (const ValueId id : node->inputs) {
      const bool inside = std::ranges::any_of(nodes, [&](const Node* n) { return n->outputs[0] == id; });
      if (id != kNone && !inside && std::ranges::find(inputs, id) == inputs.end()) inputs.push_back(id);
    }
  }
  return inputs;
}

Array transposed(const Array& w, Type type) {
  const i64 rows = w.shape[0], columns = w.shape[1];
  Array to{type, {columns, rows}, {}};
  for (i64 c = 0; c < columns; ++c) {
    for (i64 r = 0; r < rows; ++r) to.data.push_back(w.data[static_cast<std::size_t>(r * columns + c)]);
  }
  return to;
}

Array bias_of(const Graph& graph, const Node& layer) {
  const i64 size = graph.at(layer.inputs[1]).shape->front();
  const std::optional<Array> bias = graph.constant(layer.inputs.size() > 2 ? layer.inputs[2] : kNone);
  return {Type::f32, {size}, bias ? bias->data : std::vector<double>(static_cast<std::size_t>(size), 0.0)};
}

}  // namespace

void Lowering::find_gates() {
  const std::vector<int> makers = producers(graph_), uses = count_uses(graph_);
  const auto layer = [&](ValueId id) {  // its maker, which nobody else reads
    const int maker = makers[static_cast<std::size_t>(id)];
    if (maker < 0 || uses[static_cast<std::size_t>(id)] != 1) return -1;
    return is_layer(graph_, graph_.nodes[static_cast<std::size_t>(maker)]) ? maker : -1;
  };
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (groups_[i] != static_cast<int>(i) || layouts_[i] != Layout::nhwc) continue;
    const std::vector<const Node*> nodes = chain(i);
    const Shape& all = shape(nodes.back()->outputs[0]);
    const std::vector<ValueId> inputs = inputs_of(nodes);
    if (!is_image(all) || inputs.size() != 2) continue;
    Gate gate;
    for (std::size_t in = 0; in < 2; ++in) {
      const ValueId image = inputs[in], made = inputs[1 - in];
      const bool fits = !graph_.is_constant(image) && shape(image) == all && !is_pixel(all) &&
                        shape(made) == Shape{all[0], all[1], 1, 1};
      if (fits && layer(made) >= 0) gate = {image, static_cast<int>(in), layer(made), -1};
    }
    if (gate.second < 0) continue;
    const ValueId hidden = graph_.nodes[static_cast<std::size_t>(gate.second)].inputs[0];
    const i64 size = shape(hidden)[1];
    if (const int first = layer(hidden);
        first >= 0 && size <= kMostGateHidden && size * all[1] <= kMostGateWeights &&
        shape(graph_.nodes[static_cast<std::size_t>(first)].inputs[0])[1] == all[1])
      gate.first = first;
    gates_.emplace(i, gate);
    for (const int part : {gate.first, gate.second}) {
      if (part >= 0) absorbed_.insert(static_cast<std::size_t>(part));
    }
  }
}

Ref Lowering::constant(const Array& array) {
  constants.push_back(aligned_copy(encode(array)));
  buffers.push_back(
      {array.data.size() * network::size_of(array.type), Place::In::constant, constants.size() - 1});
  return {static_cast<int>(buffers.size()) - 1, 0};
}

void Lowering::lower_gate(std::size_t last, const Gate& gate) {
  const Node& end = graph_.nodes[last];
  const Node& second = graph_.nodes[static_cast<std::size_t>(gate.second)];
  const Node* const first = gate.first < 0 ? nullptr : &graph_.nodes[static_cast<std::size_t>(gate.first)];
  const ValueId y = end.outputs[0], squeezed = (first != nullptr ? *first : second).inputs[0];
  const Shape& all = shape(y);
  const Array weights = *graph_.constant(second.inputs[1]);
  GateCall call;
  call.images = all[0], call.channels = all[1], call.pixels = all[2] * all[3], call.hidden = weights.shape[1];
  call.x = element_of(*this, gate.image, end), call.y = element_of(*this, y, end);
  call.squeezed = element_of(*this, squeezed, end);
  call.program = chain_program(*this, chain(last));
  call.image_register = static_cast<std::uint8_t>(gate.image_register);
  call.second = *instruction(read_activation(second));

  const Ref from = read_slice(gate.image, Layout::nhwc);
  std::vector<Ref> reads{from, read(squeezed, Layout::nchw)};
  Array before;
  if (first != nullptr) before = *graph_.constant(first->inputs[1]);
  const Type type = weight_type(graph_.at(gate.image).type, {&weights, &before});
  call.weight = map_element(type, end.title());
  if (first != nullptr) {
    call.first = instruction(read_activation(*first));
    before.type = type;
    reads.push_back(constant(before));
    reads.push_back(constant(bias_of(graph_, *first)));
  }
  reads.push_back(constant(transposed(weights, type)));
  reads.push_back(constant(bias_of(graph_, second)));

  const std::optional<Ref> slice = slice_of_join(y, Layout::nhwc);
  if (slice) write_slice(y, *slice, Layout::nhwc);
  const Ref to = slice ? *slice : write(y, Layout::nhwc);
  call.x_pitch = from.pitch != 0 ? from.pitch : all[1];
  call.y_pitch = to.pitch != 0 ? to.pitch : all[1];
  const bool in_place =
      call.x == call.y && from.pitch == 0 && from.offset == 0 && to.pitch == 0 && to.offset == 0;
  emit(end, std::move(call), std::move(reads), to, Layout::nhwc);
  if (in_place) drafts.back().in_place = {0};
}

}  // namespace faltung::network
