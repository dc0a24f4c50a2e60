// Recurrent layers by steps: one product for the inputs of all steps, then for each step one of the state and
// elementwise nodes.
#include <numeric>

#include "src/network/passes.hpp"
#include "src/network/recurrent.hpp"

namespace faltung::network {
namespace {

using i64 = std::int64_t;
using Attributes = std::map<std::string, Attribute, std::less<>>;

class Unroller {
 public:
  explicit Unroller(Graph graph) : graph_(std::move(graph)) {}

  Graph run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (!unroll(node)) graph_.nodes.push_back(std::move(node));
    }
    return std::move(graph_);
  }

 private:
  // What a layer's direction has.
  struct Weights {
    ValueId w, r, w_bias, r_bias;
  };

  const Shape& shape(ValueId id) const { return *graph_.at(id).shape; }
  static bool has(const Node& node, std::size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNone;
  }

  ValueId value(Shape shape) {
    Value v;
    v.name = layer_->name + " step " + std::to_string(count_++);
    v.type = Type::f32;
    v.shape = std::move(shape);
    return graph_.add(std::move(v));
  }
  ValueId emit(const char* op, const char* domain, std::vector<ValueId> inputs, ValueId y,
               Attributes attributes = {}) {
    Node node;
    node.op = op, node.domain = domain, node.name = layer_->name;
    node.inputs = std::move(inputs), node.outputs = {y};
    node.attributes = std::move(attributes);
    graph_.nodes.push_back(std::move(node));
    return y;
  }
  ValueId unary(const char* op, ValueId x) { return emit(op, "", {x}, value(shape(x))); }
  ValueId binary(const char* op, ValueId a, ValueId b) { return emit(op, "", {a, b}, value(shape(a))); }
  ValueId constant(Array array) { return graph_.add_constant(layer_->name + " constant", array); }
  ValueId reshaped(ValueId x, const Shape& to, ValueId y = kNone) {
    const ValueId target = constant({Type::i64, {static_cast<i64>(to.size())}, {to.begin(), to.end()}});
    return emit("Reshape", "", {x, target}, y == kNone ? value(to) : y);
  }
  ValueId part(ValueId x, i64 axis, i64 begin, i64 size) {
    Shape to = shape(x);
    if (to[static_cast<std::size_t>(axis)] == size) return x;
    to[static_cast<std::size_t>(axis)] = size;
    if (const std::optional<Array> all = graph_.constant(x))
      return constant(part_of(*all, axis, begin, size));
    return emit("Slice", "", {x}, value(to),
                {{"starts", Attribute(Shape{begin})},
                 {"ends", Attribute(Shape{begin + size})},
                 {"axes", Attribute(Shape{axis})}});
  }
  static Array part_of(const Array& all, i64 axis, i64 begin, i64 size) {
    Array one{all.type, all.shape, {}};
    one.shape[static_cast<std::size_t>(axis)] = size;
    i64 inner = 1;
    for (auto d = static_cast<std::size_t>(axis) + 1; d < all.shape.size(); ++d) inner *= all.shape[d];
    const i64 length = all.shape[static_cast<std::size_t>(axis)] * inner;
    for (i64 at = begin * inner; at < static_cast<i64>(all.data.size()); at += length)
      one.data.insert(one.data.end(), all.data.begin() + at, all.data.begin() + at + size * inner);
    return one;
  }
  ValueId transposed(ValueId x, const Shape& order, ValueId y = kNone) {
    Shape to;
    for (const i64 d : order) to.push_back(shape(x)[static_cast<std::size_t>(d)]);
    return emit("Transpose", "", {x}, y == kNone ? value(to) : y, {{"perm", Attribute(order)}});
  }
  // Rows of what one direction has of an input, or kNone.
  ValueId of_direction(std::size_t input, i64 direction, const Shape& to) {
    if (!has(*layer_, input)) return kNone;
    const ValueId one = part(layer_->inputs[input], 0, direction, 1);
    std::optional<Array> array = graph_.constant(one);
    if (!array) return reshaped(one, to);
    array->shape = to;
    return constant(std::move(*array));
  }

  // x (m, k) by w (n, k), plus bias and addend.
  ValueId product(ValueId x, ValueId w, ValueId bias, ValueId addend = kNone) {
    const Shape to{shape(x)[0], shape(w)[0]};
    if (graph_.is_constant(w) && (bias == kNone || graph_.is_constant(bias)))
      return emit("Linear", "faltung", {x, w, bias, addend}, value(to));
    ValueId y = emit("MatMul", "", {x, transposed(w, {1, 0})}, value(to));
    if (bias != kNone) y = binary("Add", y, bias);
    return addend == kNone ? y : binary("Add", y, addend);
  }

  ValueId sigmoid(ValueId x) { return unary("Sigmoid", x); }
  ValueId gate(ValueId gates, i64 i) { return part(gates, 1, i * r_.hidden, r_.hidden); }

  // The next h, and of an LSTM c: from x by W, with its bias.
  void step(const Weights& w, ValueId x, ValueId& h, ValueId& c) {
    if (r_.cell == Cell::plain) {
      h = unary("Tanh", product(h, w.r, w.r_bias, x));
    } else if (r_.cell == Cell::lstm) {
      const ValueId gates = product(h, w.r, w.r_bias, x);
      const ValueId kept = binary("Mul", sigmoid(gate(gates, 2)), c);
      c = binary("Add", kept, binary("Mul", sigmoid(gate(gates, 0)), unary("Tanh", gate(gates, 3))));
      h = binary("Mul", sigmoid(gate(gates, 1)), unary("Tanh", c));
    } else {
      const i64 size = r_.hidden;
      const auto bias = [&](i64 begin, i64 count) {
        return w.r_bias == kNone ? kNone : part(w.r_bias, 0, begin * size, count * size);
      };
      const ValueId both = product(h, part(w.r, 0, 0, 2 * size), bias(0, 2), part(x, 1, 0, 2 * size));
      const ValueId update = sigmoid(gate(both, 0)), reset = sigmoid(gate(both, 1));
      const ValueId third = part(w.r, 0, 2 * size, size), of_x = part(x, 1, 2 * size, size);
      const ValueId inner = r_.linear_before_reset
                                ? binary("Add", of_x, binary("Mul", reset, product(h, third, bias(2, 1))))
                                : product(binary("Mul", reset, h), third, bias(2, 1), of_x);
      const ValueId next = unary("Tanh", inner);
      h = binary("Add", next, binary("Mul", update, binary("Sub", h, next)));
    }
  }

  struct Run {
    std::vector<ValueId> states;  // by step
    ValueId h, c;                 // the last ones
  };
  Run direction(ValueId x, i64 d) {
    const i64 rows = r_.gates() * r_.hidden;
    const ValueId bias = of_direction(3, d, {2 * rows});
    const Weights w{of_direction(1, d, {rows, r_.in}), of_direction(2, d, {rows, r_.hidden}),
                    bias == kNone ? kNone : part(bias, 0, 0, rows),
                    bias == kNone ? kNone : part(bias, 0, rows, rows)};
    const ValueId all = product(reshaped(x, {r_.steps * r_.batch, r_.in}), w.w, w.w_bias);
    Run run;
    run.states.resize(static_cast<std::size_t>(r_.steps));
    run.h = first_state(5, d), run.c = r_.cell == Cell::lstm ? first_state(6, d) : kNone;
    const bool back = r_.reverse || d == 1;
    for (i64 i = 0; i < r_.steps; ++i) {
      const i64 t = back ? r_.steps - 1 - i : i;
      step(w, part(all, 0, t * r_.batch, r_.batch), run.h, run.c);
      run.states[static_cast<std::size_t>(t)] = run.h;
    }
    return run;
  }
  ValueId first_state(std::size_t input, i64 d) {
    const Shape to{r_.batch, r_.hidden};
    if (!has(*layer_, input))
      return constant({Type::f32, to, std::vector<double>(static_cast<std::size_t>(elements(to)))});
    const ValueId given = layer_->inputs[input];
    return reshaped(part(given, r_.batch_first ? 1 : 0, d, 1), to);
  }

  // Parts side by side, of which each is seen with this shape; as y has it.
  void joined(const std::vector<ValueId>& parts, const Shape& each, i64 axis, const Shape& batch_first,
              ValueId y) {
    std::vector<ValueId> seen;
    for (const ValueId id : parts) seen.push_back(reshaped(id, each));
    Shape all = each;
    all[static_cast<std::size_t>(axis)] *= static_cast<i64>(parts.size());
    const ValueId to = r_.batch_first ? value(all) : y;
    emit("Concat", "", seen, to, {{"axis", Attribute(axis)}});
    if (r_.batch_first) transposed(to, batch_first, y);
  }

  bool unroll(const Node& node) {
    if (!node.domain.empty() || (node.op != "LSTM" && node.op != "GRU" && node.op != "RNN")) return false;
    // Lengths of sequences and peepholes are left to the reference.
    if (has(node, 4) || has(node, 7) || graph_.at(node.inputs[0]).type != Type::f32) return false;
    std::vector<Operand> operands;
    std::vector<const Operand*> pointers;
    operands.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) {
      if (id != kNone) operands.push_back({graph_.at(id).type, shape(id), nullptr});
      pointers.push_back(id == kNone ? nullptr : &operands.back());
    }
    r_ = read_recurrence(Site(node, graph_.opset, pointers));
    if (r_.steps == 0 || r_.batch == 0) return false;
    layer_ = &node;
    count_ = 0;
    const ValueId given = node.inputs[0], x = r_.batch_first ? transposed(given, {1, 0, 2}) : given;
    std::vector<Run> runs;
    for (i64 d = 0; d < r_.directions(); ++d) runs.push_back(direction(x, d));
    const auto output = [&](std::size_t i) { return i < node.outputs.size() ? node.outputs[i] : kNone; };
    if (output(0) != kNone) {
      std::vector<ValueId> states;
      for (std::size_t t = 0; t < static_cast<std::size_t>(r_.steps); ++t) {
        for (const Run& run : runs) states.push_back(run.states[t]);
      }
      // By step and direction, in this order, which is one axis of both.
      const Shape all{r_.steps, r_.directions(), r_.batch, r_.hidden};
      const ValueId joint = value({r_.steps * r_.directions() * r_.batch, r_.hidden});
      emit("Concat", "", states, joint, {{"axis", Attribute(i64{0})}});
      const ValueId seen = reshaped(joint, all, r_.batch_first ? kNone : output(0));
      if (r_.batch_first) transposed(seen, {2, 0, 1, 3}, output(0));
    }
    const Shape each{1, r_.batch, r_.hidden};
    std::vector<ValueId> last_h, last_c;
    for (const Run& run : runs) last_h.push_back(run.h), last_c.push_back(run.c);
    if (output(1) != kNone) joined(last_h, each, 0, {1, 0, 2}, output(1));
    if (output(2) != kNone) joined(last_c, each, 0, {1, 0, 2}, output(2));
    return true;
  }

  Graph graph_;
  const Node* layer_ = nullptr;
  Recurrence r_;
  int count_ = 0;
};

}  // namespace

Graph unroll_recurrences(Graph graph) { return Unroller(std::move(graph)).run(); }

}  // namespace faltung::network
