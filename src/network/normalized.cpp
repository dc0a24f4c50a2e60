// Which elementwise chains are computed as the rows in front of them are normalized, and their step on a GPU;
// lower_norms.cpp has the CPU's.
#include <algorithm>

#include "src/network/device_steps.hpp"
#include "src/network/lowering.hpp"
#include "src/network/moments.hpp"

namespace faltung::network {

// A chain behind a node that normalizes rows of memory, whose result it alone reads, and which are as large
// as its own. On a GPU what standardizes groups is a node of the chain itself.
void Lowering::find_normalized() {
  const std::vector<int> uses = count_uses(graph_);
  std::vector<std::vector<int>> readers(graph_.values.size());  // chains, by value
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    for (const ValueId id : graph_.nodes[i].inputs) {
      if (id != kNone) readers[static_cast<std::size_t>(id)].push_back(groups_[i]);
    }
  }
  const auto is_taken = [&](std::size_t i) {
    return absorbed_.contains(i) || gates_.contains(i) || layers_.contains(i) || attention_.contains(i);
  };
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (!normalizes(node) || is_taken(i) || elements(shape(node.outputs[0])) == 0) continue;
    const bool inside = groups_[i] >= 0;
    const auto read = static_cast<std::size_t>(inside ? node.inputs[0] : node.outputs[0]);
    // Of groups the input, which the chain reads for nothing else.
    const auto& of = readers[read];
    int last = inside ? groups_[i] : of.empty() ? -1 : of.front();
    const auto in_chain = std::ranges::count(of, last);
    if (inside ? in_chain != 1 : in_chain != uses[read]) last = -1;
    if (last < 0) continue;
    const auto end = static_cast<std::size_t>(last);
    const std::vector<const Node*> nodes = chain(end);
    const bool is_first = std::ranges::none_of(nodes, [&](const Node* n) {
      return n != &node &&
             (standardizes_groups(*n) || is_taken(static_cast<std::size_t>(n - graph_.nodes.data())));
    });
    if (!is_first || normalized_.contains(end)) continue;
    if (!(on_gpu() ? joins_rows(i, end) : joins_norm(node, nodes))) continue;
    normalized_.emplace(end, i);
    if (!inside) absorbed_.insert(i);
  }
}

bool Lowering::joins_rows(std::size_t norm, std::size_t last) const {
  const Node &node = graph_.nodes[norm], &end = graph_.nodes[last];
  const bool inside = groups_[norm] >= 0;
  if (shape(node.outputs[0]) != shape(end.outputs[0]) || layouts_[norm] != layouts_[last] ||
      (inside && layouts_[last] != Layout::nchw))
    return false;
  const NormalizeCall call = normalized_chain(last, norm);
  return call.length > 0 && holds(call, device());
}

// Of length 0 where no step computes both. All that it reads lies whole.
NormalizeCall Lowering::normalized_chain(std::size_t last, std::size_t norm) const {
  const Node &node = graph_.nodes[norm], &end = graph_.nodes[last];
  const bool inside = groups_[norm] >= 0;
  const ValueId normalized = inside ? node.inputs[0] : node.outputs[0];
  const Shape& all = shape(end.outputs[0]);
  const Layout layout = is_image(all) ? layouts_[last] : Layout::nchw;
  const RowsCall rows = normalization_call(*this, node, layout);
  ChainProgram program = chain_program(*this, chain(last), inside ? &node : nullptr);
  NormalizeCall call{rows.op, rows.extent.length, rows.epsilon, {}, 0};
  if (rows.extent.inner != 1 || program.inputs.size() > kMostNormalizeOperands + 1) call.length = 0;
  std::vector<StridedOperand> operands;
  for (const ValueId id : program.inputs) {
    if (id == normalized) call.input = operands.size();
    const Layout lies = graph_.is_constant(id) || !is_image(shape(id)) ? Layout::nchw : layout;
    operands.push_back(
        {graph_.at(id == normalized ? node.inputs[0] : id).type, read_strides(shape(id), all, lies, 0), 0});
  }
  call.map = make_map(all, operands, {graph_.at(end.outputs[0]).type, strides_in(all, layout), 0},
                      std::move(program.code), end.title());
  return call;
}

void Lowering::lower_normalized(std::size_t last, std::size_t norm) {
  if (!on_gpu()) {
    std::vector<const Node*> nodes = chain(last);
    nodes.insert(nodes.begin(), &graph_.nodes[norm]);
    return lower_chain(*this, nodes);
  }
  const Node &node = graph_.nodes[norm], &end = graph_.nodes[last];
  const bool inside = groups_[norm] >= 0;
  const ValueId y = end.outputs[0];
  const Layout layout = is_image(shape(y)) ? layouts_[last] : Layout::nchw;
  std::vector<const Node*> nodes = chain(last);
  std::vector<Ref> reads;
  std::vector<int> in_place;
  for (ValueId id : chain_program(*this, nodes, inside ? &node : nullptr).inputs) {
    if (id == node.outputs[0]) id = node.inputs[0];
    const bool constant = graph_.is_constant(id);
    const Ref from = read(id, constant || !is_image(shape(id)) ? Layout::nchw : layout);
    if (from.pitch == 0 && from.offset == 0 && !constant && shape(id) == shape(y) &&
        graph_.at(id).type == graph_.at(y).type)
      in_place.push_back(static_cast<int>(reads.size()));
    reads.push_back(from);
  }
  emit(end, normalized_chain(last, norm), std::move(reads), write(y, layout), layout);
  if (!inside) nodes.insert(nodes.begin(), &node);
  drafts.back().in_place = std::move(in_place);
  drafts.back().note = chain_note(nodes);
}

}  // namespace faltung::network
