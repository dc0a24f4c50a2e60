// Which nodes are attention, and their step on a GPU.
#include "src/network/attention.hpp"

#include <algorithm>

#include "src/network/device_steps.hpp"
#include "src/network/lowering.hpp"
#include "src/network/map_builder.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;

// A matrix of each head as a node reads it, and where its elements lie in `source`, contiguous there.
struct HeadView {
  ValueId source = kNone;
  Shape shape, strides;  // of four dimensions: batch, head, row, column
  double scale = 1;      // of what is read to what lies there

  void turn(const std::vector<i64>& order) {
    const Shape s = shape, t = strides;
    for (std::size_t d = 0; d < order.size(); ++d) {
      shape[d] = s[static_cast<std::size_t>(order[d])], strides[d] = t[static_cast<std::size_t>(order[d])];
    }
  }
};

// With leading dimensions of 1 up to four.
Shape of_four(Shape shape) {
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return shape;
}

// The permutation of four dimensions that a Transpose of as many or fewer makes.
std::vector<i64> order_of(const Node& node, std::size_t rank) {
  std::vector<i64> reversed;
  for (std::size_t d = rank; d-- > 0;) reversed.push_back(static_cast<i64>(d));
  const i64 before = 4 - static_cast<i64>(rank);
  std::vector<i64> order;
  for (i64 d = 0; d < before; ++d) order.push_back(d);
  for (const i64 d : node.integers("perm").value_or(reversed)) order.push_back(before + d);
  return order;
}

bool is_op(const Node& node, std::string_view op) { return node.domain.empty() && node.op == op; }

}  // namespace

// Follows the nodes that only multiply by a number or turn dimensions, as far as what is read still lies in
// rows (columns: of what is read, whose rows are the matrix's columns).
class AttentionFinder {
 public:
  AttentionFinder(const Graph& graph, const std::vector<int>& groups)
      : graph_(graph), groups_(groups), makers_(producers(graph)), uses_(count_uses(graph)) {
    for (const int group : groups) {
      if (group >= 0) ++sizes_.emplace(group, 0).first->second;
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId id : graph.nodes[i].inputs) {
        if (id != kNone) readers_.emplace(id, static_cast<int>(i));
      }
    }
  }

  int maker(ValueId id) const { return makers_[static_cast<std::size_t>(id)]; }
  bool is_read_once(ValueId id) const { return uses_[static_cast<std::size_t>(id)] == 1; }
  // Of a value that one node reads, and that is no output.
  int reader(ValueId id) const {
    const auto found = readers_.find(id);
    return is_read_once(id) && found != readers_.end() ? found->second : -1;
  }

  // The other factor's number, where the node multiplies or divides by one and is a step of its own.
  std::optional<std::pair<ValueId, double>> scaling(int i) const {
    if (i < 0) return std::nullopt;
    const Node& node = graph_.nodes[static_cast<std::size_t>(i)];
    if (!is_op(node, "Mul") && !is_op(node, "Div")) return std::nullopt;
    const auto group = sizes_.find(groups_[static_cast<std::size_t>(i)]);
    if (group != sizes_.end() && group->second != 1) return std::nullopt;
    for (const std::size_t side : {1, 0}) {
      const ValueId other = node.inputs[1 - side], number = node.inputs[side];
      if (!graph_.is_constant(number) || elements(*graph_.at(number).shape) != 1) continue;
      if (graph_.is_constant(other) || *graph_.at(other).shape != *graph_.at(node.outputs[0]).shape) continue;
      const double by = graph_.constant(number)->data.front();
      if (node.op == "Mul") return std::pair{other, by};
      if (side == 1 && by != 0) return std::pair{other, 1 / by};
    }
    return std::nullopt;
  }

  enum class Lie { rows, columns };
  // absorbed: nodes of which nothing is left to compute.
  std::optional<HeadView> view(ValueId id, Lie lie, std::vector<int>& absorbed) const {
    const Shape& shape = *graph_.at(id).shape;
    if (shape.size() < 2 || shape.size() > 4) return std::nullopt;
    HeadView at{id, of_four(shape), contiguous_strides(of_four(shape)), 1};
    // From what is read to dimensions of what lies there.
    std::vector<i64> order{0, 1, 2, 3};
    std::optional<HeadView> best;
    std::vector<int> passed;
    bool alone = true;
    while (true) {
      if (at.strides[lie == Lie::rows ? 3 : 2] == 1) {
        best = at;
        absorbed.insert(absorbed.end(), passed.begin(), passed.end());
        passed.clear();
      }
      const int i = maker(at.source);
      alone = alone && is_read_once(at.source);
      if (const auto scaled = scaling(i)) {
        at.source = scaled->first, at.scale *= scaled->second;
      } else if (i >= 0 && is_op(graph_.nodes[static_cast<std::size_t>(i)], "Transpose")) {
        const Node& node = graph_.nodes[static_cast<std::size_t>(i)];
        const Shape& from = *graph_.at(node.inputs[0]).shape;
        if (from.size() < 2 || from.size() > 4) break;
        const std::vector<i64> turn = order_of(node, from.size());
        for (i64& d : order) d = turn[static_cast<std::size_t>(d)];
        at.source = node.inputs[0];
        at.shape = of_four(from), at.strides = contiguous_strides(of_four(from));
        at.turn(order);
      } else {
        break;
      }
      if (alone) passed.push_back(i);
    }
    return best;
  }

 private:
  const Graph& graph_;
  const std::vector<int>& groups_;
  std::vector<int> makers_, uses_;
  std::map<int, int> sizes_;  // of chains
  std::map<ValueId, int> readers_;
};

void Lowering::find_attention() {
  const AttentionFinder finder(graph_, groups_);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& softmax = graph_.nodes[i];
    if (!is_op(softmax, "Softmax")) continue;
    const i64 rank = static_cast<i64>(shape(softmax.outputs[0]).size());
    const i64 axis = softmax.integer("axis", graph_.opset < 13 ? 1 : -1);
    const int last = finder.reader(softmax.outputs[0]);
    if ((axis != -1 && axis != rank - 1) || last < 0) continue;
    const Node& sums = graph_.nodes[static_cast<std::size_t>(last)];
    if (!is_op(sums, "MatMul") || sums.inputs[0] != softmax.outputs[0]) continue;

    Attention found;
    double scale = 1;
    ValueId scores = softmax.inputs[0];
    std::vector<int> absorbed{static_cast<int>(i)};
    bool alone = finder.is_read_once(scores);
    for (auto scaled = finder.scaling(finder.maker(scores)); scaled && alone;
         scaled = finder.scaling(finder.maker(scores))) {
      absorbed.push_back(finder.maker(scores));
      scores = scaled->first, scale *= scaled->second;
      alone = finder.is_read_once(scores);
    }
    const int first = finder.maker(scores);
    if (!alone || first < 0 || !is_op(graph_.nodes[static_cast<std::size_t>(first)], "MatMul")) continue;
    const Node& products = graph_.nodes[static_cast<std::size_t>(first)];
    absorbed.push_back(first);
    using Lie = AttentionFinder::Lie;
    const auto q = finder.view(products.inputs[0], Lie::rows, absorbed);
    const auto k = finder.view(products.inputs[1], Lie::columns, absorbed);
    const auto v = finder.view(sums.inputs[1], Lie::rows, absorbed);
    if (!q || !k || !v) continue;

    // The result, or what a Transpose after it makes.
    int end = last;
    ValueId y = sums.outputs[0];
    const Shape all = of_four(shape(y));
    Shape strides = contiguous_strides(all);
    if (const int next = finder.reader(y);
        next >= 0 && is_op(graph_.nodes[static_cast<std::size_t>(next)], "Transpose")) {
      const Node& turn = graph_.nodes[static_cast<std::size_t>(next)];
      const std::vector<i64> order = order_of(turn, shape(y).size());
      const Shape own = contiguous_strides(of_four(shape(turn.outputs[0])));
      if (order[3] == 3) {
        for (std::size_t d = 0; d < 4; ++d) strides[static_cast<std::size_t>(order[d])] = own[d];
        absorbed.push_back(last);
        end = next, y = turn.outputs[0];
      }
    }

    AttentionCall& call = found.call;
    call.batches = all[0], call.heads = all[1], call.queries = all[2], call.depth = q->shape[3];
    call.keys = k->shape[3];
    call.scale = static_cast<float>(scale * q->scale * k->scale);
    const auto strides_of = [&](const HeadView& view, std::size_t row) {
      const auto outer = [&](std::size_t d) { return view.shape[d] == 1 ? 0 : view.strides[d]; };
      return AttentionCall::Strides{outer(0), outer(1), view.strides[row]};
    };
    call.q = strides_of(*q, 2), call.k = strides_of(*k, 3), call.v = strides_of(*v, 2);
    call.y = {strides[0], strides[1], strides[2]};
    const Type type = graph_.at(y).type;
    const auto is_ours = [&](const HeadView& view) {
      return graph_.at(view.source).type == type && !graph_.is_constant(view.source);
    };
    if ((type != Type::f16 && type != Type::bf16) || !is_ours(*q) || !is_ours(*k) || !is_ours(*v)) continue;
    call.element = map_element(type, softmax.title());
    // The values' columns are as many as the keys', and nothing multiplies them.
    if (v->shape[3] != call.depth || v->shape[2] != call.keys || v->scale != 1) continue;
    if (!computes_attention(call, device()) || (!trusts_all_ && !unproven(call, device()).empty())) continue;
    found.sources = {q->source, k->source, v->source};
    attention_.emplace(static_cast<std::size_t>(end), found);
    for (const int node : absorbed) absorbed_.insert(static_cast<std::size_t>(node));
  }
}

void Lowering::lower_attention(std::size_t last, const Attention& attention) {
  const Node& node = graph_.nodes[last];
  std::vector<Ref> reads;
  for (const ValueId id : attention.sources) {
    Ref from = read(id, Layout::nchw);
    if (from.offset % 16 != 0) {  // a view of something else
      const Shape all{elements(shape(id))};
      const StridedOperand run{graph_.at(id).type, {1}, 0};
      const Ref to = scratch(static_cast<std::size_t>(all[0]) * network::size_of(run.type));
      emit(node, make_copy(all, run, run, node.title()), {from}, to, Layout::nchw);
      from = to;
    }
    reads.push_back(from);
  }
  emit(node, attention.call, std::move(reads), write(node.outputs[0], Layout::nchw), Layout::nchw);
}

}  // namespace faltung::network
