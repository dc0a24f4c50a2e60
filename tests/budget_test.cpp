// find's budget holds for all that it does: where one run takes longer, one run is what it takes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "src/algorithms/registered.hpp"
#include "src/finder/engine.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

constexpr double kRunMs = 200;
std::atomic<int> runs{0};

// Right, and slow, in as many configs as find could try.
class Slow : public Algorithm {
 public:
  std::string_view name() const override { return "aaa_slow_cpu"; }
  std::string_view description() const override { return "takes its time"; }
  std::string_view device_kind() const override { return "cpu"; }
  Support accepts(const Problem& problem, const Target&) const override {
    return problem.n == 3 ? Support::supported() : Support::declined("it is for a batch of three");
  }

 private:
  static constexpr int kConfigs = 6;

  std::vector<Candidate> list(const Problem& problem, const Target& target) const override {
    std::vector<Candidate> all;
    for (int i = 0; i < kConfigs; ++i) all.push_back(parse("c" + std::to_string(i), problem, target));
    return all;
  }
  Candidate parse(const std::string& config, const Problem& problem, const Target&) const override {
    Candidate candidate;
    candidate.config = config;
    candidate.cost.ms = kRunMs / 2;  // a model may be wrong
    candidate.accuracy = dot_product_accuracy(problem);
    candidate.recipe = [problem] {
      Recipe recipe;
      recipe.steps.push_back(
          call("slow", {Place::x, Place::w}, {Place::y}, [problem](const Memory& m, const Parallel&) {
            ++runs;
            std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(kRunMs));
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

class Budget : public testing::Test {
 protected:
  Budget() { runs = 0; }
  // Milliseconds that find takes, once it knows the device.
  double find(double budget_ms) {
    Request request;
    request.threads = 1;
    request.only = {"aaa_slow_cpu"};
    request.budget_ms = budget_ms;
    Engine engine(scratch_.path());
    Internals::impl(engine).ceilings(*find_device("cpu"), 1);
    const auto begin = std::chrono::steady_clock::now();
    choice_ = engine.find(parse_problem("fwd:n3c2h5w5k2r3s3:pad1"), request);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  const Registered slow_{std::make_unique<Slow>()};
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

TEST_F(Budget, WhatIsTriedFitsIntoWhatIsLeft) {
  const double budget_ms = 4 * kRunMs;
  find(budget_ms);
  EXPECT_GE(runs, 2);
  // The machine may have other work, but sleeping needs none.
  EXPECT_LE(runs * kRunMs, budget_ms);
}

}  // namespace
}  // namespace faltung
