// What a caller may ask the finder for, by a request or by the environment, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "tests/error_message.hpp"
#include "tests/finder_fixture.hpp"
#include "tests/no_threads.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class Requests : public FinderFixture {};

TEST_F(Requests, SkippedKernelsAreNotChosen) {
  const std::string first = engine_->plan(problem_, request_).kernel();
  request_.skip = {first.substr(0, first.find('/')) + "*"};
  const Choice choice = engine_->explain(problem_, request_);
  EXPECT_NE(choice.kernel.substr(0, choice.kernel.find('/')), first.substr(0, first.find('/')));
}

TEST_F(Requests, EnvironmentSwitchesFamiliesOff) {
  ASSERT_EQ(setenv("FALTUNG_ONLY", "reference_cpu", 1), 0);
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), "reference_cpu/plain");
  ASSERT_EQ(setenv("FALTUNG_SKIP", "reference*", 1), 0);
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("no kernel may compute"));
  unsetenv("FALTUNG_ONLY");
  unsetenv("FALTUNG_SKIP");
}

TEST_F(Requests, MoreThreadsThanCanBeAreNoAbort) {
  const NoThreads here;
  request_.threads = 100000;
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }),
              HasSubstr("threads is 100000; it must be 0 (all) to 4096"));
  std::vector<std::string> warnings;
  engine_->on_warning([&](const std::string& line) { warnings.push_back(line); });
  request_.threads = 3;
  EXPECT_EQ(error_message([&] { engine_->plan(problem_, request_); }), "no error");
  EXPECT_THAT(warnings, testing::ElementsAre("1 of 3 threads could be started; they share the work of all"));
}

TEST_F(Requests, EnvironmentsOfNoMeaningAreRefused) {
  for (const char* variable : {"FALTUNG_TRUST", "FALTUNG_LOG", "FALTUNG_DEADLINE"}) {
    ASSERT_EQ(setenv(variable, "bogus", 1), 0);
    for (const auto& call : {std::function([&] { engine_->plan(problem_, request_); }),
                             std::function([&] { engine_->explain(problem_, request_); })}) {
      EXPECT_THAT(error_message(call), HasSubstr(std::string(variable) + " is 'bogus'"));
    }
    unsetenv(variable);
  }
}

TEST_F(Requests, MisspelledPatternsNameTheNearest) {
  request_.only = {"referense_cpu"};
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }),
              HasSubstr("the nearest is reference_cpu"));
  request_.only = {"reference_cpu/plane"};
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("plain"));
  request_.only = {};
  for (const char* pattern : {"wingrad*", "winograd_cpux*", "f4x4*"}) {
    request_.skip = {pattern};
    EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("matches no algorithm"))
        << pattern;
  }
  request_.skip = {"wingrad*"};
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }),
              HasSubstr("the nearest is winograd_"));
  for (const char* pattern : {"wino*", "*_bt32*", "winograd_cpu*f4*", "winograd_cp?/f4*", "*"}) {
    request_.skip = {pattern};
    EXPECT_THAT(error_message([&] { engine_->explain(problem_, request_); }),
                testing::Not(HasSubstr("matches no algorithm")))
        << pattern;
  }
}

// As FALTUNG_SKIP and C have them.
TEST_F(Requests, APatternMayBeAListWithCommas) {
  request_.skip = {"winograd*, fft*", "implicit_gemm*"};
  for (const Report& report : engine_->explain(problem_, request_).reports) {
    const bool is_skipped = report.kernel.starts_with("winograd") || report.kernel.starts_with("implicit");
    EXPECT_EQ(report.outcome == Outcome::skipped, is_skipped) << report.kernel;
  }
  request_.skip = {"winograd*,foo*"};
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }),
              HasSubstr("'foo*' matches no algorithm"));
  request_.skip = {};
  request_.only = {"direct_cpu*,,reference_cpu*,"};
  EXPECT_THAT(engine_->plan(problem_, request_).kernel(),
              testing::AnyOf("direct_cpu/rows", "reference_cpu/plain"));
}

TEST_F(Requests, BadRequestsSayWhatIsWrong) {
  request_.device = "cuda:7";
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }),
              HasSubstr("no device 'cuda:7' here"));
  request_.device = "cpu";
  request_.threads = -1;
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("threads is -1"));
  request_.threads = 1;
  request_.budget_ms = -1;
  EXPECT_THAT(error_message([&] { engine_->find(problem_, request_); }), HasSubstr("budget_ms is -1"));
  request_.budget_ms = 200;
  request_.deadline_ms = std::nan("");
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("deadline_ms is nan"));
  request_.deadline_ms = 0;
  problem_.groups = 3;
  EXPECT_THAT(error_message([&] { engine_->plan(problem_, request_); }), HasSubstr("does not divide"));
}

TEST_F(Requests, WorkspaceLimitIsKept) {
  request_.workspace_limit = 0;
  for (const Report& r : engine_->find(problem_, request_).reports) {
    if (r.outcome == Outcome::chosen || r.outcome == Outcome::slower) {
      EXPECT_EQ(r.workspace_bytes, 0u) << r.kernel;
    }
  }
}

}  // namespace
}  // namespace faltung
