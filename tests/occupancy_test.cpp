// What a unit holds of a kernel: by the chip's limits, by a compiler's log, and by the CUDA driver where one
// is.
#include <gtest/gtest.h>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/compiler_log.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

TEST(Occupancy, TheScarcestResourceLimits) {
  const UnitLimits hopper = unit_limits("sm_90a");
  // 65536 registers: 168 of 128 threads allow 3 blocks, 12 of 64 warps.
  Residence r = hopper.residence(128, 168, 0);
  EXPECT_EQ(r.blocks, 3);
  EXPECT_EQ(r.waves, 3);
  EXPECT_DOUBLE_EQ(r.occupancy, 12.0 / 64);
  EXPECT_EQ(r.limited_by, "registers");
  // 228 KiB: 99 KiB and a reserved one of a block.
  r = hopper.residence(128, 128, 99 << 10);
  EXPECT_EQ(r.blocks, 2);
  EXPECT_EQ(r.limited_by, "local memory");
  EXPECT_EQ(hopper.residence(256, 32, 1 << 10).limited_by, "nothing");
  EXPECT_EQ(hopper.residence(256, 32, 1 << 10).occupancy, 1.0);
  // A block of one warp: 32 blocks are as many as there may be.
  r = hopper.residence(32, 32, 0);
  EXPECT_EQ(r.blocks, 32);
  EXPECT_DOUBLE_EQ(r.occupancy, 0.5);
  EXPECT_EQ(r.limited_by, "blocks");
  // What the driver says holds, whatever the limits would allow.
  r = hopper.residence(256, 32, 0, 5);
  EXPECT_EQ(r.blocks, 5);
  EXPECT_EQ(r.waves, 10);
  EXPECT_EQ(r.limited_by, "driver");
  // A GeForce of Ampere holds 16 blocks, Volta reserves nothing.
  EXPECT_EQ(unit_limits("sm_86").residence(32, 32, 0).blocks, 16);
  EXPECT_EQ(unit_limits("sm_70").residence(128, 64, 48 << 10).blocks, 2);
}

TEST(Occupancy, OfACompilersLog) {
  const std::string log =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'implicit_gemm' for 'sm_80'\n"
      "ptxas info    : Function properties for implicit_gemm\n"
      "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 128 registers, used 1 barriers, 8 bytes cumulative stack size, 16640 bytes smem, "
      "456 bytes cmem[0]\n";
  KernelResources r;
  read_ptxas_log(log, {"k", "", "implicit_gemm", {}, 128, 64 << 10}, unit_limits("sm_80"), r);
  EXPECT_EQ(r.registers, 128);
  EXPECT_EQ(r.spilled_bytes, 8);
  EXPECT_EQ(r.local_bytes, 16640);
  EXPECT_EQ(r.wave_threads, 32);
  EXPECT_EQ(r.blocks, 2);  // of 164 KiB, with 64 that the launch asks for
  EXPECT_EQ(r.limited_by, "local memory");
  // Without a block's size nothing is said of how many there are.
  KernelResources unknown;
  read_ptxas_log(log, {"k", "", "implicit_gemm", {}}, unit_limits("sm_80"), unknown);
  EXPECT_EQ(unknown.registers, 128);
  EXPECT_EQ(unknown.blocks, -1);
  KernelResources nothing;
  read_ptxas_log("", {"k", "", "implicit_gemm", {}, 128}, unit_limits("sm_80"), nothing);
  EXPECT_EQ(nothing.registers, -1);
}

// The driver's count is the one that the limits give, for each kernel of these problems.
TEST(Occupancy, TheDriverAgrees) {
  std::shared_ptr<Device> device;
  for (const auto& found : list_devices()) {
    if (found->info().id == "cuda:0") device = found;
  }
  if (device == nullptr || !device->info().has("nvrtc")) GTEST_SKIP() << "no CUDA device with NVRTC";
  Builder builder(device);
  const Target target = builder.target();
  int seen = 0;
  for (const char* text : {"fwd:n8c64h56w56k64r3s3:pad1:f16:nhwc", "fwd:n8c64h56w56k64r3s3:pad1:f32:nchw",
                           "bwd_w:n8c64h56w56k64r3s3:pad1:f32:nchw"}) {
    const Problem p = parse_problem(text);
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "gpu" || !algorithm->supports(p, target).yes) continue;
      const Candidate candidate = algorithm->candidates(p, target).front();
      for (const jit::Program& program : builder.programs(candidate.recipe())) {
        const KernelResources& r = program.resources;
        const std::string what = candidate.kernel() + " (" + program.entry + ") for " + text;
        EXPECT_GT(r.blocks, 0) << what;
        EXPECT_GT(r.occupancy, 0) << what;
        EXPECT_LE(r.occupancy, 1) << what;
        EXPECT_FALSE(r.limited_by.empty()) << what;
        EXPECT_NE(r.limited_by, "driver") << what;
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 5);
}

}  // namespace
}  // namespace faltung
