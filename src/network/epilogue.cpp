#include "src/network/epilogue.hpp"

#include <algorithm>
#include <cmath>

#include "src/problem/problem.hpp"
#include "src/problem/reference.hpp"

namespace faltung::network {

FusedActivation read_activation(const Node& node) {
  FusedActivation found;
  const std::string text = node.text("activation", "none");
  for (const Activation a : kActivations) {
    if (text == faltung::name(a)) found.kind = a;
  }
  found.slope = node.number("slope", found.slope);
  return found;
}

void set_activation(Node& node, const FusedActivation& activation) {
  node.attributes["activation"] = std::string(faltung::name(activation.kind));
  if (takes_slope(activation.kind)) node.attributes["slope"] = activation.slope;
}

ResidualOrder read_residual_order(const Node& node) {
  return node.integer("residual_after", 0) != 0 ? ResidualOrder::after_activation
                                                : ResidualOrder::before_activation;
}

void set_residual_order(Node& node, ResidualOrder order) {
  node.attributes["residual_after"] = std::int64_t{order == ResidualOrder::after_activation};
}

Epilogue epilogue_of(const Node& node, DType dtype, Behind behind) {
  const FusedActivation activation = read_activation(node);
  Epilogue epilogue;
  epilogue.bias = behind.bias;
  if (behind.bias && dtype != DType::f32) epilogue.bias_element = BiasElement::f32;
  epilogue.residual = behind.residual;
  if (behind.residual) epilogue.residual_order = read_residual_order(node);
  epilogue.activation = activation.kind;
  if (takes_slope(activation.kind)) epilogue.slope = activation.slope;
  return epilogue;
}

double finish(const Node& node, double x, const double* residual) {
  const FusedActivation a = read_activation(node);
  const auto activated = [&](double value) { return activate(a.kind, a.slope, value); };
  if (residual == nullptr) return activated(x);
  if (read_residual_order(node) == ResidualOrder::after_activation) return activated(x) + *residual;
  return activated(x + *residual);
}

std::optional<FusedActivation> as_activation(const Graph& graph, const Node& node) {
  const auto is = [&](Activation kind) { return FusedActivation{kind}; };
  if (node.domain == "faltung") return node.op == "Silu" ? std::optional(is(Activation::silu)) : std::nullopt;
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "Relu") return is(Activation::relu);
  if (node.op == "Sigmoid") return is(Activation::sigmoid);
  if (node.op == "HardSwish") return is(Activation::hardswish);
  if (node.op == "LeakyRelu") return FusedActivation{Activation::leaky_relu, node.number("alpha", 0.01f)};
  if (node.op == "HardSigmoid" && node.number("beta", 0.5f) == 0.5f)
    return FusedActivation{Activation::hardsigmoid, node.number("alpha", 0.2f)};
  if (node.op == "PRelu") {
    const std::optional<Array> slope = graph.constant(node.inputs[1]);
    if (slope && slope->data.size() == 1)
      return FusedActivation{Activation::leaky_relu, static_cast<float>(slope->data[0])};
  }
  if (node.op == "Gelu")
    return is(node.text("approximate", "none") == "tanh" ? Activation::gelu_tanh : Activation::gelu);
  if (node.op == "Clip") {
    const auto bound = [&](const char* key, std::size_t input, double otherwise) -> double {
      if (input >= node.inputs.size() || node.inputs[input] == kNone)
        return node.number(key, static_cast<float>(otherwise));
      const std::optional<Array> value = graph.constant(node.inputs[input]);
      return value && value->data.size() == 1 ? value->data[0] : std::nan("");
    };
    const double low = bound("min", 1, -HUGE_VAL), high = bound("max", 2, HUGE_VAL);
    if (low == 0 && high == 6) return is(Activation::relu6);
    if (low == 0 && high > 3e38) return is(Activation::relu);
  }
  return std::nullopt;
}

}  // namespace faltung::network
