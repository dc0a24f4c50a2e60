#include "src/network/epilogue.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/problem/problem.hpp"

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

namespace {

double activate(const Node& node, const FusedActivation& a, double x) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  switch (a.kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::relu6:
      return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::leaky_relu:
      return x < 0 ? x * a.slope : x;
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::hardswish:
      return x * (x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6);
    case Activation::hardsigmoid:
      return std::clamp(a.slope * x + 0.5, 0.0, 1.0);
    default:
      throw Error(Status::internal, node.title() + ": its activation has no reference");
  }
}

}  // namespace

double finish(const Node& node, double x, const double* residual) {
  const FusedActivation a = read_activation(node);
  if (residual == nullptr) return activate(node, a, x);
  if (read_residual_order(node) == ResidualOrder::after_activation) return activate(node, a, x) + *residual;
  return activate(node, a, x + *residual);
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
