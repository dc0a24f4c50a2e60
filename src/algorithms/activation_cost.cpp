#include "src/algorithms/activation_cost.hpp"

#include "src/algorithms/cpu_rates.hpp"

namespace faltung {
namespace {

// Of a vector, sums that go through memory once more among them: cycles, as measured with AVX-512.
double activation_cycles(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::relu:  // in registers
      return 0;
    case Activation::relu6:
    case Activation::leaky_relu:
    case Activation::hardswish:
    case Activation::hardsigmoid:
    case Activation::clip:
    case Activation::prelu:
      return 6;
    case Activation::sigmoid:
    case Activation::silu:
      return 10;
    case Activation::gelu:
      return 17;
    default:  // gelu_tanh's, and at most
      return 21;
  }
}

}  // namespace

double activation_ms(const Problem& p, const Target& target) {
  if (target.device.kind != "cpu") return 0;
  const double vectors = static_cast<double>(conv_shape(p).elements()) / brgemm_lanes();
  return vectors * activation_cycles(p.epilogue.activation) * cycle_ns() * 1e-6 / target.threads;
}

}  // namespace faltung
