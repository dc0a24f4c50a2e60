// Random problems, every field varied, by every kernel that supports them: exact on small integers, then
// within the bound. Seeded: a failure prints the command that repeats it.
//
// Their number and their seed are tests/sampling.hpp's (FALTUNG_TEST_SAMPLE=50: a night's);
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows the kernels.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <set>

#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/random_problems.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

constexpr int kShards = 8;  // tests that run side by side
constexpr int kProblemsAShard = 150, kAllProblemsAShard = 1500;

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
    if (p.direction != Direction::backward_data) seen.insert(std::string("through ") + name(p.affine));
    if (p.direction == Direction::forward) {
      if (e.bias) seen.insert(e.bias_element == BiasElement::f32 ? "biasf32" : "bias");
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
  EXPECT_EQ(seen.size(), 3u + 3 + 2 + 2 + std::size(kActivations) + 3 + 3 + 7 + 3 * (8 + 6 + 6))
      << testing::PrintToString(seen);
}

}  // namespace
}  // namespace faltung
