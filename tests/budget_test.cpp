// find's budget holds for all that it does: where one run takes longer, one run is what it takes.
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "src/algorithms/registered.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/oracle.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

constexpr double kRunMs = 200;
std::atomic<double> run_ms{kRunMs};
std::atomic<int> runs{0};

// Right, and slow, in as many configs as find could try.
class Slow : public Algorithm {
 public:
  Slow() : Algorithm({"aaa_slow_cpu", "takes its time", "cpu"}) {}
  Support accepts(const Problem& problem, const Target&) const override {
    return problem.n == 3 ? Support::supported() : Support::declined("it is for a batch of three");
  }

 private:
  static constexpr int kConfigs = 6;

  std::vector<Candidate> list(const Problem& problem, const Target&) const override {
    std::vector<Candidate> all;
    for (int i = 0; i < kConfigs; ++i) all.push_back(candidate_of("c" + std::to_string(i), problem));
    return all;
  }
  Maker parse(const std::string& config, Direction) const override {
    return [config](const Problem& problem, const Target&) { return candidate_of(config, problem); };
  }
  static Candidate candidate_of(const std::string& config, const Problem& problem) {
    Candidate candidate;
    candidate.config = config;
    candidate.cost.ms = kRunMs / 2;  // a model may be wrong
    candidate.accuracy = dot_product_accuracy(problem);
    candidate.recipe = [problem] {
      Recipe recipe;
      recipe.steps.push_back(
          call("slow", {Place::x, Place::w}, {Place::y}, [problem](const Memory& m, const Parallel&) {
            ++runs;
            std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(run_ms));
            const TensorShape s = y_shape(problem);
            for (std::int64_t i = 0; i < s.elements(); ++i) {
              const Position at{i / (s.c * s.h * s.w), i / (s.h * s.w) % s.c, 0, i / s.w % s.h, i % s.w};
              store_element(
                  problem.dtype, m[Place::y], s.offset(at),
                  static_cast<float>(
                      reference(problem, Tensors::forward(m[Place::x], m[Place::w], m[Place::y]), at).value));
            }
          }));
      return recipe;
    };
    return candidate;
  }
};

// Done at once, and right, for it promises nothing.
class Careless : public Algorithm {
 public:
  Careless() : Algorithm({"aaa_careless_cpu", "gives zeros", "cpu"}) {}
  Support accepts(const Problem& problem, const Target&) const override {
    return problem.n == 3 ? Support::supported() : Support::declined("it is for a batch of three");
  }
  static Accuracy accuracy() { return {1e30, 0, 0, false, 0, 1e30}; }

 private:
  std::vector<Candidate> list(const Problem& problem, const Target&) const override {
    std::vector<Candidate> all;
    all.push_back(candidate_of("plain", problem));
    return all;
  }
  Maker parse(const std::string& config, Direction) const override {
    return [config](const Problem& problem, const Target&) { return candidate_of(config, problem); };
  }
  static Candidate candidate_of(const std::string& config, const Problem& problem) {
    Candidate candidate;
    candidate.config = config;
    candidate.cost.ms = 1;
    candidate.accuracy = accuracy();
    candidate.recipe = [problem] {
      Recipe recipe;
      recipe.steps.push_back(
          call("zeros", {Place::x, Place::w}, {Place::y}, [problem](const Memory& m, const Parallel&) {
            std::memset(m[Place::y], 0, bytes(problem, Tensor::y));
          }));
      return recipe;
    };
    return candidate;
  }
};

// That this process has computed for, whatever else the machine did.
double computed_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

class Budget : public testing::Test {
 protected:
  Budget() { runs = 0, run_ms = kRunMs; }
  void find(double budget_ms, const char* algorithm = "aaa_slow_cpu",
            const char* problem = "fwd:n3c2h5w5k2r3s3:pad1") {
    Request request;
    request.threads = 1;
    request.only = {algorithm};
    request.budget_ms = budget_ms;
    Engine engine(scratch_.path());
    Internals::impl(engine).ceilings(*find_device("cpu"), 1);
    choice_ = engine.find(parse_problem(problem), request);
  }
  const Registered slow_{std::make_unique<Slow>()}, careless_{std::make_unique<Careless>()};
  const Scratch scratch_;
  Choice choice_;
};

TEST_F(Budget, OneRunIsTimedAndCheckedWhereItTakesMore) {
  find(kRunMs / 10);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(choice_.source, "store");
  EXPECT_GE(choice_.reports.front().ms, kRunMs);
  EXPECT_GE(choice_.reports.front().error_over_bound, 0);  // it was checked
}

// The machine may have other work, but sleeping needs none: where it has, there are fewer runs.
TEST_F(Budget, WhatIsTriedFitsIntoWhatIsLeft) {
  const double budget_ms = 4 * kRunMs;
  find(budget_ms);
  EXPECT_GE(runs, 1);
  EXPECT_LE(runs,
            2);  // of the first: a second would take all that the heats have left, and it is not sure to
}

// All configs are as fast, so that some are timed again in turn: within what is left.
TEST_F(Budget, TheFinalFitsIntoWhatIsLeft) {
  run_ms = 5;
  const double budget_ms = 500;
  find(budget_ms);
  EXPECT_LE(runs * run_ms, 1.3 * budget_ms);
}

TEST_F(Budget, SomeOfALargeResultIsChecked) {
  const char* const large = "fwd:n3c128h32w32k128r3s3:pad1:f32:math=fast";
  constexpr double kProducts = 2e7;  // a twentieth of all
  find(1, "aaa_careless_cpu");       // what the processor can do is measured once a store, and takes long
  const double before = computed_ms();
  const Oracle oracle(parse_problem(large), Data::random, 1, kProducts);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(oracle.result_bytes()));
  EXPECT_TRUE(oracle.check(zeros.data(), Careless::accuracy(), Parallel(1)).right());
  const double a_sample = computed_ms() - before;
  find(50, "aaa_careless_cpu", large);
  EXPECT_EQ(choice_.reports.front().kernel, "aaa_careless_cpu/plain");
  EXPECT_LE(computed_ms() - before, 8 * a_sample);
}

}  // namespace
}  // namespace faltung
