// What a lock names is asked what every kernel is: each of these locks names a kernel that computes the
// problem and that the request, or the problem's math, does not allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/algorithms/registered.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/lock.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

// Right, and as it says not to the same bits every time.
class Atomic : public Algorithm {
 public:
  Atomic() : Algorithm({"aaa_atomic_cpu", "adds in any order", "cpu"}) {}
  Support accepts(const Problem&, const Target&) const override { return Support::supported(); }

 private:
  std::vector<Candidate> list(const Problem& problem, const Target&) const override {
    return {candidate_of("plain", problem)};
  }
  Maker parse(const std::string& config, Direction) const override {
    return [config](const Problem& problem, const Target&) { return candidate_of(config, problem); };
  }
  static Candidate candidate_of(const std::string& config, const Problem& problem) {
    Candidate candidate;
    candidate.config = config;
    candidate.accuracy = dot_product_accuracy(problem);
    candidate.repeatable = Repeatable::may_differ;
    candidate.recipe = [] { return Recipe{}; };
    return candidate;
  }
};

class Lock : public testing::Test {
 protected:
  Lock() { request_.threads = 1; }
  // A kernel for the problem that needs a workspace.
  std::string roomy_kernel() const {
    for (const auto& algorithm : registry()) {
      const Target target{find_device("cpu")->info(), 1};
      if (algorithm->device_kind() != "cpu" || !algorithm->supports(problem_, target).yes) continue;
      for (const Candidate& candidate : algorithm->candidates(problem_, target)) {
        if (candidate.workspace(false) > 0) return candidate.kernel();
      }
    }
    return "";
  }
  // The kernel of the plan, or the refusal, under a lock that names the kernel for the problem.
  std::string plan(const std::string& kernel) const {
    const Scratch scratch;
    const std::string file = scratch.path() + "/team.lock";
    const std::string key = to_string(problem_) + " on " + find_device("cpu")->info().key;
    Store::export_records(file, {{kLock, key, R"({"kernel":")" + kernel + "\"}", 1}});
    Engine locked(file);
    try {
      return locked.plan(problem_, request_).kernel();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("names " + kernel + " for " + to_string(problem_)));
      return error.what();
    }
  }
  const Registered atomic_{std::make_unique<Atomic>()};
  Problem problem_ = parse_problem("fwd:n1c8h12w12k16r3s3:pad1:f32:nhwc");
  Request request_;
};

TEST_F(Lock, ThatNeedsMoreWorkspaceThanTheLimit) {
  const std::string kernel = roomy_kernel();
  ASSERT_NE(kernel, "");
  EXPECT_EQ(plan(kernel), kernel);
  request_.workspace_limit = 0;
  EXPECT_THAT(plan(kernel), HasSubstr("which is skipped: needs a workspace of "));
}

TEST_F(Lock, WhoseBitsVary) {
  EXPECT_THAT(plan("aaa_atomic_cpu/plain"), HasSubstr("which is skipped: it does not give the same bits"));
  request_.deterministic = false;
  EXPECT_EQ(plan("aaa_atomic_cpu/plain"), "aaa_atomic_cpu/plain");
}

// Winograd's F(4x4) is listed for 64 channels and more; with 8 its errors are beyond math=f32.
TEST_F(Lock, WhoseErrorIsBeyondTheMath) {
  EXPECT_THAT(
      plan("winograd_cpu/f4x4_bt28"),
      HasSubstr(
          "which is skipped: its root mean square error may be 8 times a chain's of fp32 multiply-adds, "
          "and math=f32 admits 2"));
  EXPECT_EQ(plan("winograd_cpu/f2x2_bt28"), "winograd_cpu/f2x2_bt28");
  problem_.math = Math::fast;
  EXPECT_EQ(plan("winograd_cpu/f4x4_bt28"), "winograd_cpu/f4x4_bt28");
}

}  // namespace
}  // namespace faltung
