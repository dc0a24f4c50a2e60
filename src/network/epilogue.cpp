#include "src/network/epilogue.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/problem/problem.hpp"
#include "src/problem/reference.hpp"

namespace faltung::network {

FusedActivation read_activation(const Node& node) {
  FusedActivation found;
  const std::string text = node.text("activation", "none");
  for (const Activation a : kActivations) {
    if (text == faltung::name(a)) found.call.kind = a;
  }
  found.call.a = node.number("a", 0), found.call.b = node.number("b", 0);
  if (const auto slopes = node.attributes.find("slopes"); slopes != node.attributes.end())
    found.slopes = std::get<std::shared_ptr<const Constant>>(slopes->second);
  return found;
}

void set_activation(Node& node, const FusedActivation& activation) {
  node.attributes["activation"] = std::string(faltung::name(activation.call.kind));
  node.attributes["a"] = activation.call.a, node.attributes["b"] = activation.call.b;
  if (activation.slopes != nullptr) node.attributes["slopes"] = activation.slopes;
}

ResidualOrder read_residual_order(const Node& node) {
  return node.integer("residual_after", 0) != 0 ? ResidualOrder::after_activation
                                                : ResidualOrder::before_activation;
}

void set_residual_order(Node& node, ResidualOrder order) {
  node.attributes["residual_after"] = std::int64_t{order == ResidualOrder::after_activation};
}

Epilogue epilogue_of(const Node& node, DType dtype, Behind behind) {
  Epilogue epilogue;
  epilogue.bias = behind.bias;
  if (behind.bias && dtype != DType::f32) epilogue.bias_element = BiasElement::f32;
  epilogue.residual = behind.residual;
  if (behind.residual) epilogue.residual_order = read_residual_order(node);
  faltung::set_activation(epilogue, read_activation(node).call);
  return epilogue;
}

NodeEpilogue::NodeEpilogue(const Node& node) : order_(read_residual_order(node)) {
  const FusedActivation activation = read_activation(node);
  activation_ = activation.call;
  if (activation.slopes != nullptr) slopes_ = decode(*activation.slopes).data;
}

double NodeEpilogue::operator()(std::int64_t channel, double x, const double* residual) const {
  ActivationCall own = activation_;
  if (!slopes_.empty()) own.a = static_cast<float>(slopes_[static_cast<std::size_t>(channel)]);
  if (residual == nullptr) return activate(own, x);
  if (order_ == ResidualOrder::after_activation) return activate(own, x) + *residual;
  return activate(own, x + *residual);
}

namespace {

// Where slopes have one number a channel: they are along its axis alone.
std::shared_ptr<const Constant> slopes_of_channels(const Array& slopes, const Channels& channels) {
  if (slopes.shape.size() > channels.rank) return nullptr;
  const std::size_t beside = channels.rank - slopes.shape.size();
  if (channels.axis < beside) return nullptr;
  for (std::size_t i = 0; i < slopes.shape.size(); ++i) {
    if (slopes.shape[i] != (beside + i == channels.axis ? channels.count : 1)) return nullptr;
  }
  return std::make_shared<const Constant>(encode({Type::f32, {channels.count}, slopes.data}));
}

}  // namespace

std::optional<FusedActivation> as_activation(const Graph& graph, const Node& node, const Channels& channels) {
  const auto is = [](Activation kind, float a = 0, float b = 0) {
    return FusedActivation{{kind, a, b}, nullptr};
  };
  if (node.domain == "faltung") return node.op == "Silu" ? std::optional(is(Activation::silu)) : std::nullopt;
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "Relu") return is(Activation::relu);
  if (node.op == "Sigmoid") return is(Activation::sigmoid);
  if (node.op == "HardSwish") return is(Activation::hardswish);
  if (node.op == "LeakyRelu") return is(Activation::leaky_relu, node.number("alpha", 0.01f));
  if (node.op == "HardSigmoid" && node.number("beta", 0.5f) == 0.5f)
    return is(Activation::hardsigmoid, node.number("alpha", 0.2f));
  if (node.op == "PRelu") {
    const std::optional<Array> slopes = graph.constant(node.inputs[1]);
    if (!slopes) return std::nullopt;
    if (slopes->data.size() == 1) return is(Activation::leaky_relu, static_cast<float>(slopes->data[0]));
    FusedActivation prelu = is(Activation::prelu);
    prelu.slopes = slopes_of_channels(*slopes, channels);
    if (prelu.slopes != nullptr) return prelu;
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
    // Both bounds are finite: without one an infinite value stays so.
    constexpr double kMost = std::numeric_limits<float>::max();
    if (low >= -kMost && low <= high && high <= kMost)
      return is(Activation::clip, static_cast<float>(low), static_cast<float>(high));
  }
  return std::nullopt;
}

}  // namespace faltung::network
