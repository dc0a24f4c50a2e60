// Operators that compute each element of their result from one element of each input, broadcast.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "src/network/operator.hpp"

namespace faltung::network {
namespace {

// A function of one element of each input, x[0], x[1], ...; a and b are what parameters() has.
struct Scalars {
  const double* x;
  std::size_t count;
  double a, b;
};
using Function = double (*)(const Scalars&);

struct Parameters {
  double a = 0, b = 0;
};
using ReadParameters = Parameters (*)(const Site&);
Parameters none(const Site&) { return {}; }

// An attribute by its name, with its default, as a template argument.
struct Attribute1 {
  char name[16];
  float otherwise;
};
template <Attribute1 kA>
Parameters one(const Site& s) {
  return {s.node().number(kA.name, kA.otherwise), 0};
}
template <Attribute1 kA, Attribute1 kB>
Parameters two(const Site& s) {
  return {s.node().number(kA.name, kA.otherwise), s.node().number(kB.name, kB.otherwise)};
}

// Clip's bounds: attributes, later inputs. It is a function of its first input alone.
Parameters clip_bounds(const Site& s) {
  const auto bound = [&](const char* attribute, std::size_t input, float otherwise) -> double {
    if (!s.has(input)) return s.node().number(attribute, otherwise);
    const std::vector<double> value = s.numbers(input);
    s.require(value.size() == 1, "its bounds must be single numbers");
    return value[0];
  };
  return {bound("min", 1, -std::numeric_limits<float>::infinity()),
          bound("max", 2, std::numeric_limits<float>::infinity())};
}

// ---- shapes

Shape common_shape(const Site& s) {
  Shape shape = s.in(0).shape;
  for (std::size_t i = 1; i < s.count(); ++i) {
    try {
      shape = broadcast(shape, s.in(i).shape);
    } catch (const Error& error) {
      s.fail(error.what());
    }
  }
  return shape;
}

std::vector<Result> like_first(const Site& s) { return {{s.in(0).type, s.in(0).shape}}; }
std::vector<Result> like_second(const Site& s) { return {{s.in(1).type, common_shape(s)}}; }
std::vector<Result> broadcasting(const Site& s) { return {{s.in(0).type, common_shape(s)}}; }
std::vector<Result> predicate(const Site& s) { return {{Type::boolean, common_shape(s)}}; }

std::vector<Result> cast(const Site& s) {
  const Type type = type_of_number(s.node().integer("to", 0));
  if (size_of(type) == 0) s.decline("a cast to a type that is not known");
  return {{type, s.in(0).shape}};
}
std::vector<Result> cast_like(const Site& s) { return {{s.in(1).type, s.in(0).shape}}; }

// At inference it passes its input on; the mask is all true.
std::vector<Result> dropout(const Site& s) {
  if (s.has(2) && s.in(2).data != nullptr && s.in(2).data[0] != 0) s.decline("dropout in training mode");
  return {{s.in(0).type, s.in(0).shape}, {Type::boolean, s.in(0).shape}};
}
void evaluate_dropout(const Site& s, std::vector<Array>& out) {
  const double* const x = s.in(0).data;
  std::copy_n(x, out[0].data.size(), out[0].data.begin());
  if (out.size() > 1) std::fill(out[1].data.begin(), out[1].data.end(), 1.0);
}

// ---- the reference

// Inputs beyond kInputs (0: none) are parameters.
template <Function kFunction, ReadParameters kParameters, std::size_t kInputs>
void evaluate(const Site& s, std::vector<Array>& out) {
  const Parameters p = kParameters(s);
  const std::size_t inputs = kInputs == 0 ? s.count() : kInputs;
  std::vector<Shape> strides;
  for (std::size_t i = 0; i < inputs; ++i) strides.push_back(broadcast_strides(s.in(i).shape, out[0].shape));
  Odometer at(out[0].shape, std::move(strides));
  std::vector<double> x(inputs);
  for (double& y : out[0].data) {
    for (std::size_t i = 0; i < inputs; ++i) x[i] = s.in(i).data[at.offset(i)];
    y = round_to(out[0].type, kFunction({x.data(), inputs, p.a, p.b}));
    at.next();
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
// NaN in either comes out, unlike from std::max.

#define F(expression)                                           \
  [](const Scalars& s) -> double {                              \
    [[maybe_unused]] const double x = s.x[0], a = s.a, b = s.b; \
    return (expression);                                        \
  }
#define F2(expression)                   \
  [](const Scalars& s) -> double {       \
    const double x = s.x[0], y = s.x[1]; \
    return (expression);                 \
  }

template <Function kFunction, ReadParameters kParameters = none>
constexpr Operator unary(std::string_view name, int most = 1) {
  return {name, 1, most, like_first, evaluate<kFunction, kParameters, 1>};
}
template <Function kFunction>
constexpr Operator binary(std::string_view name) {
  return {name, 2, 2, broadcasting, evaluate<kFunction, none, 2>};
}
template <Function kFunction>
constexpr Operator compare(std::string_view name) {
  return {name, 2, 2, predicate, evaluate<kFunction, none, 2>};
}
template <Function kFunction>
constexpr Operator variadic(std::string_view name) {
  return {name, 1, kAny, broadcasting, evaluate<kFunction, none, 0>};
}

double sum(const Scalars& s) {
  double total = 0;
  for (std::size_t i = 0; i < s.count; ++i) total += s.x[i];
  return total;
}
double mean(const Scalars& s) { return sum(s) / static_cast<double>(s.count); }
double largest(const Scalars& s) {
  double value = s.x[0];
  for (std::size_t i = 1; i < s.count; ++i) value = larger(value, s.x[i]);
  return value;
}
double smallest(const Scalars& s) {
  double value = s.x[0];
  for (std::size_t i = 1; i < s.count; ++i) value = smaller(value, s.x[i]);
  return value;
}

// The sign of the divisor, as Python has it, or with fmod that of the dividend, as C has it.
Parameters mod_kind(const Site& s) { return {static_cast<double>(s.node().integer("fmod", 0)), 0}; }
double mod(const Scalars& s) {
  const double r = std::fmod(s.x[0], s.x[1]);
  return s.a == 0 && r != 0 && (r < 0) != (s.x[1] < 0) ? r + s.x[1] : r;
}
Parameters gelu_kind(const Site& s) {
  return {s.node().text("approximate", "none") == "tanh" ? 1.0 : 0.0, 0};
}

constexpr Operator kElementwiseOperators[] = {
    unary<F(x)>("Identity"),
    unary<F(std::abs(x))>("Abs"),
    unary<F(-x)>("Neg"),
    unary<F(std::sqrt(x))>("Sqrt"),
    unary<F(1 / x)>("Reciprocal"),
    unary<F(std::exp(x))>("Exp"),
    unary<F(std::log(x))>("Log"),
    unary<F(std::erf(x))>("Erf"),
    unary<F(std::tanh(x))>("Tanh"),
    unary<F(std::sin(x))>("Sin"),
    unary<F(std::cos(x))>("Cos"),
    unary<F(std::floor(x))>("Floor"),
    unary<F(std::ceil(x))>("Ceil"),
    unary<F(std::nearbyint(x))>("Round"),
    unary<F(x > 0   ? 1
            : x < 0 ? -1
                    : x)>("Sign"),
    unary<F(x != 0 ? 0 : 1)>("Not"),
    unary<F(sigmoid(x))>("Sigmoid"),
    unary<F(x < 0 ? 0 : x)>("Relu"),
    unary<F(softplus(x))>("Softplus"),
    unary<F(x / (1 + std::abs(x)))>("Softsign"),
    unary<F(x* std::tanh(softplus(x)))>("Mish"),
    unary<F(x* sigmoid(x))>("faltung.Silu"),
    unary<F(x* smaller(1, larger(0, x / 6 + 0.5)))>("HardSwish"),
    unary<F(a != 0 ? gelu_tanh(x) : 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2))), gelu_kind>("Gelu"),
    unary<F(x < 0 ? a * x : x), one<Attribute1{"alpha", 0.01f}>>("LeakyRelu"),
    unary<F(x > a ? x : 0), one<Attribute1{"alpha", 1.0f}>>("ThresholdedRelu"),
    unary<F(x < 0 ? a * std::expm1(x) : x), one<Attribute1{"alpha", 1.0f}>>("Elu"),
    unary<F(std::max(x, 0.0) + smaller(0, a* std::expm1(x / a))), one<Attribute1{"alpha", 1.0f}>>("Celu"),
    unary<F(b*(x <= 0 ? a * std::expm1(x) : x)),
          two<Attribute1{"alpha", 1.67326319f}, Attribute1{"gamma", 1.05070102f}>>("Selu"),
    unary<F(smaller(1, larger(0, a* x + b))), two<Attribute1{"alpha", 0.2f}, Attribute1{"beta", 0.5f}>>(
        "HardSigmoid"),
    unary<F(x<a ? std::min(a, b) : x> b ? b : x), clip_bounds>("Clip", 3),
    binary<F2(x + y)>("Add"),
    binary<F2(x - y)>("Sub"),
    binary<F2(x* y)>("Mul"),
    binary<F2(x / y)>("Div"),
    binary<F2(std::pow(x, y))>("Pow"),
    binary<F2(x < 0 ? x * y : x)>("PRelu"),
    {"Mod", 2, 2, broadcasting, evaluate<mod, mod_kind, 2>},
    compare<F2(x == y)>("Equal"),
    compare<F2(x < y)>("Less"),
    compare<F2(x > y)>("Greater"),
    compare<F2(x <= y)>("LessOrEqual"),
    compare<F2(x >= y)>("GreaterOrEqual"),
    compare<F2(x != 0 && y != 0)>("And"),
    compare<F2(x != 0 || y != 0)>("Or"),
    compare<F2((x != 0) != (y != 0))>("Xor"),
    variadic<sum>("Sum"),
    variadic<mean>("Mean"),
    variadic<largest>("Max"),
    variadic<smallest>("Min"),
    {"Where", 3, 3, like_second, evaluate<F(x != 0 ? s.x[1] : s.x[2]), none, 3>},
    {"Cast", 1, 1, cast, evaluate<F(x), none, 1>},
    {"CastLike", 2, 2, cast_like, evaluate<F(x), none, 1>},
    {"Dropout", 1, 3, dropout, evaluate_dropout},
};
#undef F
#undef F2

}  // namespace

std::span<const Operator> elementwise_operators() { return kElementwiseOperators; }

}  // namespace faltung::network
