// A slope below zero for each output channel: what the problem says of it, what calls must bring, and the
// bits of slopes that other activations have, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "faltung/faltung.h"
#include "src/problem/parse.hpp"
#include "tests/builder.hpp"
#include "tests/run_once.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

TEST(Prelu, ItsSlopesAreATensorOfTheProblem) {
  for (const char* text : {"fwd:n2c8h9w7k24r3s3:pad1:f32:nhwc:bias:prelu",
                           "fwd:n2c6h7w5k9r3s3:transposed:st2:pad1:outpad1:bf16:nchw:biasf32:residual:prelu",
                           "fwd:n2c8w50k12s3:pad1:f16:nchw:prelu:residual:maxpool2:stats"}) {
    const Problem p = parse_problem(text);
    EXPECT_EQ(to_string(p), text);
    EXPECT_EQ(bytes(p, Tensor::slopes), static_cast<std::size_t>(p.k) * sizeof(float));
    EXPECT_EQ(sizes(p, Tensor::slopes), (std::array<std::int64_t, 5>{1, p.k, 1, 1, 1}));
    Problem without = p;
    without.epilogue.activation = Activation::relu;
    EXPECT_EQ(min_bytes(p), min_bytes(without) + static_cast<double>(bytes(p, Tensor::slopes)));
    EXPECT_EQ(bytes(without, Tensor::slopes), 0u);
  }
}

// Of a problem whose inputs are those of prelu's, with these slopes.
std::vector<std::byte> result_with_slopes(const Problem& p, Tensors tensors, const Candidate& candidate,
                                          Builder& builder, const std::vector<float>& slopes) {
  tensors.slopes = slopes.data();
  return run_once(*builder.plan(p, candidate), tensors);
}

// By every kernel of the CPU: slopes of a half are leaky_relu(0.5), those of one are none.
TEST(Prelu, HasTheBitsOfOneSlopeForAll) {
  const auto parallel = std::make_shared<const Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  int checked = 0;
  for (const char* shape : {"n2c16h14w15k35r3s3:pad1", "n1c24h9w12k24r3s3:pad1:g24", "n1c33h8w8k40r1s1",
                            "n1c6h21w19k20r5s5:st2:pad0.1.2.1:g2", "n1c12h5w6k9r3s3:transposed:st2:pad1"}) {
    for (const char* form : {":f32:nchw", ":f32:nhwc", ":bf16:nhwc", ":f16:nchw"}) {
      const std::string before = std::string("fwd:") + shape + form + ":bias:residual";
      const Problem p = parse_problem(before + ":prelu");
      const Oracle oracle(p, Data::random, 3);
      const auto k = static_cast<std::size_t>(p.k);
      for (const auto& [slope, word] : {std::pair{0.5f, ":leaky_relu(0.5)"}, std::pair{1.0f, ""}}) {
        const Problem other = parse_problem(before + word);
        for (const auto& algorithm : registry()) {
          if (algorithm->device_kind() != "cpu" || !algorithm->supports(p, builder.target()).yes) continue;
          const Candidate candidate = algorithm->candidates(p, builder.target()).front();
          const auto likewise = algorithm->candidates(other, builder.target());
          const auto same = std::find_if(likewise.begin(), likewise.end(), [&](const Candidate& c) {
            return c.kernel() == candidate.kernel();
          });
          if (same == likewise.end()) continue;
          EXPECT_EQ(result_with_slopes(p, oracle.tensors(), candidate, builder, std::vector<float>(k, slope)),
                    result_with_slopes(other, oracle.tensors(), *same, builder, {}))
              << candidate.kernel() << " for " << to_string(p) << " of " << slope;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Prelu, IsComputedThroughTheCInterface) {
  const Scratch scratch;
  faltung_engine* engine = nullptr;
  ASSERT_EQ(faltung_engine_create(scratch.path().c_str(), &engine), FALTUNG_OK);
  faltung_problem* problem = nullptr;
  ASSERT_EQ(faltung_problem_create("fwd:n1c1h2w2k2r1s1:prelu", &problem), FALTUNG_OK);
  EXPECT_EQ(faltung_problem_bytes(problem, FALTUNG_SLOPES), 2 * sizeof(float));
  int64_t sizes[4];
  EXPECT_EQ(faltung_problem_sizes(problem, FALTUNG_SLOPES, sizes), FALTUNG_OK);
  EXPECT_EQ(sizes[1], 2);
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine, problem, nullptr, &plan), FALTUNG_OK) << faltung_last_error();
  std::vector<float> x{1, -2, 3, -4}, w{1, 10}, y(8, 99), slopes{0.5f, -1};
  std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  faltung_tensors tensors{};
  tensors.size = sizeof tensors;
  tensors.x = x.data(), tensors.w = w.data(), tensors.y = y.data();
  EXPECT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), testing::HasSubstr("tensor slopes is null"));
  tensors.slopes = y.data() + 7;
  EXPECT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), testing::HasSubstr("y is written to and overlaps slopes"));
  tensors.slopes = slopes.data();
  ASSERT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_OK) << faltung_last_error();
  EXPECT_THAT(y, testing::ElementsAre(1, -1, 3, -2, 10, 20, 30, 40));
  faltung_plan_destroy(plan);
  faltung_problem_destroy(problem);
  faltung_engine_destroy(engine);
}

}  // namespace
}  // namespace faltung
