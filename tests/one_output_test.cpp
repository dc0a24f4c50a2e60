// One output in a dimension, however long the stride: what lies on the way to a next one costs nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/error_message.hpp"
#include "tests/fake_device.hpp"
#include "tests/verify_first.hpp"

namespace faltung {
namespace {

TEST(OneOutput, AStrideBeyondTheImageIsNotStaged) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder(find_device("cpu"), parallel);
  int verified = 0;
  for (const char* shape : {"n1c8h9w9k8r3s3:g8:pad1", "n1c8h9w9k8r3s3:pad1", "n2c8h9w9k16r3s3:g2:pad1",
                            "n1c8w9k8s3:pad1:g8", "n1c4d3h3w3k8t3r3s3:pad1"}) {
    for (const char* direction : {"fwd:", "bwd_d:", "bwd_w:"}) {
      for (const char* form : {":f32:nchw", ":f32:nhwc", ":bf16:nchw"}) {
        const Problem problem = parse_problem(std::string(direction) + shape + ":st1000000000" + form);
        for (const auto& algorithm : registry()) {
          if (algorithm->device_kind() != "cpu" || !algorithm->supports(problem, builder.target()).yes)
            continue;
          for (const Candidate& candidate : algorithm->candidates(problem, builder.target()))
            ASSERT_LT(candidate.workspace_bytes, 1u << 20)
                << candidate.kernel() << " for " << to_string(problem);
          verify_first(*algorithm, problem, builder, parallel, verified);
        }
      }
    }
  }
  EXPECT_GE(verified, 100);
}

// As little of a large image as of a small one.
TEST(OneOutput, NoMoreOfALargeImageIsStaged) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder(find_device("cpu"), parallel);
  const Algorithm& depthwise = find_algorithm("depthwise_cpu");
  int verified = 0;
  for (const char* direction : {"fwd:", "bwd_w:"}) {
    const auto workspace = [&](const char* image) {
      const Problem problem =
          parse_problem(std::string(direction) + "n1c8" + image + "k8r3s3:g8:pad1:st1000000000");
      verify_first(depthwise, problem, builder, parallel, verified);
      return depthwise.candidate(problem, "rows", builder.target()).workspace_bytes;
    };
    EXPECT_EQ(workspace("h400w300"), workspace("h9w9")) << direction;
  }
  EXPECT_EQ(verified, 4);
}

// A GPU's sizes have 31 bits, too.
TEST(OneOutput, ProgramsKnowNoStrideBeyondTheImage) {
  const FakeDevice hopper("fake:hopper", "sm_90a"), other("fake:opencl");
  int alike = 0;
  for (const Device* device : {static_cast<const Device*>(&hopper), static_cast<const Device*>(&other)}) {
    const Target target{device->info(), 1};
    for (const char* shape : {"n2c16h9w9k16r3s3:pad1", "n2c16h9w9k16r3s3:g16:pad1", "n2c16h9w9k16r1s1"}) {
      for (const char* direction : {"fwd:", "bwd_w:"}) {
        for (const char* form : {":f32:nchw", ":f16:nhwc"}) {
          const auto with = [&](const char* stride) {
            return parse_problem(std::string(direction) + shape + stride + form);
          };
          const Problem near = with(":st9"), far = with(":st3000000000");
          for (const auto& algorithm : registry()) {
            if (algorithm->device_kind() != "gpu") continue;
            ASSERT_EQ(algorithm->supports(near, target).yes, algorithm->supports(far, target).yes)
                << algorithm->name() << ": " << to_string(far);
            if (!algorithm->supports(near, target).yes) continue;
            const Candidate one = algorithm->candidates(near, target).front(),
                            same = algorithm->candidates(far, target).front();
            EXPECT_EQ(one.kernel(), same.kernel()) << to_string(far);
            EXPECT_EQ(one.recipe.program_digests(), same.recipe.program_digests()) << to_string(far);
            ++alike;
          }
        }
      }
    }
  }
  EXPECT_GE(alike, 50);
}

TEST(OneOutput, MessagesHaveTheProblemAsItIsGiven) {
  const auto device = find_device("cpu");
  const Problem problem = parse_problem("fwd:n1c8h9w9k8r5s5:pad2:st1000:bias");
  EXPECT_THAT(error_message([&] {
                find_candidate("winograd_cpu/f4x4", problem, {device->info(), 1});
              }),
              testing::HasSubstr("does not compute " + to_string(problem)));
}

}  // namespace
}  // namespace faltung
