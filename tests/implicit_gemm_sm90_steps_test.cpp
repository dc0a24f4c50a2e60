// What Hopper's kernels do themselves, and what takes steps beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "src/algorithms/algorithm.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/text.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

using testing::ElementsAre;

std::vector<std::string> steps_on_hopper(const std::string& text) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Problem p = parse_problem(text);
  const std::vector<Candidate> all = find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1});
  std::vector<std::string> names;
  for (const Step& step : all.front().recipe().steps) names.push_back(step.name);
  return names;
}

TEST(ImplicitGemmSm90Steps, ATransposedConvolutionIsOneLaunch) {
  for (const char* text : {"fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nhwc:bias:relu",
                           "fwd:n2c64h13w11k64r4s4:transposed:st2:pad1:bf16:nhwc:bias",
                           "fwd:n2c64w31k24s4:transposed:st2:pad1:f16:nhwc:bias"}) {
    EXPECT_THAT(steps_on_hopper(text), ElementsAre("implicit_gemm")) << text;
  }
  // Two pixels of the result side by side would not be whole lines, a residual would come by phases.
  EXPECT_GT(steps_on_hopper("fwd:n2c64h13w11k3r4s4:transposed:st2:pad1:f16:nhwc:bias").size(), 1u);
  EXPECT_GT(steps_on_hopper("fwd:n2c64h13w11k64r2s2:transposed:st2:f16:nhwc:residual").size(), 1u);
}

TEST(ImplicitGemmSm90Steps, AReluBeforeIsTheKernelsOwnWithoutPhases) {
  for (const char* text :
       {"bwd_d:n2c64h13w11k64r3s3:pad1:f16:nhwc:drelu", "bwd_d:n2c64h13w11k64r3s3:pad1:f16:nchw:drelu",
        "bwd_d:n2c64h13w16k64r3s3:pad1:f32:nchw:math=tf32:drelu"}) {
    EXPECT_THAT(steps_on_hopper(text), testing::Not(testing::Contains("through the ReLU"))) << text;
  }
  EXPECT_THAT(steps_on_hopper("bwd_d:n2c64h14w12k64r3s3:st2:pad1:f16:nhwc:drelu"),
              ElementsAre("implicit_gemm", "through the ReLU"));
  EXPECT_THAT(steps_on_hopper("fwd:n2c64h13w11k64r3s3:pad1:f16:nhwc:stats").front(), "implicit_gemm");
}

// It reads what the ReLU gave, and no residual.
TEST(ImplicitGemmSm90Steps, TheReluIsRead) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Problem p = parse_problem("bwd_d:n2c64h13w11k64r3s3:pad1:f16:nhwc:drelu");
  for (const Candidate& c : find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1})) {
    std::vector<Place> used;
    for (const Step& step : c.recipe().steps) {
      for (const Address& address : step.uses()) used.push_back(address.slot.place);
    }
    EXPECT_THAT(used, testing::Contains(Place::relu)) << c.config;
    EXPECT_THAT(used, testing::Not(testing::Contains(Place::residual))) << c.config;
  }
}

}  // namespace
}  // namespace faltung
