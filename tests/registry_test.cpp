// Every algorithm of the registry, each of its configs, over every direction, layout, dtype and epilogue and
// the lists in tests/shapes: exact on small integers, then within the bound.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it while one algorithm is being written;
// FALTUNG_TEST_PROBLEMS=<count> runs so many problems of each list, spread evenly.
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/finder/verify.hpp"
#include "tests/registry_problems.hpp"

namespace faltung {
namespace {

class Registry : public testing::TestWithParam<const Algorithm*> {
 protected:
  // Verifies every config of the algorithm; a problem that it declines must come with a reason.
  void verify_all(const Problem& problem) {
    validate(problem);
    const Algorithm& algorithm = *GetParam();
    const Target target{*device_, parallel_->workers()};
    const Support support = algorithm.supports(problem, target);
    if (!support.yes) {
      EXPECT_FALSE(support.why.empty()) << to_string(problem);
      return;
    }
    const std::vector<Config> configs = algorithm.configs(problem, target);
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const char* only = std::getenv("FALTUNG_TEST_ONLY");
    Verifier verifier(problem, device_, parallel_, 1);
    for (const Config& config : configs) {
      const std::string kernel = kernel_name(algorithm, config.name);
      if (only != nullptr && !matches(only, kernel)) continue;
      const Verification v = verifier.kernel(algorithm, config.name);
      EXPECT_TRUE(v.passed()) << "faltung verify '" << to_string(problem) << "' --kernel " << kernel
                              << " --seed 1: " << v.verdict << ", " << v.what;
      ++verified_;
    }
  }

  static std::vector<Problem> some(const std::vector<Problem>& all) {
    std::vector<Problem> chosen;
    for (std::size_t i = 0; i < all.size(); i += problem_step(all.size())) chosen.push_back(all[i]);
    return chosen;
  }

  std::shared_ptr<Device> device_ = find_device("cpu");
  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  int verified_ = 0;
};

TEST_P(Registry, ShapesInEveryDirectionLayoutAndDtype) {
  for (const Problem& problem : some(shape_problems())) {
    verify_all(problem);
    if (GetParam()->supports(problem, {*device_, 2}).yes) continue;
    Problem fast = problem;
    fast.math = Math::fast;  // what an algorithm declines for its error it may do here
    verify_all(fast);
  }
}

TEST_P(Registry, EveryEpilogue) {
  for (const Problem& problem : some(epilogue_problems())) verify_all(problem);
}

std::vector<const Algorithm*> all() {
  std::vector<const Algorithm*> algorithms;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() == "cpu") algorithms.push_back(algorithm.get());
  }
  return algorithms;
}

INSTANTIATE_TEST_SUITE_P(All, Registry, testing::ValuesIn(all()),
                         [](const auto& param) { return std::string(param.param->name()); });

}  // namespace
}  // namespace faltung
