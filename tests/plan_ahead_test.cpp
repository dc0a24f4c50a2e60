// Plans of several problems, made side by side before they are asked for one by one; and what is measured
// while one is made.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "src/algorithms/registered.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/network/lowering.hpp"
#include "src/network/passes.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using network::Graph;
using network::Lowering;
using network::Shape;

TEST(PlanAhead, WhatFailsIsSaidWhereItIsAskedFor) {
  const Scratch scratch;
  EngineImpl engine(scratch.path()), alone(scratch.path() + "/alone");
  Request request;
  request.threads = 1;
  request.only = {"winograd*"};
  const Problem strided = parse_problem("fwd:n1c8h12w12k16r3s3:st2:pad1:f32:nhwc"),
                one = parse_problem("fwd:n1c8h12w12k16r3s3:pad1:f32:nhwc"),
                other = parse_problem("fwd:n1c8h16w12k16r3s3:pad1:f32:nhwc");
  engine.plan_ahead({strided, one, other, one}, request);
  EXPECT_THROW(static_cast<void>(engine.plan(strided, request)), Error);
  for (const Problem& problem : {one, other})
    EXPECT_EQ(engine.plan(problem, request)->kernel(), alone.plan(problem, request)->kernel());
}

// Does something else while its recipe is made.
class Busy : public Algorithm {
 public:
  explicit Busy(std::function<void()> other)
      : Algorithm({"aaa_busy_cpu", "has other things to do", "cpu"}), other_(std::move(other)) {}
  Support accepts(const Problem& problem, const Target&) const override {
    return problem.n == 7 ? Support::supported() : Support::declined("it is for a batch of seven");
  }

 private:
  std::vector<Candidate> list(const Problem& problem, const Target&) const override {
    Candidate candidate;
    candidate.config = "plain";
    candidate.accuracy = dot_product_accuracy(problem);
    candidate.recipe = [other = other_] { return other(), Recipe{}; };
    return {candidate};
  }
  Maker parse(const std::string& config, Direction) const override {
    throw Error(Status::bad_problem, "no config " + config);
  }

  std::function<void()> other_;
};

// A plan that was chosen by what was known before does not stand for what was measured meanwhile.
TEST(PlanAhead, WhatIsMeasuredWhileAPlanIsMadeCounts) {
  const Scratch scratch;
  EngineImpl engine(scratch.path());
  Request request;
  request.threads = 1;
  request.budget_ms = 1;
  int finds = 1;
  const Registered busy(std::make_unique<Busy>([&] {
    if (finds-- > 0) engine.find(parse_problem("fwd:n1c8h6w6k8r1s1"), request, nullptr);
  }));
  const Problem problem = parse_problem("fwd:n7c8h6w6k8r1s1");
  Request by_it = request;
  by_it.only = {"aaa_busy_cpu"};
  const auto before = engine.plan(problem, by_it), after = engine.plan(problem, by_it);
  EXPECT_LE(finds, 0);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, engine.plan(problem, by_it));
}

std::string convolutions() {
  onnx::ModelText model;
  model.add_input("x", {1, 16, 24, 24});
  std::string from = "x";
  for (const std::int64_t size : {2, 3, 4, 5, 7}) {
    const std::string w = "w" + std::to_string(size), y = "y" + std::to_string(size);
    const auto count = static_cast<std::size_t>(16 * 16 * size * size);
    model.add_constant(onnx::tensor(w, {16, 16, size, size}, std::vector<float>(count, 0.5f)));
    model.add({"Conv", {from, w}, {y}, {{"auto_pad", std::string("SAME_UPPER")}}, ""});
    from = y;
  }
  model.add_output(from);
  return model.bytes();
}

// Its constants lie in the bytes.
Graph graph_of(const std::string& bytes) {
  Graph graph = network::run_passes(network::unsized_passes(), onnx::read(bytes), network::passes_off("gpu"));
  graph = network::with_sizes(std::move(graph), {{1, 16, 24, 24}});
  return network::run_passes(network::sized_passes(), std::move(graph));
}

// For a GPU that is not here: what follows the plans, the packing of weights, fails. Were they made one after
// the other, each for as long as its longest compiler takes, all would take longer.
TEST(PlanAhead, ANetworksCompilersWorkSideBySide) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  if (available_processors() < 2) GTEST_SKIP() << "one processor";
  ASSERT_EQ(setenv("FALTUNG_KNOWN_DEVICES", "none", 1), 0);
  const Scratch scratch;
  EngineImpl engine(scratch.path());
  unsetenv("FALTUNG_KNOWN_DEVICES");
  network::Weights weights;
  Request request;
  request.device = "nvrtc:sm_86";
  request.threads = 1;
  request.trust = TrustPolicy::all;
  const std::string bytes = convolutions();
  const Graph graph = graph_of(bytes);
  const auto planners = engine.planners(find_device(request.device)->info(), request.threads);
  Lowering lowering(graph, {engine, request, weights, *planners});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(lowering.run(), Error);
  double one_by_one_ms = 0;
  int count = 0;
  for (const network::Node& node : graph.nodes) {
    if (node.op != "Conv") continue;
    const Problem problem = network::forward_problem(lowering, node, lowering.layout_of(node));
    const std::shared_ptr<const PlanImpl> plan = engine.plan(problem, request);
    EXPECT_EQ(plan->kernel(), engine.candidates(Settled(problem, request)).candidates.front().kernel());
    double longest_ms = 0;
    for (const jit::Program& program : plan->programs())
      longest_ms = std::max(longest_ms, program.compile_ms);
    EXPECT_GT(longest_ms, 0);
    one_by_one_ms += longest_ms;
    ++count;
  }
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(count, 5);
  EXPECT_GT(one_by_one_ms, ms);
}

}  // namespace
}  // namespace faltung
