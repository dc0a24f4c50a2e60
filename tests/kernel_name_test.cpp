// Kernel names: what an algorithm lists parses back; anything else is refused, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "src/algorithms/algorithm.hpp"
#include "src/problem/parse.hpp"
#include "tests/algorithms.hpp"
#include "tests/fuzz/mutator.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

std::string bad_problem_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_problem) << error.what();
    return error.what();
  }
  return "";
}

TEST(KernelName, UnknownAlgorithmsNameTheNearest) {
  EXPECT_THAT(bad_problem_of([] { parse_kernel("winogard_cpu/f4x4"); }),
              HasSubstr("the nearest is winograd_cpu"));
  EXPECT_THAT(bad_problem_of([] { parse_kernel("/x"); }), HasSubstr("the nearest is "));
  EXPECT_THAT(bad_problem_of([] { parse_kernel("reference_cpu"); }), HasSubstr("has no config"));
  EXPECT_THAT(bad_problem_of([] { parse_kernel(""); }), HasSubstr("has no config"));
  EXPECT_EQ(parse_kernel("reference_cpu/a/b").config, "a/b");
}

class KernelNames : public testing::TestWithParam<const Algorithm*> {
 protected:
  std::shared_ptr<Device> device_ = find_device("cpu");
};

const char* const kNamedProblems[] = {
    "fwd:n1c16h14w15k32r3s3:pad1:f32:nchw:bias:relu", "fwd:n1c16h14w15k32r3s3:pad1:f32:nhwc",
    "fwd:n1c16h14w15k32r3s3:pad1:bf16:nhwc",          "fwd:n2c24h9w12k24r3s3:pad1:g24:f32:nchw",
    "bwd_d:n1c16h14w15k32r3s3:st2:pad1:f32:nhwc",     "bwd_w:n2c16h14w15k32r3s3:pad1:f32:nchw",
    "fwd:n1c8h10w10k8r1s1:f32:nchw:maxpool2"};

TEST_P(KernelNames, ListedConfigsPlanAndOthersAreRefused) {
  const Algorithm& algorithm = *GetParam();
  const Target target{device_->info(), 2};
  int planned = 0, refused = 0;
  for (const char* text : kNamedProblems) {
    const Problem problem = parse_problem(text);
    if (algorithm.device_kind() != "cpu" || !algorithm.supports(problem, target).yes) continue;
    std::vector<std::string> names;
    for (const Candidate& candidate : algorithm.candidates(problem, target)) {
      const KernelName name = parse_kernel(candidate.kernel());
      EXPECT_EQ(name.algorithm, &algorithm);
      EXPECT_EQ(name.config, candidate.config);
      EXPECT_EQ(bad_problem_of([&] { algorithm.candidate(problem, candidate.config, target).recipe(); }), "")
          << candidate.config;
      names.push_back(candidate.config);
    }
    ASSERT_FALSE(names.empty());
    Mutator mutator(names);
    for (int i = 0; i < 300; ++i) {
      const std::string name = mutator.next();
      const std::string why = bad_problem_of([&] {
        const Candidate candidate = algorithm.candidate(problem, name, target);
        EXPECT_EQ(candidate.config, name);  // one name for one choice
        candidate.recipe();
      });
      const bool listed = std::find(names.begin(), names.end(), name) != names.end();
      EXPECT_TRUE(!listed || why.empty()) << name << ": " << why;
      ++(why.empty() ? planned : refused);
    }
  }
  EXPECT_TRUE(planned + refused == 0 || refused > planned)
      << planned << " planned, " << refused << " refused";
}

INSTANTIATE_TEST_SUITE_P(All, KernelNames, testing::ValuesIn(algorithms()), algorithm_name);

}  // namespace
}  // namespace faltung
