// The finder: what is chosen, and from where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/records.hpp"
#include "src/finder/report.hpp"
#include "src/finder/selection.hpp"
#include "tests/finder_fixture.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class Finder : public FinderFixture {};

TEST_F(Finder, ModelAnswersAnUnseenProblem) {
  const Choice choice = engine_->explain(problem_, request_);
  EXPECT_EQ(choice.source, "model");
  EXPECT_EQ(choice.reports.front().outcome, Outcome::chosen);
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), choice.kernel);
}

TEST_F(Finder, ExplainHasALineForEveryAlgorithmOfTheDevice) {
  const Choice choice = engine_->explain(problem_, request_);
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu") continue;
    const bool named = std::any_of(choice.reports.begin(), choice.reports.end(), [&](const Report& r) {
      return r.kernel.substr(0, r.kernel.find('/')) == algorithm->name();
    });
    EXPECT_TRUE(named) << algorithm->name();
  }
  for (const Report& r : choice.reports) {
    if (r.outcome == Outcome::declined) {
      EXPECT_FALSE(r.why.empty()) << r.kernel;
    }
  }
}

TEST_F(Finder, FindIsRememberedByAnotherEngine) {
  const Choice found = engine_->find(problem_, request_);
  EXPECT_EQ(found.source, "store");
  EXPECT_GT(found.reports.front().ms, 0);
  EXPECT_GE(found.reports.front().error_over_bound, 0);
  EXPECT_LE(found.reports.front().error_over_bound, 1);
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
    Report m = report_of(Outcome::pass, "", kernel);
    m.ms = m.ms_min = m.ms_max = ms;
    m.error_over_bound = error;
    return m;
  };
  trials.add(measured("direct_cpu/rows", 0.5, 0.1));
  const Choice before = engine_->explain(problem_, request_);
  EXPECT_EQ(before.kernel, "direct_cpu/rows");
  for (const Report& r : before.reports) {
    if (r.kernel != before.kernel && r.predicted_ms > 0) trials.add(measured(r.kernel, 0.1, -1));
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

TEST_F(Finder, TheLogSaysWhatWasPlannedAndWhy) {
  ASSERT_EQ(setenv("FALTUNG_LOG", "find", 1), 0);
  const auto line = [&](Engine& engine) {
    testing::internal::CaptureStderr();
    const std::string kernel = engine.plan(problem_, request_).kernel();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("faltung: plan: " + kernel + " for " + to_string(problem_) + " on cpu"));
    return said;
  };
  EXPECT_THAT(line(*engine_), HasSubstr("predicted "));
  testing::internal::CaptureStderr();
  engine_->find(problem_, request_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("faltung: find: "));
  Engine other(directory_.string());
  EXPECT_THAT(line(other), HasSubstr("measured "));
  unsetenv("FALTUNG_LOG");
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

// What the model has no hope for is not measured before the next kernels of what it puts first.
TEST_F(Finder, HopelessAlgorithmsAreMeasuredInTheirTurn) {
  const Settled settled(parse_problem("fwd:n4c64h56w56k64r3s3:pad1"), request_);
  const Selection selection = select(settled);
  Store store(directory_.string());
  const Trials nothing(store, settled.problem, settled.device->info(), 1);
  const std::vector<const Candidate*> order = find_order(selection, nothing);
  const double hopeless = 2 * selection.candidates.front().cost.ms;
  int behind = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->cost.ms <= hopeless) continue;
    EXPECT_GE(order[i]->cost.ms, order[i - 1]->cost.ms) << order[i]->kernel();
    ++behind;
  }
  EXPECT_GT(behind, 2);
}

TEST_F(Finder, BudgetEndsTheSearch) {
  problem_ = parse_problem("fwd:n1c32h56w56k64r3s3:pad1:f32:nhwc");
  request_.budget_ms = 1;
  const Choice choice = engine_->find(problem_, request_);
  const auto measured =
      std::count_if(choice.reports.begin(), choice.reports.end(), [](const Report& r) { return r.ms > 0; });
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

// The choice is a function of the problem and of what was measured for it alone.
TEST_F(Finder, TheSameKernelWhateverElseWasPlannedBefore) {
  const std::vector<std::string> problems = {
      "fwd:n1c8h12w12k16r3s3:pad1:f32:nhwc", "fwd:n1c8h12w12k16r1s1:f32:nhwc",
      "fwd:n1c24h12w12k24r3s3:pad1:g24:f32:nchw", "fwd:n2c64h20w20k64r3s3:pad1:f32:nchw"};
  std::vector<std::size_t> order = {0, 1, 2, 3};
  std::map<std::string, std::string> kernels;
  int orders = 0;
  do {
    Scratch fresh;
    Engine engine(fresh.path());
    for (const std::size_t i : order) {
      const std::string kernel = engine.plan(parse_problem(problems[i]), request_).kernel();
      EXPECT_EQ(kernels.emplace(problems[i], kernel).first->second, kernel) << problems[i];
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 24);
}

// And find of one says nothing of another.
TEST_F(Finder, WhatWasFoundOfOneProblemIsNotOfAnother) {
  const Problem other = parse_problem("fwd:n1c8h12w12k16r1s1:f32:nhwc");
  const std::string before = engine_->plan(other, request_).kernel();
  engine_->find(problem_, request_);
  EXPECT_EQ(engine_->plan(other, request_).kernel(), before);
  EXPECT_EQ(engine_->explain(other, request_).source, "model");
}

TEST_F(Finder, PlansAreRememberedUntilFind) {
  const auto planned = [&](const Problem& problem, const Request& request) {
    return &Internals::impl(engine_->plan(problem, request));
  };
  // Held, so that no address is used again.
  const Plan first = engine_->plan(problem_, request_);
  EXPECT_EQ(planned(problem_, request_), &Internals::impl(first));
  Problem other = problem_;
  other.n = 2;
  EXPECT_NE(planned(other, request_), &Internals::impl(first));
  for (const auto& change : std::vector<std::function<void(Request&)>>{
           [](Request& r) { r.threads = 2; }, [](Request& r) { r.skip = {"reference*"}; },
           [](Request& r) { r.workspace_limit = 1 << 30; }, [](Request& r) { r.deterministic = false; },
           [](Request& r) { r.trust = TrustPolicy::all; }}) {
    Request changed = request_;
    change(changed);
    const Plan another = engine_->plan(problem_, changed);
    EXPECT_NE(&Internals::impl(another), &Internals::impl(first));
    EXPECT_EQ(planned(problem_, changed), &Internals::impl(another));
  }
  EXPECT_EQ(planned(problem_, request_), &Internals::impl(first));
  ASSERT_EQ(setenv("FALTUNG_ONLY", "reference_cpu", 1), 0);
  EXPECT_EQ(engine_->plan(problem_, request_).kernel(), "reference_cpu/plain");
  unsetenv("FALTUNG_ONLY");
  const Choice found = engine_->find(problem_, request_);
  const Plan after = engine_->plan(problem_, request_);
  EXPECT_NE(&Internals::impl(after), &Internals::impl(first));
  EXPECT_EQ(after.kernel(), found.kernel);
}

// Kernels that list taps and phases decline before they do: it took seconds and gigabytes.
TEST_F(Finder, ALargeFilterOrStrideIsExplainedAtOnce) {
  for (const char* text : {"fwd:n1c1h3000w3000k1r2999s2999", "bwd_w:n1c1h3000w3000k1r2999s2999",
                           "bwd_d:n1c1h300w300k1r120s120:st120", "fwd:n1c2h8w8k2r4s4:transposed:st100:bias",
                           "fwd:n1c32h1w1000000000k32r1s31:g32:nhwc"}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(engine_->explain(parse_problem(text), request_).kernel.empty());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << text;
  }
  for (const Report& r : engine_->explain(parse_problem("fwd:n1c1h600w600k1r513s512"), request_).reports) {
    if (r.kernel == "implicit_gemm_cpu" || r.kernel == "depthwise_cpu") {
      EXPECT_EQ(r.outcome, Outcome::declined);
      EXPECT_THAT(r.why, HasSubstr("262656 are more than 262144"));
    }
  }
}

// From a problem to its plan, with what training asks for, pools and rewritten problems, kernels are objects:
// the store, the worker and the command line alone have their names read.
TEST_F(Finder, APlanReadsNoNames) {
  const std::size_t read = names_read();
  for (const char* text :
       {"fwd:n2c8h12w12k16r3s3:pad1:nhwc:bias:relu:maxpool2", "fwd:n2c8h12w12k16r3s3:pad1:maxpool3s2p1",
        "fwd:n2c8h6w6k4r4s4:transposed:st2:pad1", "fwd:n1c4d5h6w7k4t3r3s3:pad1:relu",
        "bwd_d:n2c8h12w12k16r3s3:pad1:drelu", "fwd:n2c8h12w12k16r3s3:pad1:stats",
        "fwd:n2c8h12w12k16r3s3:pad1:affine_relu:stats", "bwd_w:n3c8h1w12k4r1s3:nhwc"})
    EXPECT_NE(engine_->plan(parse_problem(text), request_).kernel(), "") << text;
  EXPECT_EQ(names_read(), read);
}

TEST_F(Finder, MathFollowsTheDtype) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Problem open = problem_;
    open.dtype = dtype;
    open.math = Math::of_dtype;
    const Plan plan = engine_->plan(open, request_);
    EXPECT_EQ(plan.problem().math, default_math(dtype));
    Problem said = open;
    said.math = default_math(dtype);
    EXPECT_EQ(to_string(said), to_string(open));
    EXPECT_EQ(&Internals::impl(engine_->plan(said, request_)), &Internals::impl(plan));
    EXPECT_EQ(engine_->explain(open, request_).kernel, plan.kernel());
  }
  const Plan brief =
      engine_->plan({.c = 4, .h = 6, .w = 6, .k = 4, .dtype = DType::f16, .epilogue = {}}, request_);
  EXPECT_EQ(brief.problem().math, Math::f16);
}

TEST_F(Finder, RecordsOfAnotherGrammarAreAMiss) {
  Store store(directory_.string());
  Trials trials(store, problem_, find_device("cpu")->info(), 1);
  Report old = report_of(Outcome::pass, "", "implicit_gemm_cpu/m14n2");
  old.ms = old.ms_min = old.ms_max = 1e-6;
  old.error_over_bound = 0.1;
  trials.add(old);
  EXPECT_EQ(engine_->explain(problem_, request_).source, "model");
  EXPECT_FALSE(engine_->plan(problem_, request_).kernel().empty());
  EXPECT_EQ(engine_->find(problem_, request_).source, "store");
}

TEST_F(Finder, EnginesMove) {
  const std::string kernel = engine_->plan(problem_, request_).kernel();
  std::vector<std::string> said;
  engine_->on_warning([&](const std::string& line) { said.push_back(line); });
  Engine moved = std::move(*engine_);
  const Plan plan = moved.plan(problem_, request_);
  EXPECT_EQ(plan.kernel(), kernel);
  Engine other("/proc/faltung-cannot-be-here");
  other = std::move(moved);
  EXPECT_EQ(&Internals::impl(other.plan(problem_, request_)), &Internals::impl(plan));
  const Choice found = other.find(problem_, request_);
  EXPECT_EQ(found.source, "store");
  EXPECT_TRUE(said.empty()) << said.front();
  std::vector<Engine> many;
  many.push_back(std::move(other));
  many.push_back(Engine(directory_.string()));
  for (Engine& engine : many) EXPECT_EQ(engine.plan(problem_, request_).kernel(), found.kernel);
}

TEST(Devices, AreTheCpuFirstAndAllThatThereAre) {
  const std::vector<DeviceDescription> all = devices();
  ASSERT_EQ(all.size(), list_devices().size());
  EXPECT_EQ(all.front().id, "cpu");
  EXPECT_EQ(all.front().kind, "cpu");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DeviceInfo& info = find_device(all[i].id)->info();
    EXPECT_EQ(all[i].name, info.description);
    EXPECT_EQ(all[i].driver, info.driver);
    EXPECT_EQ(all[i].features, info.features);
    EXPECT_GT(all[i].units, 0) << all[i].id;
    EXPECT_GT(all[i].memory_bytes, std::size_t{1} << 26) << all[i].id;
    EXPECT_FALSE(all[i].name.empty()) << all[i].id;
    EXPECT_TRUE(all[i].kind == "cpu" || all[i].kind == "gpu");
  }
}

}  // namespace
}  // namespace faltung
