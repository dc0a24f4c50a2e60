// What a choice looks at of a long list: of Hopper's, the first candidates of the whole.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/every_way.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "src/problem/parse.hpp"
#include "tests/fake_device.hpp"
#include "tests/sampling.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

// Every row of every list in each direction, math and layout.
std::vector<Problem> every_problem() {
  std::vector<Problem> all;
  for (const auto& entry : std::filesystem::directory_iterator(FALTUNG_SOURCE_DIR "/workloads")) {
    if (entry.path().extension() != ".csv") continue;
    for (const Workload& row : read_workloads(entry.path())) {
      for (const Problem& problem : in_every_way(row.problem)) all.push_back(problem);
    }
  }
  return all;
}

class ShortLists : public testing::Test {
 protected:
  template <class Body>
  void each(int count, const Body& body) {
    FALTUNG_TRACE_SAMPLE();
    const std::vector<Problem> all = every_problem();
    std::vector<std::size_t> order = sampling::shuffled(all.size(), "choices");
    if (!sampling::full())
      order.resize(std::min(order.size(), static_cast<std::size_t>(sampling::count(count))));
    sampling::say(order.size(), all.size());
    for (const std::size_t i : order) {
      SCOPED_TRACE(to_string(all[i]));
      body(all[i]);
      if (HasFatalFailure()) return;
    }
  }
  Settled settled(const Problem& problem) const {
    Settled s(problem, request_);
    s.device = hopper_, s.threads = 1;
    return s;
  }
  static Report measured(const Candidate& candidate, double ms, double error_over_bound = 0) {
    Report report = report_of(Outcome::pass, "", candidate.kernel());
    report.ms = ms, report.error_over_bound = error_over_bound;
    return report;
  }

  const Scratch scratch_;
  EngineImpl engine_{scratch_.path()};
  const Request request_;
  const std::shared_ptr<FakeDevice> hopper_ = std::make_shared<FakeDevice>("fake:hopper", "sm_90a");
  const Problem long_list_ = parse_problem("bwd_w:n32c256h56w56k512r1s1:st2:f16:nchw");
};

TEST_F(ShortLists, TheNearestAreHowTheWholeListBegins) {
  std::size_t cut = 0;
  each(400, [&](const Problem& p) {
    const Settled s = settled(p);
    const Selection whole = engine_.candidates(s), nearest = engine_.candidates(s, Extent::nearest);
    ASSERT_TRUE(whole.is_whole());
    ASSERT_TRUE(reaches(nearest));
    ASSERT_LE(nearest.candidates.size(), whole.candidates.size());
    for (std::size_t i = 0; i < nearest.candidates.size(); ++i) {
      const Candidate &a = nearest.candidates[i], &b = whole.candidates[i];
      ASSERT_EQ(a.kernel(), b.kernel());
      ASSERT_EQ(a.cost.ms, b.cost.ms);
      ASSERT_EQ(a.workspace_bytes, b.workspace_bytes);
    }
    if (nearest.candidates.size() == whole.candidates.size()) return;
    ++cut;
    ASSERT_GT(whole.candidates[nearest.candidates.size()].cost.ms, nearest.complete_to_ms);
  });
  EXPECT_GT(cut, 0u);
}

TEST_F(ShortLists, WhatWasMeasuredIsChosenHoweverFarDownTheListItIs) {
  const Settled s = settled(long_list_);
  const Selection whole = engine_.candidates(s);
  const std::size_t nearest = engine_.candidates(s, Extent::nearest).candidates.size();
  ASSERT_LT(nearest, whole.candidates.size() / 2);
  const auto chosen = [&] {
    const Considered considered = engine_.consider(s);
    return plan_order(considered.selection, considered.trials).front()->kernel();
  };
  EXPECT_EQ(chosen(), whole.candidates.front().kernel());
  Trials trials(engine_.store(), s.problem, s.device->info(), s.threads);
  trials.add(measured(whole.candidates.back(), 1, -1));  // was never checked
  EXPECT_EQ(chosen(), whole.candidates.front().kernel());
  trials.add(measured(whole.candidates.back(), 1));
  EXPECT_EQ(chosen(), whole.candidates.back().kernel());
  trials.add(measured(whole.candidates[1], 0.5));
  EXPECT_EQ(chosen(), whole.candidates[1].kernel());
}

TEST_F(ShortLists, WhereTheNearestFailTheNextOneAnswers) {
  const Settled s = settled(long_list_);
  const Selection whole = engine_.candidates(s), nearest = engine_.candidates(s, Extent::nearest);
  Trials trials(engine_.store(), s.problem, s.device->info(), s.threads);
  Verdicts verdicts(engine_.store());
  for (const Candidate& candidate : nearest.candidates) {
    Report report = measured(candidate, 1);
    report.outcome = Outcome::wrong;
    trials.add(report);
  }
  const std::size_t count = nearest.candidates.size();
  const Considered considered = engine_.consider(s);
  EXPECT_EQ(plan_order(considered.selection, considered.trials).front()->kernel(),
            whole.candidates[count].kernel());
  for (const Candidate& candidate : nearest.candidates) {
    Verdict verdict;
    verdict.report = report_of(Outcome::wrong, "", candidate.kernel());
    verdicts.file(verdict_key(candidate, s.problem, s.device->info()), verdict);
  }
  EXPECT_EQ(engine_.candidates(s, Extent::nearest).candidates.front().kernel(),
            whole.candidates[count].kernel());
}

// By a filter that leaves none of the nearest.
TEST_F(ShortLists, WhatIsAllowedIsFoundHoweverFarDownTheListItIs) {
  Settled s = settled(long_list_);
  const std::string last = engine_.candidates(s).candidates.back().kernel();
  Request only;
  only.only = {last};
  s.filter = Filter(only);
  EXPECT_EQ(engine_.candidates(s, Extent::nearest).candidates.front().kernel(), last);
}

TEST(CandidatesRecipe, IsMadeOnceAndReadOnce) {
  const FakeDevice hopper("fake:hopper", "sm_90a");
  const Candidate one =
      find_algorithm("weights_gradient_sm90")
          .candidates(parse_problem("bwd_w:n8c64h28w28k64r3s3:pad1:f16:nhwc"), {hopper.info(), 1})
          .front();
  int made = 0;
  const RecipeOnce recipe([&] { return ++made, one.recipe(); });
  const RecipeOnce copy = recipe;
  const std::vector<std::string> digests = copy.program_digests();
  EXPECT_EQ(digests, program_digests(recipe()));
  EXPECT_EQ(digests, recipe.program_digests());
  EXPECT_FALSE(digests.empty());
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace faltung
