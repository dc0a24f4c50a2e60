// Which nodes are attention.
#include "src/network/attention_finder.hpp"

#include <algorithm>
#include <map>
#include <optional>

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
};

// With leading dimensions of 1 up to four.
Shape of_four(Shape shape) {
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return shape;
}

// The order of dimensions that a Transpose makes.
std::vector<i64> order_of(const Node& node, std::size_t rank) {
  std::vector<i64> reversed;
  for (std::size_t d = rank; d-- > 0;) reversed.push_back(static_cast<i64>(d));
  return node.integers("perm").value_or(reversed);
}

// Strides in what a Transpose made as those in what it read, of shape `from`; none where a dimension of the
// view is several of the Transpose's at once.
std::optional<Shape> before_transpose(const HeadView& view, const Shape& from,
                                      const std::vector<i64>& order) {
  Shape made;
  for (const i64 d : order) made.push_back(from[static_cast<std::size_t>(d)]);
  const Shape own = contiguous_strides(from), strides = contiguous_strides(made);
  Shape before(4, 0);
  for (std::size_t d = 0; d < 4; ++d) {
    if (view.shape[d] == 1) continue;
    bool found = false;
    for (std::size_t m = 0; m < made.size() && !found; ++m) {
      const i64 step = view.strides[d];
      found = made[m] != 1 && step % strides[m] == 0 && step * view.shape[d] <= strides[m] * made[m];
      if (found) before[d] = step / strides[m] * own[static_cast<std::size_t>(order[m])];
    }
    if (!found) return std::nullopt;
  }
  return before;
}

bool is_op(const Node& node, std::string_view op) { return node.domain.empty() && node.op == op; }
// What it gives is what it reads, seen in another shape.
bool sees(const Node& node) {
  return is_op(node, "Reshape") || is_op(node, "Squeeze") || is_op(node, "Unsqueeze") ||
         is_op(node, "Flatten");
}

// Follows the nodes that only multiply by a number, turn dimensions or see them in another shape, as far as
// what is read still lies in rows (columns: of what is read, whose rows are the matrix's columns).
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
      if (i < 0) break;
      const Node& node = graph_.nodes[static_cast<std::size_t>(i)];
      if (const auto scaled = scaling(i)) {
        at.source = scaled->first, at.scale *= scaled->second;
      } else if (sees(node)) {
        at.source = node.inputs[0];
      } else if (is_op(node, "Transpose")) {
        const Shape& from = *graph_.at(node.inputs[0]).shape;
        const auto strides = before_transpose(at, from, order_of(node, from.size()));
        if (!strides) break;
        at.source = node.inputs[0], at.strides = *strides;
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

}  // namespace

std::vector<Attention> find_attention(const Graph& graph, const std::vector<int>& chains) {
  const auto shape_of = [&](ValueId id) -> const Shape& { return *graph.at(id).shape; };
  std::vector<Attention> results;
  const AttentionFinder finder(graph, chains);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& softmax = graph.nodes[i];
    if (!is_op(softmax, "Softmax")) continue;
    const i64 rank = static_cast<i64>(shape_of(softmax.outputs[0]).size());
    const i64 axis = softmax.integer("axis", graph.opset < 13 ? 1 : -1);
    const int last = finder.reader(softmax.outputs[0]);
    if ((axis != -1 && axis != rank - 1) || last < 0) continue;
    const Node& sums = graph.nodes[static_cast<std::size_t>(last)];
    if (!is_op(sums, "MatMul") || sums.inputs[0] != softmax.outputs[0]) continue;

    Attention found;
    double scale = 1;
    ValueId scores = softmax.inputs[0];
    std::vector<int>& absorbed = found.absorbed;
    absorbed.push_back(static_cast<int>(i));
    bool alone = finder.is_read_once(scores);
    for (auto scaled = finder.scaling(finder.maker(scores)); scaled && alone;
         scaled = finder.scaling(finder.maker(scores))) {
      absorbed.push_back(finder.maker(scores));
      scores = scaled->first, scale *= scaled->second;
      alone = finder.is_read_once(scores);
    }
    const int first = finder.maker(scores);
    if (!alone || first < 0 || !is_op(graph.nodes[static_cast<std::size_t>(first)], "MatMul")) continue;
    const Node& products = graph.nodes[static_cast<std::size_t>(first)];
    absorbed.push_back(first);
    using Lie = AttentionFinder::Lie;
    const auto q = finder.view(products.inputs[0], Lie::rows, absorbed);
    const auto k = finder.view(products.inputs[1], Lie::columns, absorbed);
    const auto v = finder.view(sums.inputs[1], Lie::rows, absorbed);
    if (!q || !k || !v) continue;

    // The result, or what a Transpose after it makes.
    found.last = static_cast<std::size_t>(last);
    ValueId y = sums.outputs[0];
    const Shape all = of_four(shape_of(y));
    Shape strides = contiguous_strides(all);
    if (const int next = finder.reader(y);
        next >= 0 && is_op(graph.nodes[static_cast<std::size_t>(next)], "Transpose")) {
      const Node& turn = graph.nodes[static_cast<std::size_t>(next)];
      const std::size_t rank = shape_of(y).size();
      const std::vector<i64> order = order_of(turn, rank);
      const Shape own = contiguous_strides(shape_of(turn.outputs[0]));
      if (order.back() == static_cast<i64>(rank) - 1) {
        for (std::size_t d = 0; d < rank; ++d)
          strides[4 - rank + static_cast<std::size_t>(order[d])] = own[d];
        absorbed.push_back(last);
        found.last = static_cast<std::size_t>(next), y = turn.outputs[0];
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
    const Type type = graph.at(y).type;
    const auto is_ours = [&](const HeadView& view) {
      return graph.at(view.source).type == type && !graph.is_constant(view.source);
    };
    if ((type != Type::f16 && type != Type::bf16) || !is_ours(*q) || !is_ours(*k) || !is_ours(*v)) continue;
    call.element = map_element(type, softmax.title());
    // The values' columns are as many as the keys', and nothing multiplies them.
    if (v->shape[3] != call.depth || v->shape[2] != call.keys || v->scale != 1) continue;
    found.sources = {q->source, k->source, v->source};
    results.push_back(std::move(found));
  }
  return results;
}

}  // namespace faltung::network
