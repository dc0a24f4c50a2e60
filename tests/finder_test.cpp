// The finder: what is chosen, from where, and what the caller can say about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/cost.hpp"
#include "src/finder/finder.hpp"
#include "src/finder/records.hpp"
#include "src/finder/selection.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class Finder : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() /
        ("faltung-finder-" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
    engine_ = std::make_unique<Engine>(directory_.string());
    request_.threads = 1;
    request_.budget_ms = 200;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string message(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path directory_;
  std::unique_ptr<Engine> engine_;
  Request request_;
  Problem problem_ = parse_problem("fwd:n1c8h12w12k16r3s3:pad1:f32:nhwc");
};

TEST_F(Finder, ModelAnswersAnUnseenProblem) {
  const Choice choice = engine_->explain(problem_, request_);
  EXPECT_EQ(choice.source, "model");
  EXPECT_EQ(choice.trials.front().verdict, "chosen");
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), choice.kernel);
}

TEST_F(Finder, ExplainHasALineForEveryAlgorithmOfTheDevice) {
  const Choice choice = engine_->explain(problem_, request_);
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu") continue;
    const bool named = std::any_of(choice.trials.begin(), choice.trials.end(), [&](const Trial& t) {
      return t.kernel.substr(0, t.kernel.find('/')) == algorithm->name();
    });
    EXPECT_TRUE(named) << algorithm->name();
  }
  for (const Trial& t : choice.trials) {
    if (t.verdict == "declined") {
      EXPECT_FALSE(t.why.empty()) << t.kernel;
    }
  }
}

TEST_F(Finder, FindIsRememberedByAnotherEngine) {
  const Choice found = engine_->find(problem_, request_);
  EXPECT_EQ(found.source, "store");
  EXPECT_GT(found.trials.front().ms, 0);
  EXPECT_GE(found.trials.front().error_over_bound, 0);
  EXPECT_LE(found.trials.front().error_over_bound, 1);
  Engine other(directory_.string());
  EXPECT_EQ(other.plan(problem_, request_).kernel(), found.kernel);
  EXPECT_EQ(other.explain(problem_, request_).source, "store");
}

// A kernel that was far behind when it was timed was not checked. Where a later round finds the checked ones
// slower than that, it still does not win.
TEST_F(Finder, WhatWasNotCheckedDoesNotWin) {
  Store store(directory_.string());
  Trials trials(store, problem_, find_device("cpu")->info(), 1);
  const auto measured = [](const std::string& kernel, double ms, double error) {
    Measured m{kernel, "pass"};
    m.ms = m.ms_min = m.ms_max = ms;
    m.error_over_bound = error;
    return m;
  };
  trials.add(measured("direct_cpu/rows", 0.5, 0.1));
  const Choice before = engine_->explain(problem_, request_);
  EXPECT_EQ(before.kernel, "direct_cpu/rows");
  for (const Trial& t : before.trials) {
    if (t.kernel != before.kernel && t.predicted_ms > 0) trials.add(measured(t.kernel, 0.1, -1));
  }
  const Choice after = engine_->explain(problem_, request_);
  EXPECT_EQ(after.kernel, before.kernel);
  EXPECT_EQ(after.source, "store");
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), before.kernel);
}

TEST_F(Finder, OnlyTheReferenceIsNeverChosenBesideAnother) {
  EXPECT_NE(engine_->plan(problem_, request_).kernel(), "reference_cpu/plain");
  request_.only = {"reference*"};
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), "reference_cpu/plain");
}

TEST_F(Finder, SkippedKernelsAreNotChosen) {
  const std::string first = engine_->plan(problem_, request_).kernel();
  request_.skip = {first.substr(0, first.find('/')) + "*"};
  const Choice choice = engine_->explain(problem_, request_);
  EXPECT_NE(choice.kernel.substr(0, choice.kernel.find('/')), first.substr(0, first.find('/')));
}

TEST_F(Finder, EnvironmentSwitchesFamiliesOff) {
  ASSERT_EQ(setenv("FALTUNG_ONLY", "reference_cpu", 1), 0);
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), "reference_cpu/plain");
  ASSERT_EQ(setenv("FALTUNG_SKIP", "reference*", 1), 0);
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("no kernel may compute"));
  unsetenv("FALTUNG_ONLY");
  unsetenv("FALTUNG_SKIP");
}

TEST_F(Finder, MisspelledPatternsNameTheNearest) {
  request_.only = {"referense_cpu"};
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("the nearest is reference_cpu"));
  request_.only = {"reference_cpu/plane"};
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("plain"));
}

TEST_F(Finder, BadRequestsSayWhatIsWrong) {
  request_.device = "cuda:7";
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("no device 'cuda:7' here"));
  request_.device = "cpu";
  request_.threads = -1;
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("threads is -1"));
  request_.threads = 1;
  problem_.groups = 3;
  EXPECT_THAT(message([&] { engine_->plan(problem_, request_); }), HasSubstr("does not divide"));
}

TEST_F(Finder, WorkspaceLimitIsKept) {
  request_.workspace_limit = 0;
  for (const Trial& t : engine_->find(problem_, request_).trials) {
    if (t.verdict == "chosen" || t.verdict == "slower") {
      EXPECT_EQ(t.workspace_bytes, 0u) << t.kernel;
    }
  }
}

TEST_F(Finder, DamagedRecordsAreAMiss) {
  engine_->find(problem_, request_);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    if (!entry.is_regular_file()) continue;
    std::ofstream(entry.path(), std::ios::trunc) << "{\"half\": [1, 2";
  }
  Engine other(directory_.string());
  EXPECT_EQ(other.explain(problem_, request_).source, "model");
  EXPECT_EQ(other.find(problem_, request_).source, "store");
}

TEST_F(Finder, WorksWhereNothingCanBeStored) {
  Engine engine("/proc/faltung-cannot-be-here");
  EXPECT_FALSE(engine.find(problem_, request_).kernel.empty());
  EXPECT_FALSE(engine.plan(problem_, request_).kernel().empty());
}

TEST_F(Finder, FindsTheSameProblemTwiceAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> kernels(2);
  for (std::string& kernel : kernels) {
    threads.emplace_back([&] {
      Engine engine(directory_.string());
      kernel = engine.find(problem_, request_).kernel;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& kernel : kernels) EXPECT_FALSE(kernel.empty());
  EXPECT_EQ(engine_->explain(problem_, request_).source, "store");
}

TEST_F(Finder, BudgetEndsTheSearch) {
  problem_ = parse_problem("fwd:n1c32h56w56k64r3s3:pad1:f32:nhwc");
  request_.budget_ms = 1;
  const Choice choice = engine_->find(problem_, request_);
  const auto measured =
      std::count_if(choice.trials.begin(), choice.trials.end(), [](const Trial& t) { return t.ms > 0; });
  EXPECT_EQ(measured, 1);
}

TEST_F(Finder, ProgressNamesEachTrial) {
  std::vector<std::string> seen;
  engine_->find(problem_, request_, [&](int done, int total, const std::string& kernel) {
    EXPECT_LT(done, total);
    seen.push_back(kernel);
  });
  EXPECT_FALSE(seen.empty());
}

TEST(RooflineTest, BindsByWhatTakesLonger) {
  const Problem p = parse_problem("fwd:n1c64h56w56k64r3s3:pad1:f32:nhwc");
  const Ceilings compute_poor{100, 100, 100, 100, 1000}, memory_poor{1e6, 1e6, 1e6, 1e6, 1};
  const Roofline a = roofline(p, compute_poor), b = roofline(p, memory_poor);
  EXPECT_EQ(a.bound_by(a.ms()), "arithmetic");
  EXPECT_EQ(b.bound_by(b.ms()), "bytes");
  EXPECT_EQ(a.bound_by(100 * a.ms()), "latency");
  EXPECT_NEAR(a.ms(), flops(p) / 100e9 * 1e3, 1e-9);
  EXPECT_NEAR(a.share(2 * a.ms()), 50, 1e-9);
}

}  // namespace
}  // namespace faltung
