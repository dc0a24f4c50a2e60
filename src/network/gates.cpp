// Which nodes are squeeze-excite, and their step on a GPU.
#include "src/network/gate.hpp"

#include <algorithm>

#include "src/network/layer.hpp"
#include "src/network/lowering.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

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

}  // namespace

void Lowering::find_gates() {
  const std::vector<int> uses = count_uses(graph_);
  const auto layer = [&](ValueId id) {  // its maker, which nobody else reads
    const int maker = makers_[static_cast<std::size_t>(id)];
    if (maker < 0 || uses[static_cast<std::size_t>(id)] != 1) return -1;
    return is_layer(graph_, graph_.nodes[static_cast<std::size_t>(maker)]) ? maker : -1;
  };
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (groups_[i] != static_cast<int>(i) || layouts_[i] != Layout::nhwc) continue;
    const std::vector<const Node*> nodes = chain(i);
    const Shape& all = shape(nodes.back()->outputs[0]);
    const std::vector<ValueId> inputs = inputs_of(nodes);
    const auto is_norm = [](const Node* node) { return standardizes_groups(*node); };
    if (!is_image(all) || inputs.size() != 2 || std::ranges::any_of(nodes, is_norm)) continue;
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
  call.program = chain_program(*this, chain(last)).code;
  call.image_register = static_cast<std::uint8_t>(gate.image_register);
  call.second = *layer_activation(second);

  const Ref from = read_slice(gate.image, Layout::nhwc);
  std::vector<Ref> reads{from, read(squeezed, Layout::nchw)};
  Array before;
  if (first != nullptr) before = *graph_.constant(first->inputs[1]);
  const Type type = weight_type(graph_.at(gate.image).type, {&weights, &before});
  call.weight = map_element(type, end.title());
  if (first != nullptr) {
    call.first = layer_activation(*first);
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
