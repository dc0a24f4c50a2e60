// A limit on the workspace is kept to the byte: what a candidate says it needs is what its plan asks for,
// with the pool's buffer and the weights that a run packs itself, whether the kernel is listed or named in
// full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/finder/engine.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

const char* const kLimitedProblems[] = {"fwd:n1c16h13w14k24r3s3:pad1:relu",
                                        "fwd:n1c16h12w12k24r3s3:pad1:relu:maxpool2",
                                        "fwd:n2c16h12w12k24r1s1:f32:nhwc:avgpool3s2p1",
                                        "fwd:n1c64h12w12k64r3s3:pad1:bf16:nhwc",
                                        "fwd:n1c24h12w11k24r3s3:pad1:g24:f32:nhwc:maxpool2",
                                        "bwd_d:n1c16h13w14k24r3s3:st2:pad1",
                                        "bwd_w:n1c16h13w14k24r3s3:pad1:f32:nhwc"};

// The kernels that are listed for the problem, and those that are for a larger one and compute it as well.
std::set<std::string> kernels(const Problem& problem, const Target& target) {
  std::set<std::string> names;
  Problem larger = problem;
  larger.n *= 4, larger.h *= 4, larger.w *= 4;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu") continue;
    for (const Problem& p : {problem, larger}) {
      if (!algorithm->supports(p, target).yes) continue;
      for (const Candidate& candidate : algorithm->candidates(p, target)) {
        try {
          names.insert(find_candidate(candidate.kernel(), problem, target).kernel());
        } catch (const Error&) {  // for the larger alone
        }
      }
    }
  }
  return names;
}

TEST(WorkspaceLimit, IsKeptToTheByte) {
  const Scratch scratch;
  Engine engine(scratch.path());
  int unlisted = 0, limited = 0;
  for (const char* text : kLimitedProblems) {
    const Problem problem = parse_problem(text);
    const Target target{find_device("cpu")->info(), 2};
    for (const std::string& kernel : kernels(problem, target)) {
      SCOPED_TRACE(kernel + " for " + text);
      const Candidate candidate = find_candidate(kernel, problem, target);
      const std::vector<Candidate> listed = candidate.algorithm->candidates(problem, target);
      unlisted += std::none_of(listed.begin(), listed.end(),
                               [&](const Candidate& c) { return c.config == candidate.config; });
      Request request;
      request.threads = 2;
      request.only = {kernel};
      const Plan plan = engine.plan(problem, request);
      for (const bool packed : {false, true}) {
        EXPECT_EQ(plan.workspace_bytes(packed), candidate.workspace(packed)) << packed;
      }
      request.workspace_limit = plan.workspace_bytes();
      EXPECT_EQ(engine.plan(problem, request).kernel(), kernel);
      if (request.workspace_limit == 0) continue;
      ++limited;
      --request.workspace_limit;
      try {
        engine.plan(problem, request);
        ADD_FAILURE() << "it was planned";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::unsupported);
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("the limit is " + std::to_string(request.workspace_limit)));
      }
    }
  }
  EXPECT_GT(unlisted, 0);
  EXPECT_GT(limited, 20);
}

// Whatever the limit, what is chosen keeps it.
TEST(WorkspaceLimit, WhatIsChosenKeepsIt) {
  const Scratch scratch;
  Engine engine(scratch.path());
  for (const char* text : kLimitedProblems) {
    for (const std::size_t limit : {0, 64, 1000, 20000, 100000, 1000000}) {
      Request request;
      request.threads = 2;
      request.workspace_limit = limit;
      try {
        EXPECT_LE(engine.plan(parse_problem(text), request).workspace_bytes(), limit) << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::unsupported) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace faltung
