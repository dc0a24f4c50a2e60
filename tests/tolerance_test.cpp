// The bound on the error: it holds for every order of a sum, and it is not met by what is wrong.
#include "src/problem/tolerance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/problem/dtype.hpp"
#include "src/problem/parse.hpp"

namespace faltung {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kU = 0x1p-24;

Problem problem(const std::string& more = "f32") { return parse_problem("fwd:n1c16h8w8k4r3s3:" + more); }

double ratio(const Problem& p, double value, double magnitude, double actual) {
  return error_over_bound(p, {dot_product_growth(p)}, {value, magnitude}, static_cast<float>(actual));
}

TEST(ErrorOverBound, IsInUnitsOfTheBound) {
  const Problem p = problem();
  const double bound = error_bound(p, {144}, {1, 10});
  // 144 roundings of 10, and that of the result.
  EXPECT_NEAR(bound, 144 * kU * 10 + kU, 1e-3 * bound);
  EXPECT_EQ(ratio(p, 1, 10, 1), 0);
  EXPECT_NEAR(ratio(p, 1, 10, 1 + bound), 1, 0.01);
  EXPECT_NEAR(ratio(p, 1, 10, 1 - 3 * bound), 3, 0.01);
  EXPECT_GT(ratio(p, 1, 10, -1), 1000);
  EXPECT_GT(ratio(p, 1, 10, 0), 1000);  // a result that was never written, or zeros
}

TEST(ErrorOverBound, NanAndInfinityMatchThemselvesAlone) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const Problem p = problem(type);
    EXPECT_EQ(ratio(p, kNan, kNan, kNan), 0);
    EXPECT_EQ(ratio(p, kNan, kNan, 0), kInf);
    EXPECT_EQ(ratio(p, kNan, kNan, kInf), kInf);
    EXPECT_EQ(ratio(p, 1, 1, kNan), kInf);
    EXPECT_EQ(ratio(p, 1, 1, kInf), kInf);
    EXPECT_EQ(ratio(p, 1, 1, -kInf), kInf);
    EXPECT_EQ(ratio(p, kInf, kInf, kInf), 0);
    EXPECT_EQ(ratio(p, -kInf, kInf, -kInf), 0);
    EXPECT_EQ(ratio(p, kInf, kInf, -kInf), kInf);
    EXPECT_EQ(ratio(p, kInf, kInf, 5), kInf);
    EXPECT_EQ(ratio(p, kInf, kInf, kNan), kInf);
    EXPECT_EQ(ratio(p, -kInf, kInf, std::numeric_limits<float>::lowest()), kInf);
  }
}

TEST(ErrorOverBound, OverflowOfTheDtype) {
  const Problem p = problem("f16");
  EXPECT_EQ(ratio(p, 70000, 70000, kInf), 0);  // rounds to infinity
  EXPECT_GT(ratio(p, 70000, 70000, 65504), 1);
  EXPECT_LE(ratio(p, 65519, 65519, kInf), 1);  // just below the tie: either is right
  EXPECT_LE(ratio(p, 65519, 65519, 65504), 1);
  EXPECT_EQ(ratio(p, 60000, 60000, kInf), kInf);
  EXPECT_EQ(ratio(p, 65519, 65519, -kInf), kInf);
}

TEST(ErrorOverBound, TinyResults) {
  // An exact zero among products that cancel, and results below the smallest number of the dtype.
  EXPECT_LE(ratio(problem(), 0, 1, 144 * kU), 1.001);
  EXPECT_GT(ratio(problem(), 0, 1, 200 * kU), 1);
  EXPECT_LE(ratio(problem("f16"), 1e-9, 1e-9, 0), 1);
  EXPECT_GT(ratio(problem("f16"), 0, 1e-9, 0x1p-22), 1);
  EXPECT_EQ(ratio(problem(), 0, 0, 0), 0);
  EXPECT_GT(ratio(problem(), 0, 0, 1e-30), 1);
}

TEST(ErrorBound, GrowsWithWhatIsDone) {
  const Expected e{1, 10};
  const double plain = error_bound(problem(), {144}, e);
  for (const char* more : {"bias", "residual", "leaky_relu(2)", "bias:sigmoid", "silu", "gelu", "gelu_tanh",
                           "hardswish", "avgpool2", "math=tf32", "f16", "bf16"}) {
    const Problem p = problem(more);
    if (p.epilogue.activation == Activation::sigmoid) continue;  // it flattens
    EXPECT_GT(error_bound(p, {144}, e), plain) << more;
  }
  EXPECT_EQ(error_bound(problem("relu:maxpool2"), {144}, e), plain);
  EXPECT_LT(error_bound(problem("sigmoid"), {144}, e), plain);
  EXPECT_GT(error_bound(problem(), {145}, e), plain);
  EXPECT_EQ(admitted_growth(problem()), 144);
  EXPECT_EQ(admitted_growth(problem("math=fast")), kInf);
}

// Sums in fp32 in several orders stay within the bound; with one product left out they do not.
TEST(ErrorBound, HoldsForEveryOrderOfSummation) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const char* type : {"f32", "f16", "bf16"}) {
    const Problem p = problem(type);
    double worst = 0;
    for (int round = 0; round < 300; ++round) {
      std::vector<std::pair<float, float>> products(144);
      Expected e{0, 0};
      for (auto& [a, b] : products) {
        a = round_to(p.dtype, uniform(random)), b = round_to(p.dtype, uniform(random));
        e.value += static_cast<double>(a) * b;
        e.magnitude += std::abs(static_cast<double>(a) * b);
      }
      std::vector<float> sums(3);
      for (const auto& [a, b] : products) sums[0] += a * b;  // rounds twice
      for (const auto& [a, b] : products) sums[1] = std::fma(a, b, sums[1]);
      float lanes[16] = {};
      for (std::size_t i = 0; i < products.size(); ++i) {
        lanes[i % 16] = std::fma(products[i].first, products[i].second, lanes[i % 16]);
      }
      for (const float lane : lanes) sums[2] += lane;
      std::shuffle(products.begin(), products.end(), random);
      for (const float sum : sums) {
        worst = std::max(worst, error_over_bound(p, {dot_product_growth(p)}, e, round_to(p.dtype, sum)));
      }
      const auto missing = static_cast<float>(e.value - 0.25);
      EXPECT_GT(error_over_bound(p, {dot_product_growth(p)}, e, round_to(p.dtype, missing)), 1);
    }
    EXPECT_LE(worst, 1) << type;
    // Where the sum is rounded to 16 bits, that mostly hides its own errors.
    if (p.dtype == DType::f32) {
      EXPECT_GT(worst, 0);
    }
  }
}

// A sum as AMX makes it: fp32 multiply-adds that take denormals as zero and give none. Of denormals and large
// factors, then of products that are denormal.
TEST(ErrorBound, OfFactorsThatAreNormalHoldsWhereDenormalsAreZero) {
  const auto flushed = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0.0f : value; };
  const Problem p = problem("bf16");
  const Accuracy whole = dot_product_accuracy(p);
  Accuracy normal = whole;
  normal.factors = Factors::normal;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const auto& [x_scale, w_scale] : {std::pair{0x1p-126f, 0x1p20f}, {0x1p-64f, 0x1p-63f}}) {
    double worst = 0, worst_of_whole = 0;
    for (int round = 0; round < 300; ++round) {
      Expected e{0, 0};
      float sum = 0;
      for (int i = 0; i < 144; ++i) {
        const float x = round_to(p.dtype, uniform(random) * x_scale);
        const float w = round_to(p.dtype, uniform(random) * w_scale);
        e.value += static_cast<double>(x) * w;
        e.magnitude += std::abs(static_cast<double>(x) * w);
        e.factors += std::abs(static_cast<double>(x)) + std::abs(static_cast<double>(w));
        sum = flushed(std::fma(flushed(x), flushed(w), sum));
      }
      const float stored = round_to(p.dtype, sum);
      worst = std::max(worst, error_over_bound(p, normal, e, stored));
      worst_of_whole = std::max(worst_of_whole, error_over_bound(p, whole, e, stored));
    }
    EXPECT_LE(worst, 1) << x_scale;
    EXPECT_GT(worst_of_whole, 1) << x_scale;
  }
  // Of other values it says what is said of every sum.
  const Expected ordinary{1, 10, false, 300};
  EXPECT_EQ(error_bound(p, normal, ordinary), error_bound(p, whole, ordinary));
  EXPECT_GT(error_over_bound(p, normal, {0x1p-110, 0x1p-110, false, 300}, 0), 1);
}

// An error before the activation is no larger after it than the bound says.
TEST(ErrorBound, CoversTheActivationsSlope) {
  for (const char* name : {"none", "relu", "relu6", "leaky_relu(0.01)", "leaky_relu(-3)", "sigmoid", "silu",
                           "gelu", "gelu_tanh", "hardswish", "hardsigmoid(0.2)", "clip(-1.5,6)", "prelu"}) {
    const Problem p = problem(name);
    ActivationCall activation = activation_of(p.epilogue);
    if (has_slopes(p)) activation.a = -3;  // a channel's
    const double error = 1e-3, magnitude = 20;
    const Accuracy accuracy{error / (kU * magnitude)};
    double worst = 0;
    for (double x = -12; x < 12; x += 1.7e-3) {
      const double exact = activate(activation, x);
      Expected expected{exact, magnitude};
      expected.slope = activation.a;
      const double bound = error_bound(p, accuracy, expected);
      for (const double moved : {x - error, x + error}) {
        worst = std::max(worst, std::abs(activate(activation, moved) - exact) / bound);
      }
    }
    EXPECT_LE(worst, 1) << name;
    EXPECT_GT(worst, 0.9) << name;  // and the bound is no wider than it has to be
  }
}

}  // namespace
}  // namespace faltung
