// The cost models of Hopper's kernels on chips other than the one that they were fitted on: by what these
// were measured to reach.
#include "src/algorithms/sm90/chip.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/algorithms/algorithm.hpp"
#include "src/finder/records.hpp"
#include "tests/fake_device.hpp"

namespace faltung::sm90 {
namespace {

const char* const kOfEveryKind[] = {
    "fwd:n32c64h56w56k64r1s1:f16:nhwc:bias:relu",      "fwd:n32c256h56w56k512r1s1:st2:f16:nchw",
    "fwd:n32c512h7w7k512r3s3:pad1:f16:nhwc",           "fwd:n32c64h56w56k64r3s3:pad1:bf16:nhwc",
    "fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:math=tf32", "fwd:n32c128h28w28k128r3s3:pad1:f32:nhwc",
    "fwd:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",      "fwd:n8c64h56w56k64r3s3:pad1:f16:nchw",
    "fwd:n4c32h16w16k64r2s2:transposed:st2:f16:nhwc",  "bwd_d:n32c256h56w56k512r1s1:st2:f16:nhwc",
    "bwd_d:n32c64h56w56k64r3s3:st2:pad1:f16:nchw",     "bwd_d:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",
    "bwd_w:n32c256h56w56k512r1s1:st2:f16:nchw",        "bwd_w:n32c64h56w56k64r3s3:pad1:bf16:nhwc",
    "bwd_w:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",    "bwd_w:n32c64h56w56k64r3s3:pad1:f32:nchw:math=tf32"};

// What the package says that a device of such a name reaches.
Ceilings shipped_of(const std::string& name) {
  const Store shipped(FALTUNG_SOURCE_DIR "/share/known_devices.pack:readonly");
  for (const Record& record : shipped.list(kCeilings)) {
    if (record.key.find(name) == std::string::npos) continue;
    DeviceInfo device;
    device.key = record.key.substr(0, record.key.find(" threads="));
    if (const auto known = load_ceilings(shipped, device, 1)) return *known;
  }
  ADD_FAILURE() << "the package has no ceilings of " << name;
  return {};
}

class ChipCosts : public testing::Test {
 protected:
  // By kernel, of the algorithms for Hopper.
  std::map<std::string, double> costs(const char* problem, const Ceilings& measured) const {
    std::map<std::string, double> all;
    for (const char* algorithm : {"implicit_gemm_sm90", "weights_gradient_sm90", "few_channels_sm90"}) {
      for (const Candidate& c :
           find_algorithm(algorithm).offer(parse_problem(problem), {hopper_.info(), 1, measured}).candidates)
        all[c.kernel()] = c.cost.ms;
    }
    return all;
  }

  const FakeDevice hopper_{"fake:hopper", "sm_90a"};
};

TEST_F(ChipCosts, AnH200sAreThoseThatNothingWasMeasuredFor) {
  const Ceilings h200 = shipped_of("H200");
  for (const char* problem : kOfEveryKind) {
    const auto fitted = costs(problem, {});
    ASSERT_FALSE(fitted.empty()) << problem;
    EXPECT_EQ(costs(problem, h200), fitted) << problem;
  }
}

// 0.7 of an H200's memory, and its matrix units.
TEST_F(ChipCosts, AnH100sAreLongerByItsMemoryAlone) {
  const Ceilings h100 = shipped_of("H100");
  const Chip chip = Chip::of({hopper_.info(), 1, h100}, parse_problem(kOfEveryKind[0]));
  EXPECT_EQ(chip.pace, 1);
  EXPECT_NEAR(chip.memory, 0.7, 0.02);
  double most = 1;
  for (const char* problem : kOfEveryKind) {
    const auto fitted = costs(problem, {}), here = costs(problem, h100);
    ASSERT_EQ(here.size(), fitted.size()) << problem;
    for (const auto& [kernel, ms] : here) {
      EXPECT_GT(ms, fitted.at(kernel)) << problem << " " << kernel;
      EXPECT_LT(ms, fitted.at(kernel) / chip.memory) << problem << " " << kernel;
      most = std::max(most, ms / fitted.at(kernel));
    }
  }
  EXPECT_GT(most, 1.2);
}

TEST_F(ChipCosts, AreShorterWhereTheMatrixUnitsAreFasterButNotByMore) {
  Ceilings faster = fitted::kCeilings;
  faster.f16.gflops *= 1.25;
  const char* const problem = "fwd:n32c512h28w28k512r3s3:pad1:f16:nhwc";
  const auto usual = costs(problem, {}), here = costs(problem, faster);
  for (const auto& [kernel, ms] : here) {
    EXPECT_LT(ms, usual.at(kernel)) << kernel;
    EXPECT_GT(ms, usual.at(kernel) / 1.25) << kernel;
  }
  EXPECT_EQ(costs("fwd:n32c512h28w28k512r3s3:pad1:bf16:nhwc", faster),
            costs("fwd:n32c512h28w28k512r3s3:pad1:bf16:nhwc", {}));
}

TEST(Chip, CountsWhatAMultiprocessorReaches) {
  FakeDevice small("fake:hopper", "sm_90a");
  DeviceInfo info = small.info();
  info.units = 66;
  Ceilings half = fitted::kCeilings;
  half.f16.gflops /= 2;
  const Problem p = parse_problem(kOfEveryKind[0]);
  const Chip chip = Chip::of({info, 1, half}, p);
  EXPECT_EQ(chip.pace, 1);
  EXPECT_EQ(chip.multiprocessors, 66);
  EXPECT_EQ(Chip::of({info, 1}, p).pace, 1);
  EXPECT_EQ(Chip::of({info, 1}, p).memory, 1);
  half.copy_gbps *= 0.96;  // another of the same
  EXPECT_EQ(Chip::of({info, 1, half}, p).memory, 1);
  half.copy_gbps *= 0.9;
  EXPECT_LT(Chip::of({info, 1, half}, p).memory, 0.9);
}

}  // namespace
}  // namespace faltung::sm90
