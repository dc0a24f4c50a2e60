// What the CPU's kernels make of one value: every activation and the functions of elementwise chains, on
// floats of all sizes, against the same in long double; none of it at a denormal's price. And reductions of
// columns.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/epilogue.hpp"
#include "kernels/cpu/features.hpp"
#include "kernels/cpu/map.hpp"
#include "kernels/cpu/rows.hpp"
#include "src/problem/reference.hpp"
#include "tests/sampling.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace faltung {
namespace {

class CpuFunctions : public testing::Test {
 protected:
  static void SetUpTestSuite() { apply_isa_limit(); }
};

constexpr double kU = 0x1p-24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> mapped(MapOp op, const std::vector<float>& x, std::int64_t pitch = 0) {
  const std::int64_t count = static_cast<std::int64_t>(x.size());
  MapCall call;
  call.inputs.resize(1);
  call.program = {{op, 1, 0, 0, 0, 1.0f, 1.0f}};
  std::vector<float> y;
  if (pitch == 0) {
    call.sizes[0] = count, call.inputs[0].strides[0] = call.output.strides[0] = 1;
    y.resize(x.size());
  } else {  // rows of 24 that lie apart
    call.rank = 2, call.sizes[0] = count / 24, call.sizes[1] = 24;
    call.inputs[0].strides = {24, 1}, call.output.strides = {pitch, 1};
    y.assign(static_cast<std::size_t>(count / 24 * pitch), kNan);
  }
  const std::byte* const from = reinterpret_cast<const std::byte*>(x.data());
  for (std::int64_t task = 0; task < map_tasks(call); ++task)
    map_task(call, &from, reinterpret_cast<std::byte*>(y.data()), task);
  return y;
}

std::vector<float> activated(Activation activation, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  EpilogueCall call;
  call.from = x.data(), call.to = y.data(), call.rows = 1;
  call.columns = call.from_stride = call.to_stride = static_cast<std::int64_t>(x.size());
  call.activation = {activation, 0.25f, 2};
  epilogue_store(call);
  return y;
}

// Floats of all sizes and both signs, NaNs left out, and those where formulas turn.
std::vector<float> floats() {
  std::vector<float> x;
  const std::uint32_t step = sampling::full() ? 257 : 16411;
  for (std::uint64_t bits = sampling::seed(); bits < (std::uint64_t{1} << 32); bits += step) {
    const std::uint32_t word = static_cast<std::uint32_t>(bits);
    float value;
    std::memcpy(&value, &word, sizeof(value));
    if (!std::isnan(value)) x.push_back(value);
  }
  for (const float at : {0.0f,  0x1p-149f,  0x1p-126f, 1e-30f, 0.5f,   1.0f,   3.0f,  3.9f,  4.0f,
                         5.5f,  5.6568542f, 9.0f,      13.2f,  43.5f,  44.3f,  86.9f, 87.0f, 87.4f,
                         88.0f, 88.4f,      88.8f,     89.0f,  103.9f, 104.0f, 1e4f,  3e38f, kInfinity}) {
    for (const float sign : {1.0f, -1.0f}) {
      x.push_back(sign * at);
      x.push_back(std::nextafter(sign * at, 0.0f));
      x.push_back(std::nextafter(sign * at, sign * kInfinity));
    }
  }
  std::mt19937 random(static_cast<std::mt19937::result_type>(sampling::seed()));
  for (const float scale : {1.0f, 6.0f, 100.0f}) {
    std::uniform_real_distribution<float> near(-scale, scale);
    for (int i = 0; i < 50000; ++i) x.push_back(near(random));
  }
  return x;
}

struct Function {
  MapOp op;
  const char* name;
  double (*exact)(long double x);
  double (*bound)(double x, double y);  // of the error, where y is finite
};

double of_result(double, double y) { return 3 * kU * std::abs(y) + 0x1p-149; }
double of_one(double, double) { return 4 * kU; }
double of_size(double x, double) { return 8 * kU * std::abs(x) + 0x1p-149; }
double of_both(double x, double) { return 8 * kU * (1 + std::abs(x)); }
// Both bounds of vec_erf's comment.
double of_erf(double, double y) { return kU * std::min(7.0, 11 * std::abs(y)) + 0x1p-149; }

long double logistic(long double x) { return 1 / (1 + std::exp(-x)); }
long double softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x))); }

const Function kFunctions[] = {
    {MapOp::exp, "exp", [](long double x) { return static_cast<double>(std::exp(x)); }, of_result},
    {MapOp::erf, "erf", [](long double x) { return static_cast<double>(std::erf(x)); }, of_erf},
    {MapOp::tanh, "tanh", [](long double x) { return static_cast<double>(std::tanh(x)); }, of_one},
    {MapOp::sigmoid, "sigmoid", [](long double x) { return static_cast<double>(logistic(x)); }, of_one},
    {MapOp::softplus, "softplus", [](long double x) { return static_cast<double>(softplus(x)); }, of_both},
    {MapOp::mish, "mish", [](long double x) { return static_cast<double>(x * std::tanh(softplus(x))); },
     of_size},
    {MapOp::silu, "silu", [](long double x) { return static_cast<double>(x * logistic(x)); }, of_size},
    {MapOp::gelu, "gelu",
     [](long double x) { return static_cast<double>(x * std::erfc(-x * std::sqrt(0.5L)) / 2); }, of_size},
    {MapOp::elu, "elu", [](long double x) { return static_cast<double>(x < 0 ? std::expm1(x) : x); }, of_one},
};

TEST_F(CpuFunctions, WithinTheirBounds) {
  const std::vector<float> x = floats();
  for (const Function& f : kFunctions) {
    const std::vector<float> y = mapped(f.op, x);
    double worst = 0, where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]);
      if (std::isinf(x[i]) && f.exact(-kInfinity) != f.exact(-kInfinity)) continue;  // as its formula has it
      if (std::abs(exact) > 0x1.fffffep127) {
        EXPECT_EQ(std::abs(y[i]), kInfinity) << f.name << " of " << x[i];
        continue;
      }
      if (std::isinf(x[i])) continue;
      const double error = std::abs(y[i] - exact) / f.bound(x[i], exact);
      if (!(error <= worst)) worst = error, where = x[i];
    }
    std::printf("%s: %.2f of its bound at %g\n", f.name, worst, where);
    EXPECT_LE(worst, 1) << f.name << " of " << where;
  }
}

TEST_F(CpuFunctions, ActivationsWithinTheTolerancesBound) {
  const std::vector<float> x = floats();
  for (const Activation activation : kActivations) {
    const std::vector<float> y = activated(activation, x);
    double worst = 0, where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Beyond this gelu_tanh's cube and hardswish's product overflow, and their results with them.
      if (std::abs(x[i]) > 1e12) continue;
      const double exact = activate({activation, 0.25f, 2}, x[i]);
      const bool unit = activation == Activation::sigmoid || activation == Activation::hardsigmoid;
      const double error = std::abs(y[i] - exact) / (8 * kU * (unit ? 1 : std::abs(x[i])) + 0x1p-149);
      if (!(error <= worst)) worst = error, where = x[i];
    }
    EXPECT_LE(worst, 1) << static_cast<int>(activation) << " of " << where;
  }
}

TEST_F(CpuFunctions, LimitsAndNan) {
  const std::vector<float> x{kInfinity, -kInfinity, kNan, 0.0f, -0.0f};
  struct Case {
    MapOp op;
    float at_infinity, at_minus_infinity;
  };
  for (const Case& c : {Case{MapOp::erf, 1, -1}, Case{MapOp::tanh, 1, -1}, Case{MapOp::exp, kInfinity, 0},
                        Case{MapOp::softplus, kInfinity, 0}}) {
    const std::vector<float> y = mapped(c.op, x);
    EXPECT_EQ(y[0], c.at_infinity) << static_cast<int>(c.op);
    EXPECT_EQ(y[1], c.at_minus_infinity) << static_cast<int>(c.op);
    EXPECT_TRUE(std::isnan(y[2])) << static_cast<int>(c.op);
  }
  const std::vector<float> sigmoid = mapped(MapOp::sigmoid, x);
  EXPECT_EQ(sigmoid[0], 1);
  EXPECT_LE(sigmoid[1], 0x1p-125f);
  EXPECT_TRUE(std::isnan(sigmoid[2]));
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    const std::vector<float> y = activated(activation, x);
    EXPECT_EQ(y[0], kInfinity);
    EXPECT_TRUE(std::isnan(y[1])) << static_cast<int>(activation);  // 0 times Inf
    EXPECT_TRUE(std::isnan(y[2]));
  }
  EXPECT_TRUE(std::signbit(mapped(MapOp::erf, x)[4]));
  // Beyond 4 a sign remains, and nothing of the argument.
  for (const float size : {4.0f, 4.5f, 100.0f, 3e38f}) {
    EXPECT_EQ(mapped(MapOp::erf, {size, -size}), (std::vector<float>{1, -1}));
    EXPECT_EQ(activated(Activation::gelu, {std::min(-5.66f, -size)})[0], 0);
  }
}

TEST_F(CpuFunctions, PartsOfVectorsAndRowsApartAreTheSame) {
  std::vector<float> x(24 * 40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.0131f - 6.3f;
  const std::vector<float> whole = mapped(MapOp::gelu, x), apart = mapped(MapOp::gelu, x, 30);
  EXPECT_EQ(whole, activated(Activation::gelu, x));
  for (std::size_t count = 1; count <= 48; ++count) {
    const std::vector<float> part(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count));
    const std::vector<float> y = mapped(MapOp::gelu, part);
    EXPECT_TRUE(std::equal(y.begin(), y.end(), whole.begin())) << count;
  }
  for (std::size_t row = 0; row < x.size() / 24; ++row) {
    for (std::size_t i = 0; i < 30; ++i) {
      if (i < 24)
        EXPECT_EQ(apart[row * 30 + i], whole[row * 24 + i]);
      else
        EXPECT_TRUE(std::isnan(apart[row * 30 + i])) << "written between rows";
    }
  }
}

#if defined(__x86_64__)
// Whether it met a denormal, or made one.
template <class F>
bool meets_denormals(const F& f) {
  constexpr unsigned kDenormal = 0x02, kUnderflow = 0x10, kFlags = 0x3f;
  _mm_setcsr(_mm_getcsr() & ~kFlags);
  f();
  return (_mm_getcsr() & (kDenormal | kUnderflow)) != 0;
}

TEST_F(CpuFunctions, NoDenormalsOnTheWay) {
  std::vector<float> x;
  for (float size = 0x1p-30f; size < 1e30f; size *= 1.0003f) {
    if (size > 87 && size < 89) continue;  // where the logistic function's own values are denormals
    x.push_back(size), x.push_back(-size);
  }
  // What the test sees: e^x alone gives denormals.
  EXPECT_TRUE(meets_denormals([&] { mapped(MapOp::exp, x); }));
  for (const Function& f : kFunctions) {
    if (f.op == MapOp::exp) continue;
    EXPECT_FALSE(meets_denormals([&] { mapped(f.op, x); })) << f.name;
  }
  for (const Activation activation : {Activation::sigmoid, Activation::silu, Activation::gelu,
                                      Activation::gelu_tanh, Activation::hardswish})
    EXPECT_FALSE(meets_denormals([&] { activated(activation, x); })) << static_cast<int>(activation);
  for (const RowsOp op : {RowsOp::softmax, RowsOp::log_softmax}) {
    std::vector<float> logits(5000), y(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) * -0.05f;
    RowsCall call;
    call.op = op, call.extent = {1, static_cast<std::int64_t>(logits.size()), 1};
    EXPECT_FALSE(meets_denormals([&] { rows_task(call, logits.data(), y.data(), 0); }))
        << static_cast<int>(op);
  }
}
#endif

TEST_F(CpuFunctions, SoftmaxOfWideLogits) {
  std::vector<float> x(3000), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 3000) * -0.07f;
  x[17] = -kInfinity;
  double sum = 0;
  for (const float v : x) sum += std::exp(static_cast<double>(v));
  for (const std::int64_t inner : {1, 3}) {
    RowsCall call;
    call.op = RowsOp::softmax;
    call.extent = {1, static_cast<std::int64_t>(x.size()) / inner, inner};
    std::vector<float> in = x;
    if (inner > 1) {  // the same three times beside each other
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = x[i / 3];
      sum = 0;
      for (std::size_t i = 0; i < in.size() / 3; ++i) sum += std::exp(static_cast<double>(x[i]));
    }
    for (std::int64_t task = 0; task < rows_tasks(call); ++task) rows_task(call, in.data(), y.data(), task);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double exact = std::exp(static_cast<double>(in[i])) / sum;
      // Each term's exponential and the sum's roundings; what is less than the least normal number may be 0.
      ASSERT_NEAR(y[i], exact, 64 * kU * exact + 0x1.01p-126) << in[i];
    }
  }
}

TEST_F(CpuFunctions, ReductionsOfColumns) {
  for (std::int64_t inner = 1; inner <= 150; inner += inner < 70 ? 1 : 7) {
    for (const std::int64_t length : {1, 2, 5}) {
      constexpr std::int64_t kOuter = 2;
      std::vector<float> x(static_cast<std::size_t>(kOuter * length * inner));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(static_cast<int>(i * 37 % 41) - 20);
      for (const RowsOp op : {RowsOp::sum, RowsOp::max, RowsOp::min, RowsOp::sum_of_squares,
                              RowsOp::sum_of_sizes, RowsOp::product}) {
        RowsCall call;
        call.op = op, call.extent = {kOuter, length, inner};
        std::vector<float> y(static_cast<std::size_t>(kOuter * inner) + 1, kNan);
        for (std::int64_t task = rows_tasks(call) - 1; task >= 0; --task)
          rows_task(call, x.data(), y.data(), task);
        for (std::int64_t o = 0; o < kOuter; ++o) {
          for (std::int64_t j = 0; j < inner; ++j) {
            float exact = op == RowsOp::max       ? -kInfinity
                          : op == RowsOp::min     ? kInfinity
                          : op == RowsOp::product ? 1
                                                  : 0;
            for (std::int64_t i = 0; i < length; ++i) {
              const float v = x[static_cast<std::size_t>((o * length + i) * inner + j)];
              exact = op == RowsOp::max              ? std::max(exact, v)
                      : op == RowsOp::min            ? std::min(exact, v)
                      : op == RowsOp::sum            ? exact + v
                      : op == RowsOp::product        ? exact * v
                      : op == RowsOp::sum_of_squares ? exact + v * v
                                                     : exact + std::abs(v);
            }
            ASSERT_EQ(y[static_cast<std::size_t>(o * inner + j)], exact)
                << static_cast<int>(op) << " of " << length << " rows of " << inner;
          }
        }
        ASSERT_TRUE(std::isnan(y.back())) << "written beyond the end";
      }
    }
  }
}

// All sizes about a vector's and a cache line's, and nothing written beside the result.
TEST_F(CpuFunctions, MatricesAreTransposed) {
  constexpr float kUntouched = -1;
  for (const std::int64_t rows : {1, 3, 4, 8, 15, 16, 17, 32, 35, 48}) {
    for (const std::int64_t columns : {1, 2, 4, 7, 8, 13, 16, 18, 33, 49}) {
      const std::int64_t from_stride = columns + 3, to_stride = rows + 5;
      std::vector<float> from(static_cast<std::size_t>(rows * from_stride));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      std::vector<float> to(static_cast<std::size_t>(columns * to_stride), kUntouched), expected = to;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column)
          expected[static_cast<std::size_t>(column * to_stride + row)] =
              static_cast<float>(row * from_stride + column);
      }
      transpose_to_float(DType::f32, from.data(), from_stride, rows, columns, to.data(), to_stride);
      EXPECT_EQ(to, expected) << rows << " x " << columns;
    }
  }
}

// The same past the caches, from whole lines of the result and from anywhere.
TEST_F(CpuFunctions, MatricesAreTransposedPastTheCaches) {
  constexpr std::int64_t kLine = 16, kFromStride = 60;
  for (const std::int64_t rows : {7, 16, 35, 48}) {
    for (const std::int64_t columns : {3, 16, 18, 49}) {
      for (const std::int64_t beside : {0, 5}) {
        const std::int64_t to_stride = 64 + beside;
        std::vector<float> from(static_cast<std::size_t>(rows * kFromStride));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
        std::vector<float> memory(static_cast<std::size_t>(columns * to_stride + kLine), -1);
        float* const to =
            memory.data() + (kLine - reinterpret_cast<std::uintptr_t>(memory.data()) / 4 % kLine);
        transpose_past_caches(from.data(), kFromStride, rows, columns, to, to_stride);
        for (std::int64_t i = 0; i < columns * to_stride; ++i) {
          const std::int64_t row = i % to_stride, column = i / to_stride;
          ASSERT_EQ(to[i], row < rows ? static_cast<float>(row * kFromStride + column) : -1)
              << rows << " x " << columns << " at " << i;
        }
      }
    }
  }
}

// Planes of few channels become pixels, whatever their number; nothing is written beside them.
TEST_F(CpuFunctions, PlanesOfFewChannelsAreTurned) {
  for (const std::int64_t channels : {1, 2, 3, 4, 5}) {
    for (const std::int64_t pixels : {1, 4, 15, 16, 17, 48, 333, 6000}) {
      constexpr std::int64_t kImages = 2;
      const std::int64_t count = kImages * channels * pixels;
      MapCall call;
      call.rank = 3, call.sizes[0] = kImages, call.sizes[1] = pixels, call.sizes[2] = channels;
      call.inputs.resize(1);
      call.inputs[0].strides = {channels * pixels, 1, pixels};
      call.output.strides = {channels * pixels, channels, 1};
      std::vector<float> from, to(static_cast<std::size_t>(count) + 1, -1), expected = to;
      for (std::int64_t i = 0; i < count; ++i) from.push_back(static_cast<float>(i));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t channel = i / pixels % channels, pixel = i % pixels;
        expected[static_cast<std::size_t>(i - i % (channels * pixels) + pixel * channels + channel)] =
            static_cast<float>(i);
      }
      const std::byte* const x = reinterpret_cast<const std::byte*>(from.data());
      for (std::int64_t task = 0; task < map_tasks(call); ++task)
        map_task(call, &x, reinterpret_cast<std::byte*>(to.data()), task);
      EXPECT_EQ(to, expected) << channels << " of " << pixels;
    }
  }
}

}  // namespace
}  // namespace faltung
