// What is known of kernels: verdicts by their programs, reports as text, and the small problem of a trial.
#include "src/finder/trust/verdicts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/algorithms/config_name.hpp"
#include "src/finder/report.hpp"
#include "src/finder/trust/trust.hpp"
#include "tests/fake_device.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr const char* kJudged = "fwd:n1c8h9w10k16r3s3:pad1";

TEST(VerdictsTest, AreOnACandidateWithItsProgramsADeviceAndADriver) {
  Scratch scratch;
  Store store(scratch.path());
  DeviceInfo device;
  device.id = "opencl:0", device.kind = "gpu", device.dialect = "opencl", device.key = "opencl-x-y";
  device.driver = "driver 1", device.units = 1;
  const auto key = [&](const char* kernel, const char* text) {
    const Problem problem = with_math(parse_problem(text));
    return verdict_key(find_candidate(kernel, problem, {device, 1}), problem, device);
  };
  Verdict verdict;
  verdict.report = report_of(Outcome::hang, "no end", "direct_gpu/tt1");
  verdict.problem = kJudged, verdict.driver = "driver 1";
  Verdicts verdicts(store);
  const std::string filed = key("direct_gpu/tt1", kJudged);
  verdicts.file(filed, verdict);
  EXPECT_EQ(verdicts.quarantined(filed)->report.why, "no end");
  EXPECT_EQ(verdicts.quarantined(filed)->report.outcome, Outcome::hang);
  EXPECT_FALSE(verdicts.verified(filed));
  EXPECT_EQ(verdicts.kernels_in_quarantine(), std::vector<std::string>{"direct_gpu/tt1"});
  // Sizes are arguments of the same program; what is compiled in makes another.
  EXPECT_EQ(key("direct_gpu/tt1", "fwd:n7c64h44w44k64r3s3"), filed);
  for (const char* other :
       {"fwd:n1c8h9w10k16r5s5:pad1", "bwd_w:n1c8h9w10k16r3s3:pad1", "fwd:n1c8h9w10k16r3s3:pad1:f16",
        "fwd:n1c8h9w10k16r3s3:pad1:nhwc", "fwd:n1c8h9w10k16r3s3:pad1:relu"}) {
    EXPECT_NE(key("direct_gpu/tt1", other), filed) << other;
  }
  EXPECT_NE(key("direct_gpu/tt4", kJudged), filed);
  device.driver = "driver 2";
  EXPECT_NE(key("direct_gpu/tt1", kJudged), filed);
  device.driver = "driver 1";
  EXPECT_EQ(key("direct_gpu/tt1", kJudged), filed);
  // Another process reads the same; what was only noted, none but this object.
  EXPECT_TRUE(Verdicts(store).quarantined(filed));
  verdicts.note("elsewhere", verdict);
  EXPECT_TRUE(verdicts.quarantined("elsewhere"));
  EXPECT_FALSE(Verdicts(store).quarantined("elsewhere"));
  store.clear(kQuarantine);
  EXPECT_FALSE(verdicts.quarantined(filed));
}

// The CPU's programs are compiled with the library: theirs are told apart by what selects them.
TEST(VerdictsTest, OfTheCpusKernelsHoldForADirectionDtypeLayoutAndMath) {
  const DeviceInfo& device = find_device("cpu")->info();
  const auto key = [&](const char* text) {
    const Problem problem = with_math(parse_problem(text));
    return verdict_key(find_candidate("direct_cpu/rows", problem, {device, 1}), problem, device);
  };
  EXPECT_EQ(key("fwd:n7c64h44w44k64r5s5"), key(kJudged));
  for (const char* other : {"bwd_w:n1c8h9w10k16r3s3:pad1", "fwd:n1c8h9w10k16r3s3:pad1:f16",
                            "fwd:n1c8h9w10k16r3s3:pad1:nhwc", "fwd:n1c8h9w10k16r3s3:pad1:math=tf32"}) {
    EXPECT_NE(key(other), key(kJudged)) << other;
  }
}

TEST(VerdictsTest, ComeBackFromText) {
  Verdict verdict;
  verdict.report = report_of(Outcome::out_of_bounds, "wrote past \xff y", "x/y");
  verdict.problem = "p", verdict.device = "d", verdict.description = "e", verdict.driver = "f";
  verdict.reproduce = "g";
  const std::optional<Verdict> back = parse_verdict(to_json(verdict));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->report.outcome, Outcome::out_of_bounds);
  EXPECT_EQ(back->report.kernel, "x/y");
  EXPECT_THAT(back->report.why, HasSubstr("wrote past"));
  EXPECT_EQ(
      std::tie(back->problem, back->device, back->description, back->driver, back->reproduce),
      std::tie(verdict.problem, verdict.device, verdict.description, verdict.driver, verdict.reproduce));
  EXPECT_FALSE(parse_verdict("{}"));
  EXPECT_FALSE(parse_verdict(R"({"kernel":"x/y","verdict":"hang"})"));  // of the version before
}

TEST(ReportTest, EveryOutcomeComesBackFromText) {
  for (int i = 0; i <= static_cast<int>(Outcome::too_large); ++i) {
    Report report = report_of(static_cast<Outcome>(i), "why", "a/b");
    report.ms = 2, report.ms_min = 1, report.ms_max = 3, report.predicted_ms = 4;
    report.error_over_bound = INFINITY, report.workspace_bytes = 5;
    const Report back = report_from(to_json(report));
    EXPECT_EQ(back.outcome, report.outcome) << name(report.outcome);
    EXPECT_EQ(std::tie(back.kernel, back.why, back.ms, back.ms_min, back.ms_max, back.predicted_ms,
                       back.error_over_bound, back.workspace_bytes),
              std::tie(report.kernel, report.why, report.ms, report.ms_min, report.ms_max,
                       report.predicted_ms, report.error_over_bound, report.workspace_bytes));
  }
  nlohmann::ordered_json json = to_json(Report{});
  json["outcome"] = "of a later version";
  EXPECT_THROW(report_from(json), nlohmann::json::exception);
}

class SmallProblemTest : public testing::Test {
 protected:
  static Problem small(const Problem& p, Keep keep = Keep::channels) {
    Request request;
    request.threads = 1;
    const Settled settled(p, request);
    return small_problem(find_candidate("direct_cpu/rows", settled.problem, settled.target()), settled, keep)
        .problem;
  }
};

std::vector<std::string> digests(const Algorithm& algorithm, const Problem& p, const std::string& config,
                                 DeviceInfo device, int units) {
  device.units = units;
  return program_digests(algorithm.candidate(p, config, {device, 1}).recipe());
}

TEST_F(SmallProblemTest, KeepsWhatAKernelIsCompiledFor) {
  for (const char* text :
       {"fwd:n32c256h224w224k256r3s3:pad1:bf16:nhwc:bias:relu", "bwd_d:n16c64h512w512k64r5s7:st2:f32",
        "bwd_w:n64c512h7w7k512r1s1:f16:nchw", "fwd:n8c960h44w44k960r5s5:g960:dil2"}) {
    const Problem p = parse_problem(text), made = small(p);
    EXPECT_LT(flops(made), 4e7) << to_string(made);
    EXPECT_EQ(std::tie(made.direction, made.dtype, made.layout, made.math),
              std::tie(p.direction, p.dtype, p.layout, p.math));
    EXPECT_EQ(std::tie(made.r, made.s, made.stride_h, made.dilation_w),
              std::tie(p.r, p.s, p.stride_h, p.dilation_w));
    EXPECT_EQ(made.epilogue, p.epilogue);
    EXPECT_NO_THROW(validate(made));
  }
  const Problem tiny = parse_problem(kJudged);
  EXPECT_EQ(small(tiny), tiny);
}

TEST_F(SmallProblemTest, KeepsWhatIsToBeKept) {
  const auto text = [](const char* text, Keep keep) { return to_string(small(parse_problem(text), keep)); };
  EXPECT_EQ(text("fwd:n8c64h44w44k64r3s3:pad1", Keep::channels), "fwd:n2c64h11w11k64r3s3:pad1:f32:nchw");
  EXPECT_EQ(text("fwd:n8c64h44w44k64r3s3:pad1", Keep::image), "fwd:n2c8h48w48k16r3s3:pad1:f32:nchw");
  EXPECT_EQ(text("fwd:n8c64h256w256k64r3s3:pad1", Keep::image), "fwd:n2c8h64w64k16r3s3:pad1:f32:nchw");
  EXPECT_EQ(text("fwd:n1c8h9w10k16r3s3:pad1", Keep::image), "fwd:n1c8h48w48k16r3s3:pad1:f32:nchw");
}

// A trial of a GPU's kernel runs the very programs that the problem runs; which problem that is is found
// without reading the kernel's name.
TEST_F(SmallProblemTest, RunsTheSamePrograms) {
  Settled settled(parse_problem("fwd:n8c66h44w44k62r3s3:pad1"), {});
  settled.device = std::make_shared<FakeDevice>();
  settled.threads = 1;
  const Target target = settled.target();
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu" || !algorithm->supports(settled.problem, target).yes) continue;
    for (const Candidate& candidate : algorithm->candidates(settled.problem, target)) {
      const std::size_t read = names_read();
      const auto [made, units] = small_problem(candidate, settled);
      EXPECT_EQ(names_read(), read) << candidate.kernel();
      EXPECT_EQ(digests(*algorithm, made, candidate.config, settled.device->info(), units),
                program_digests(candidate.recipe()))
          << candidate.kernel() << " on " << to_string(made);
    }
  }
}

// Hopper's depthwise kernel asks for patches ahead in the first rounds of blocks: a program of more rounds is
// tried on a device that counts as a small one.
TEST_F(SmallProblemTest, IsOfManyRoundsOnFewUnits) {
  Settled settled(parse_problem("fwd:n32c144h72w72k144r3s3:pad1:g144:f16:nhwc:biasf32:silu"), {});
  settled.device = std::make_shared<FakeDevice>("fake:0", "sm_90a");
  settled.threads = 1;
  const Candidate candidate =
      find_candidate("depthwise_diagonal_gpu/tp8x16x1_ch48", settled.problem, settled.target());
  for (const Keep keep : {Keep::channels, Keep::image}) {
    const auto [made, units] = small_problem(candidate, settled, keep);
    EXPECT_LT(flops(made), 4e7) << to_string(made);
    EXPECT_LT(units, settled.device->info().units);
    EXPECT_EQ(digests(*candidate.algorithm, made, candidate.config, settled.device->info(), units),
              program_digests(candidate.recipe()));
  }
}

// Clusters have more blocks than such a device has units.
TEST_F(SmallProblemTest, ADeviceOfFewUnitsIsAskedLikeAny) {
  const FakeDevice hopper("fake:0", "sm_90a");
  for (const char* text :
       {"bwd_w:n32c128h56w56k128r3s3:st2:pad1:bf16:nhwc", "bwd_d:n8c64h28w28k64r3s3:pad1:f16:nchw",
        "fwd:n32c64h56w56k256r1s1:f16:nhwc:stats", "fwd:n8c128h28w28k128r3s3:pad1:g32:f16:nchw"}) {
    const Problem p = parse_problem(text);
    for (const int units : {1, 2, 3, 7, 16}) {
      DeviceInfo info = hopper.info();
      info.units = units;
      const Target target{info, 1};
      for (const auto& algorithm : registry()) {
        if (algorithm->device_kind() != "gpu" || !algorithm->supports(p, target).yes) continue;
        for (const Candidate& candidate : algorithm->candidates(p, target))
          EXPECT_GT(candidate.cost.ms, 0) << candidate.kernel() << " of " << text << " on " << units;
      }
    }
  }
}

}  // namespace
}  // namespace faltung
