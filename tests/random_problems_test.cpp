// Random problems, every field varied, by every kernel that supports them: exact on small integers, then
// within the bound. Seeded: a failure prints the command that repeats it.
//
// Their number and their seed are tests/sampling.hpp's (FALTUNG_TEST_SAMPLE=50: a night's);
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows the kernels.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <set>

#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using i64 = std::int64_t;

constexpr int kShards = 8;  // tests that run side by side
constexpr int kProblemsAShard = 150, kAllProblemsAShard = 1500;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  // In [first, last].
  i64 between(i64 first, i64 last) {
    return first + static_cast<i64>(random_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  i64 one_of(std::initializer_list<i64> values) {
    return *(values.begin() + between(0, static_cast<i64>(values.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

void roll_pool(Dice& dice, const Problem& p, Pool& pool) {
  pool.kind = dice.chance(50) ? PoolKind::max : PoolKind::average;
  pool.size_w = dice.between(1, 4);
  pool.stride_w = dice.chance(60) ? pool.size_w : dice.between(1, 3);
  if (p.dimensions > 1) {
    pool.size_h = dice.chance(60) ? pool.size_w : dice.between(1, 4);
    pool.stride_h = dice.chance(60) ? pool.size_h : dice.between(1, 3);
  }
  if (dice.chance(60)) return;
  pool.pad_top = dice.between(0, pool.size_h - 1);
  pool.pad_bottom = dice.between(0, pool.size_h - 1);
  pool.pad_left = dice.between(0, pool.size_w - 1);
  pool.pad_right = dice.between(0, pool.size_w - 1);
}

void roll_epilogue(Dice& dice, const Problem& p, Epilogue& e) {
  e.bias = dice.chance(50);
  e.residual = dice.chance(25);
  if (dice.chance(60))
    e.activation = static_cast<Activation>(dice.between(1, static_cast<i64>(std::size(kActivations)) - 1));
  if (takes_slope(e.activation)) e.slope = static_cast<float>(dice.one_of({-3, 1, 2, 8})) / 16;
  if (e.residual && e.activation != Activation::none && dice.chance(50))
    e.residual_order = ResidualOrder::after_activation;
  if (p.dimensions < 3 && dice.chance(25)) roll_pool(dice, p, e.pool);
}

void roll_slices(Dice& dice, Problem& p) {
  if (!is_plain(p) || dice.chance(75)) return;
  if (dice.chance(60)) p.x_pitch = p.c + dice.one_of({1, 8, 16, 40});
  if (dice.chance(60) && p.epilogue.pool.kind == PoolKind::none) p.y_pitch = p.k + dice.one_of({1, 8, 24});
}

void roll_channels(Dice& dice, Problem& p) {
  if (dice.chance(30)) {  // depthwise
    p.c = p.groups = dice.one_of({1, 2, 3, 7, 8, 16, 17, 24, 32, 35, 64});
    p.k = p.c * (dice.chance(70) ? 1 : dice.between(2, 3));
    return;
  }
  p.groups = dice.chance(65) ? 1 : dice.between(2, 4);
  p.c = p.groups * dice.one_of({1, 2, 3, 4, 5, 8, 13, 16, 17, 24, 32, 33, 48, 64, 70});
  p.k = p.groups * dice.one_of({1, 2, 3, 6, 8, 10, 16, 19, 24, 32, 33, 48, 64, 96, 100});
}

void roll_filter(Dice& dice, Problem& p) {
  p.r = dice.chance(50) ? 3 : dice.chance(40) ? 1 : dice.between(1, dice.chance(80) ? 7 : 16);
  p.s = dice.chance(80) ? p.r : dice.between(1, 7);
  p.stride_h = dice.chance(60) ? 1 : dice.between(1, 4);
  p.stride_w = dice.chance(85) ? p.stride_h : dice.between(1, 4);
  p.dilation_h = dice.chance(80) ? 1 : dice.between(1, 3);
  p.dilation_w = dice.chance(85) ? p.dilation_h : dice.between(1, 3);
  if (dice.chance(20)) return;  // no padding
  if (dice.chance(60)) {        // half the filter, the output as large as the input
    p.pad_top = p.pad_bottom = p.dilation_h * (p.r - 1) / 2;
    p.pad_left = p.pad_right = p.dilation_w * (p.s - 1) / 2;
    return;
  }
  p.pad_top = dice.between(0, p.r);
  p.pad_bottom = dice.between(0, p.r);
  p.pad_left = dice.between(0, p.s);
  p.pad_right = dice.between(0, p.s);
}

// Of two dimensions one or three, and of a convolution a transposed one.
void roll_dimensions(Dice& dice, Problem& p) {
  if (dice.chance(20)) {
    p.dimensions = 1;
    p.h = p.r = p.stride_h = p.dilation_h = 1;
    p.pad_top = p.pad_bottom = 0;
    if (dice.chance(30)) p.w = dice.between(100, 1000);
  } else if (dice.chance(30)) {
    p.dimensions = 3;
    p.d = dice.between(1, 9), p.h = dice.between(1, 9), p.w = dice.between(1, 12);
    p.t = dice.chance(50) ? 3 : dice.between(1, 4);
    if (dice.chance(20)) p.r = p.s = p.stride_h = p.stride_w = 1, p.pad_top = p.pad_bottom = 0;
    if (p.r == 1 && p.s == 1 && dice.chance(70)) p.pad_left = p.pad_right = 0;
    p.stride_d = dice.chance(60) ? 1 : dice.between(1, 3);
    p.dilation_d = dice.chance(80) ? 1 : dice.between(1, 3);
    p.pad_front = dice.between(0, p.t);
    p.pad_back = dice.chance(60) ? p.pad_front : dice.between(0, p.t);
  }
  if (!dice.chance(25)) return;
  p.kind = ConvolutionKind::transposed;
  if (dice.chance(50)) return;
  p.output_pad_w = dice.between(0, p.stride_w - 1);
  if (p.dimensions > 1) p.output_pad_h = dice.between(0, p.stride_h - 1);
  if (p.dimensions > 2) p.output_pad_d = dice.between(0, p.stride_d - 1);
}

// A valid problem whose reference takes milliseconds.
Problem roll(std::uint64_t seed) {
  constexpr double kMaxProducts = 3e6;
  for (Dice dice(seed);;) {
    Problem p;
    p.direction = dice.chance(50) ? Direction::forward : static_cast<Direction>(dice.between(1, 2));
    p.dtype = static_cast<DType>(dice.between(0, 2));
    p.layout = static_cast<Layout>(dice.between(0, 1));
    p.math = dice.chance(70) ? default_math(p.dtype) : Math::fast;
    p.n = dice.chance(70) ? dice.between(1, 2) : dice.between(1, 5);
    p.h = dice.between(1, dice.chance(80) ? 20 : 45);
    p.w = dice.between(1, dice.chance(80) ? 24 : 70);
    roll_channels(dice, p);
    roll_filter(dice, p);
    roll_dimensions(dice, p);
    if (p.direction == Direction::forward) roll_epilogue(dice, p, p.epilogue), roll_slices(dice, p);
    try {
      validate(p);
    } catch (const Error&) {
      continue;
    }
    if (flops(p) / 2 <= kMaxProducts) return p;
  }
}

class RandomProblems : public testing::TestWithParam<int> {};

TEST_P(RandomProblems, EverySupportingKernelIsRight) {
  const auto parallel = std::make_shared<const Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  const Target target = builder.target();
  const char* only = std::getenv("FALTUNG_TEST_ONLY");
  const int problems = sampling::full() ? kAllProblemsAShard : sampling::count(kProblemsAShard);
  std::printf("%d problems of FALTUNG_TEST_SEED=%llu\n", problems,
              static_cast<unsigned long long>(sampling::seed()));
  std::map<std::string, int> verified;  // by algorithm
  for (int i = 0; i < problems; ++i) {
    const std::uint64_t seed =
        sampling::seed() * 1'000'003 + static_cast<std::uint64_t>(i * kShards + GetParam());
    const Problem p = roll(seed);
    ASSERT_EQ(parse_problem(to_string(p)), p) << to_string(p);
    Verifier verifier(p, builder.device(), parallel, seed);
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "cpu") continue;
      const Support support = algorithm->supports(p, target);
      if (!support.yes) {
        EXPECT_NE(support.why, "") << algorithm->name() << " declines " << to_string(p);
        continue;
      }
      const std::vector<Candidate> candidates = algorithm->candidates(p, target);
      EXPECT_FALSE(candidates.empty()) << algorithm->name() << " for " << to_string(p);
      for (const Candidate& candidate : candidates) {
        const std::string kernel = candidate.kernel();
        if (only != nullptr && !matches(only, kernel)) continue;
        const std::string repeat =
            "faltung verify '" + to_string(p) + "' --kernel " + kernel + " --seed " + std::to_string(seed);
        try {
          const Report report = verifier.kernel(candidate, builder.store());
          EXPECT_TRUE(passed(report)) << repeat << ": " << name(report.outcome) << ", " << report.why;
        } catch (const std::exception& error) {
          ADD_FAILURE() << repeat << ": threw " << error.what();
        }
        ++verified[std::string(algorithm->name())];
      }
    }
  }
  for (const auto& [algorithm, count] : verified) RecordProperty(algorithm, count);
  if (only == nullptr) {
    EXPECT_GE(verified["reference_cpu"], problems);
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomProblems, testing::Range(0, kShards));

// The dice reach every value of every field; otherwise the test above would prove less than it says.
TEST(RandomProblemsTest, EveryFieldVaries) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Problem p = roll(seed);
    const Epilogue& e = p.epilogue;
    seen.insert(name(p.direction));
    seen.insert(std::string("dtype ") + name(p.dtype));
    seen.insert(name(p.layout));
    seen.insert(p.math == Math::fast ? "fast" : "default math");
    seen.insert(std::string("activation ") + name(e.activation));
    seen.insert(name(e.pool.kind));
    if (p.direction == Direction::forward) {
      if (e.bias) seen.insert("bias");
      if (e.residual) seen.insert("residual");
      if (e.residual_order == ResidualOrder::after_activation) seen.insert("residual after the activation");
      if (p.x_pitch != 0) seen.insert("slice of x");
      if (p.y_pitch != 0) seen.insert("slice of y");
      if (e.pool.pad_top != e.pool.pad_bottom) seen.insert("unequal pool padding");
    }
    for (const char* direction : {name(p.direction)}) {
      const auto with = [&](bool is, const char* what) {
        if (is) seen.insert(std::string(direction) + " " + what);
      };
      with(p.stride_h != p.stride_w, "unequal strides");
      with(p.dilation_h > 1, "dilation");
      with(p.dilation_h != p.dilation_w, "unequal dilations");
      with(p.pad_top != p.pad_bottom, "unequal padding");
      with(p.groups > 1 && p.groups < p.c, "groups");
      with(is_depthwise(p) && p.k == p.c, "depthwise");
      with(is_depthwise(p) && p.k > p.c, "multiplier");
      with(p.r > 7, "large filter");
      with(p.output_pad_d + p.output_pad_h + p.output_pad_w > 0, "output padding");
      with(p.dimensions == 3 && p.t == 1, "filter without depth");
      with(p.dimensions == 3 && p.r == 1 && p.s == 1, "filter of depth alone");
      with(p.stride_d > 1, "stride in depth");
      with(p.pad_front != p.pad_back, "unequal padding in depth");
      with(p.groups > 1 && !is_plain(p), "groups of no plain convolution");
      seen.insert(std::string(direction) + " " + std::to_string(p.dimensions) + name(p.kind));
    }
  }
  EXPECT_EQ(seen.size(), 3u + 3 + 2 + 2 + std::size(kActivations) + 3 + 6 + 3 * (8 + 6 + 6))
      << testing::PrintToString(seen);
}

}  // namespace
}  // namespace faltung
