// One output in a dimension, however long the stride: what lies on the way to a next one costs nothing.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace faltung
