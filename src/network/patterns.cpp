// Functions that exporters write in parts, and nodes that do nothing.
#include <cmath>
#include <numbers>
#include <optional>

#include "src/network/passes.hpp"
#include "src/network/rewriting.hpp"

namespace faltung::network {
namespace {

// Whether x beside this number keeps its dimensions: numbers, too, may have more of them.
bool keeps_rank(Rewriting& r, ValueId x, ValueId number) {
  const std::optional<Shape>& shape = r.graph().at(x).shape;
  return r.graph().at(number).constant->shape.size() <= (shape ? shape->size() : 1);
}

// Its input that is not a number, where the other one is that number.
std::optional<ValueId> with_number(Rewriting& r, const Node* node, double number) {
  if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
  for (const auto& [x, other] : {std::pair(node->inputs[0], node->inputs[1]),  //
                                 std::pair(node->inputs[1], node->inputs[0])}) {
    if (r.is_number(other, number) && keeps_rank(r, x, other)) return x;
  }
  return std::nullopt;
}

// x over a number, or times one over it.
std::optional<ValueId> divided(Rewriting& r, ValueId id, double by) {
  if (const Node* div = r.maker(id, "Div");
      div != nullptr && r.is_number(div->inputs[1], by) && keeps_rank(r, div->inputs[0], div->inputs[1]))
    return div->inputs[0];
  return with_number(r, r.maker(id, "Mul"), 1 / by);
}

// x times sigmoid(x), x times a hard sigmoid of it.
std::optional<std::string> product_pattern(Rewriting& r, const Node& mul, ValueId& x) {
  for (std::size_t i = 0; i < 2; ++i) {
    x = mul.inputs[i];
    const ValueId gate = mul.inputs[1 - i];
    if (const Node* s = r.maker(gate, "Sigmoid"); s != nullptr && s->inputs[0] == x) return "Silu";
    if (const Node* h = r.maker(gate, "HardSigmoid"); h != nullptr && h->inputs[0] == x) {
      if (std::abs(h->number("alpha", 0.2f) - 1.0 / 6) < 1e-6 &&
          std::abs(h->number("beta", 0.5f) - 0.5) < 1e-6)
        return "HardSwish";
    }
  }
  return std::nullopt;
}

// Whether a node clips to 0 and 6.
bool clips_to_six(const Rewriting& r, const Node& node) {
  const auto bound = [&](std::size_t input, const char* key) -> double {
    if (input < node.inputs.size() && node.inputs[input] != kNone)
      return r.number(node.inputs[input]).value_or(-1);
    return node.number(key, -1);
  };
  return bound(1, "min") == 0 && bound(2, "max") == 6;
}

// x · clip(x + 3, 0, 6) / 6; `end` is its last node.
std::optional<ValueId> hard_swish(Rewriting& r, ValueId end) {
  const std::optional<ValueId> product = divided(r, end, 6);
  if (!product) return std::nullopt;
  const Node* const mul = r.maker(*product, "Mul");
  if (mul == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node* const clip = r.maker(mul->inputs[i], "Clip");
    if (clip == nullptr || !clips_to_six(r, *clip)) continue;
    const std::optional<ValueId> x = with_number(r, r.maker(clip->inputs[0], "Add"), 3);
    if (x && *x == mul->inputs[1 - i]) return x;
  }
  return std::nullopt;
}

// 1 + erf(x / √2)
std::optional<ValueId> gelu_gate(Rewriting& r, ValueId id) {
  const std::optional<ValueId> erf = with_number(r, r.maker(id, "Add"), 1);
  const Node* const node = erf ? r.maker(*erf, "Erf") : nullptr;
  return node == nullptr ? std::nullopt : divided(r, node->inputs[0], std::numbers::sqrt2);
}

// Half of x times the gate, whichever two of the three were multiplied first.
std::optional<ValueId> gelu(Rewriting& r, const Node& mul) {
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId a = mul.inputs[i], b = mul.inputs[1 - i];
    if (const auto x = gelu_gate(r, b)) {
      if (divided(r, a, 2) == x) return x;
    }
    if (r.is_number(b, 0.5)) {
      const Node* const inner = r.maker(a, "Mul");
      if (inner == nullptr) continue;
      for (std::size_t j = 0; j < 2; ++j) {
        const auto x = gelu_gate(r, inner->inputs[j]);
        if (x && *x == inner->inputs[1 - j]) return x;
      }
    }
    const Node* const half = r.maker(b, "Mul");  // x · (gate / 2)
    if (const auto gate = with_number(r, half, 0.5)) {
      const auto x = gelu_gate(r, *gate);
      if (x && *x == a) return x;
    }
  }
  return std::nullopt;
}

bool is_mean(const Graph& graph, const Node* node, ValueId of) {
  if (node == nullptr || node->inputs[0] != of || node->integer("keepdims", 1) == 0) return false;
  if (const auto axes = node->integers("axes")) return *axes == std::vector<std::int64_t>{-1};
  if (node->inputs.size() < 2) return false;
  const std::optional<Array> axes = graph.constant(node->inputs[1]);
  return axes && axes->data == std::vector<double>{-1};
}

// (x - mean) / sqrt(mean of squares + epsilon) along the last dimension
struct Standard {
  ValueId x;
  float epsilon;
};
std::optional<Standard> standardized(Rewriting& r, const Node& div) {
  const Node* const sub = r.maker(div.inputs[0], "Sub");
  const Node* const root = r.maker(div.inputs[1], "Sqrt");
  if (sub == nullptr || root == nullptr) return std::nullopt;
  const ValueId x = sub->inputs[0], centred = div.inputs[0];
  if (!is_mean(r.graph(), r.maker(sub->inputs[1], "ReduceMean"), x)) return std::nullopt;
  const Node* const add = r.maker(root->inputs[0], "Add");
  if (add == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::optional<double> epsilon = r.number(add->inputs[i]);
    const Node* const mean = r.maker(add->inputs[1 - i], "ReduceMean");
    if (!epsilon || mean == nullptr || !keeps_rank(r, x, add->inputs[i])) continue;
    const ValueId squares = mean->inputs[0];
    const Node* const pow = r.maker(squares, "Pow");
    const Node* const mul = r.maker(squares, "Mul");
    const bool squared = (pow != nullptr && pow->inputs[0] == centred && r.is_number(pow->inputs[1], 2) &&
                          keeps_rank(r, x, pow->inputs[1])) ||
                         (mul != nullptr && mul->inputs[0] == centred && mul->inputs[1] == centred);
    if (squared && is_mean(r.graph(), mean, squares)) return Standard{x, static_cast<float>(*epsilon)};
  }
  return std::nullopt;
}

bool does_nothing(const Rewriting& r, const Graph& graph, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNone) return false;
  if (node.op == "Identity") return true;
  if (node.op == "Dropout") {
    const bool trains = node.inputs.size() > 2 && node.inputs[2] != kNone && !r.is_number(node.inputs[2], 0);
    return !trains && (node.outputs.size() == 1 || r.uses(node.outputs[1]) == 0);
  }
  return node.op == "Cast" && graph.at(node.inputs[0]).type == Type::f32 && node.integer("to", 0) == 1;
}

void become(Node& node, std::string op, std::string domain, ValueId x) {
  node.op = std::move(op), node.domain = std::move(domain);
  node.inputs = {x};
  node.attributes.clear();
}

}  // namespace

Graph find_patterns(Graph graph) {
  Rewriting r(std::move(graph));
  for (int i = 0; i < static_cast<int>(r.size()); ++i) {
    Node& node = r.node(i);
    if (!node.domain.empty()) continue;
    ValueId x = kNone;
    if (does_nothing(r, r.graph(), node)) {
      const ValueId from = node.outputs[0], to = node.inputs[0];
      r.remove(i);
      r.replace(from, to);
    } else if (node.op == "Mul" || node.op == "Div") {
      if (const auto hard = hard_swish(r, node.outputs[0])) {
        become(node, "HardSwish", "", *hard);
      } else if (const auto s = node.op == "Div" ? standardized(r, node) : std::nullopt) {
        become(node, "Standardize", "faltung", s->x);
        node.attributes["axis"] = std::int64_t{-1};
        node.attributes["epsilon"] = s->epsilon;
      } else if (node.op == "Mul") {
        if (const auto op = product_pattern(r, node, x)) {
          become(node, *op, *op == "Silu" ? "faltung" : "", x);
        } else if (const auto g = gelu(r, node)) {
          become(node, "Gelu", "", *g);
        }
      }
    }
  }
  r.update();
  return r.finish();
}

}  // namespace faltung::network
