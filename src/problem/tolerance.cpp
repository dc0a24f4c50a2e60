#include "src/problem/tolerance.hpp"

#include <cmath>
#include <limits>

#include "src/problem/dtype.hpp"

namespace faltung {
namespace {

constexpr double kU = 0x1p-24;             // fp32's unit roundoff
constexpr double kTf32 = 0x1p-11;          // tf32's
constexpr double kUnderflow = 0x1p-149;    // what a rounding loses where there are no more bits
constexpr double kTf32Least = 0x1p-136;    // tf32's smallest number
constexpr double kNormalLeast = 0x1p-126;  // fp32's and bf16's smallest normal one

// The largest slope of the activation: how much of an error in x can reach the result.
double steepest(const Epilogue& e, double slope) {
  switch (e.activation) {
    case Activation::none:
    case Activation::relu:
    case Activation::relu6:
    case Activation::clip:
      return 1;
    case Activation::leaky_relu:
    case Activation::prelu:
      return std::max(1.0, std::abs(slope));
    case Activation::sigmoid:
      return 0.25;
    case Activation::silu:
      return 1.1;  // max of its derivative 1.0998
    case Activation::gelu:
      return 1.13;  // 1.1289
    case Activation::gelu_tanh:
      return 1.13;  // 1.1291
    case Activation::hardswish:
      return 1.5;
    case Activation::hardsigmoid:
      return std::abs(slope);
  }
  return 1;
}

// The activation's own rounding error, absolute: a few operations on values no larger than 1 + |x|, where x
// is at most the magnitude; exp, erf and tanh are accurate to a few units in the last place of values up
// to 1.
double evaluation_error(const Epilogue& e, double slope, double magnitude) {
  switch (e.activation) {
    case Activation::none:
    case Activation::relu:
    case Activation::relu6:
    case Activation::clip:
      return 0;
    case Activation::leaky_relu:
    case Activation::prelu:
      return kU * magnitude * std::abs(slope);
    case Activation::sigmoid:
      return 8 * kU;
    case Activation::hardsigmoid:
      return 2 * kU * (1 + magnitude * std::abs(slope));
    default:
      return 8 * kU * magnitude;
  }
}

// No activated value is larger, where the sum's magnitude is that.
double largest_value(const Epilogue& e, double slope, double magnitude) {
  switch (e.activation) {
    case Activation::sigmoid:
      return std::min(1.0, 0.5 + 0.25 * magnitude);  // its value at 0, and its largest slope
    case Activation::hardsigmoid:
      return 1;
    case Activation::leaky_relu:
    case Activation::prelu:
      return std::max(1.0, std::abs(slope)) * magnitude;
    case Activation::clip: {
      const double least = e.clip.least, most = e.clip.most;
      return std::max({std::min(magnitude, std::max(std::abs(least), std::abs(most))), least, -most});
    }
    default:
      return magnitude;
  }
}

// What a sum loses because factors, and partial sums, have no bits below a least number.
double lost_below(const Accuracy& accuracy, const Expected& expected) {
  switch (accuracy.factors) {
    case Factors::whole:
      return 0;
    case Factors::tf32:
    case Factors::tf32_parts:
      return kTf32Least * expected.factors;
    case Factors::normal:
      return kNormalLeast * (expected.factors + accuracy.growth);  // growth: of the sum's roundings
  }
  return 0;
}

}  // namespace

double dot_product_growth(const Problem& p) { return static_cast<double>(reduction_length(p)); }

Accuracy gathering_accuracy(const Problem& p) {
  Accuracy a = dot_product_accuracy(p);
  const bool strides = p.stride_d > 1 || p.stride_h > 1 || p.stride_w > 1;
  if (p.direction == Direction::backward_data && strides) a.zeros_meet = ZerosMeet::channel;
  return a;
}

double admitted_growth(const Problem& p) {
  if (p.math == Math::fast) return std::numeric_limits<double>::infinity();
  return dot_product_growth(p);
}

double error_bound(const Problem& p, const Accuracy& accuracy, const Expected& expected) {
  // bias, residual and the average's sum each add one rounding of a value no larger than the magnitude.
  const bool after = p.epilogue.residual_order == ResidualOrder::after_activation;
  double growth = accuracy.growth + (p.epilogue.bias ? 1 : 0) + (p.epilogue.residual && !after ? 1 : 0);
  const double slope = has_slopes(p) ? expected.slope : static_cast<double>(p.epilogue.slope);
  const double largest = largest_value(p.epilogue, slope, expected.magnitude) + expected.beside;
  double pooling = 0;
  if (p.epilogue.pool.kind == PoolKind::average) {
    // The sum's roundings, and that of a convolution stored in the problem's dtype before it is averaged.
    const double window = static_cast<double>(p.epilogue.pool.size_h * p.epilogue.pool.size_w);
    pooling = ((window + 1) * kU + info(p.dtype).unit_roundoff) * largest;
  }
  double relative = growth * kU / (1 - std::min(0.5, growth * kU));
  if (p.math == Math::tf32) relative += 2 * kTf32 + kTf32 * kTf32;
  const double computed =
      steepest(p.epilogue, slope) *
          (relative * expected.magnitude + growth * kUnderflow + lost_below(accuracy, expected)) +
      evaluation_error(p.epilogue, slope, expected.magnitude) + pooling + (after ? kU * largest : 0);
  const DTypeInfo& type = info(p.dtype);
  return computed + type.unit_roundoff * (std::abs(expected.value) + computed) + type.smallest;
}

double error_over_bound(const Problem& p, const Accuracy& accuracy, const Expected& expected, float actual) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double bound = error_bound(p, accuracy, expected);
  if (std::isnan(expected.value)) return std::isnan(actual) ? 0 : kInfinity;
  if (std::isnan(actual)) return expected.may_be_nan ? 0 : kInfinity;
  // A value within the bound of the dtype's largest may round to infinity and be right.
  const double stored = round_to(p.dtype, static_cast<float>(expected.value));
  if (stored == actual) return 0;
  if (std::isinf(actual)) {
    const double outer = expected.value + std::copysign(bound, actual);
    return round_to(p.dtype, static_cast<float>(outer)) == actual ? 1 : kInfinity;
  }
  if (std::isinf(expected.value)) return kInfinity;  // the bound is infinite, too
  return std::abs(actual - expected.value) / bound;
}

}  // namespace faltung
