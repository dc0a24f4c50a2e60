// Every portable kernel's default config compiles for AMD's chips without spills; no GPU is needed, only
// clang-19 and ROCm's device library.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/backend/offline_compiler.hpp"
#include "tests/builder.hpp"

namespace faltung {
namespace {

class PortableAmdgcn : public testing::TestWithParam<const char*> {};

TEST_P(PortableAmdgcn, DefaultConfigsDoNotSpill) {
  std::shared_ptr<Device> device;
  try {
    device = make_offline_compiler(std::string("clang:") + GetParam());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  Builder builder(device);
  const char* const problems[] = {"fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:relu:maxpool2",
                                  "bwd_d:n32c64h56w56k128r3s3:pad1:st2:bf16:nchw",
                                  "bwd_w:n32c64h56w56k64r3s3:pad1:f16:nhwc",
                                  "fwd:n1c3h224w224k32r5s5:st2:pad0.1.2.1:bf16:nchw:silu",
                                  "fwd:n8c144h56w56k144r3s3:pad1:g144:f16:nhwc:hardswish",
                                  "fwd:n8c144h56w56k144r5s5:pad2:g144:f32:nchw",
                                  "bwd_d:n8c144h56w56k144r3s3:pad1:g144:f32:nhwc",
                                  "bwd_w:n8c144h56w56k144r3s3:pad1:g144:bf16:nchw"};
  int compiled = 0;
  const Target target = builder.target();
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    for (const char* text : problems) {
      const Problem p = parse_problem(text);
      if (!algorithm->supports(p, target).yes) continue;
      const Candidate candidate = algorithm->candidates(p, target).front();
      for (const jit::Program& kernel : builder.programs(candidate.recipe())) {
        EXPECT_EQ(kernel.resources.spilled_bytes, 0)
            << candidate.kernel() << " (" << kernel.entry << ") for " << text;
        EXPECT_GT(kernel.resources.registers, 0);
        EXPECT_GT(kernel.resources.waves, 0);
        if (candidate.registers > 0) {
          EXPECT_LE(kernel.resources.registers, candidate.registers)
              << candidate.kernel() << " (" << kernel.entry << ") for " << text;
        }
        // The limits that the cost model knows allow what the compiler says that the chip holds.
        const UnitLimits& unit = device->info().unit;
        const int step = unit.register_step;
        const int by_registers =
            unit.scheduler_registers / ((kernel.resources.registers + step - 1) / step * step);
        EXPECT_LE(kernel.resources.waves, std::min(unit.scheduler_waves, by_registers)) << kernel.entry;
        if (kernel.resources.limited_by == "registers") {
          EXPECT_EQ(kernel.resources.waves, by_registers) << kernel.entry;
        }
        ++compiled;
      }
    }
  }
  EXPECT_GT(compiled, 10);
  std::printf("%d kernels for %s\n", compiled, GetParam());
}

// What the cost model reckons with for the tiles of products is enough for what the compiler makes of them:
// every config, on a chip of each family.
TEST(PortableAmdgcnTiles, RegistersAreAsReckoned) {
  for (const char* chip : {"gfx1030", "gfx90a"}) {
    std::shared_ptr<Device> device;
    try {
      device = make_offline_compiler(std::string("clang:") + chip);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    Builder builder(device);
    const Problem p = parse_problem("fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:bias:relu");
    const Target target = builder.target();
    for (const char* name : {"implicit_gemm_gpu", "winograd_gpu"}) {
      const Algorithm& algorithm = find_algorithm(name);
      for (const Candidate& candidate : algorithm.candidates(p, target)) {
        int most = 0;
        for (const jit::Program& kernel : builder.programs(candidate.recipe())) {
          EXPECT_EQ(kernel.resources.spilled_bytes, 0) << chip << " " << candidate.kernel();
          most = std::max(most, kernel.resources.registers);
        }
        EXPECT_LE(most, candidate.registers) << chip << " " << candidate.kernel();
      }
    }
  }
}

// Of tiles that compute the same, the model takes on each chip one that leaves it waves.
TEST(PortableAmdgcnTiles, TheChoiceFollowsTheChip) {
  const Problem p = parse_problem("fwd:n32c128h56w56k128r3s3:pad1:f32:nchw");
  const auto waves = [&](const char* chip) {
    Builder builder(make_offline_compiler(std::string("clang:") + chip));
    const Candidate candidate = find_algorithm("implicit_gemm_gpu").candidates(p, builder.target()).front();
    int least = 1000;
    for (const jit::Program& kernel : builder.programs(candidate.recipe()))
      least = std::min(least, kernel.resources.waves);
    return std::pair{candidate.config, least};
  };
  try {
    const auto [rdna, rdna_waves] = waves("gfx1030");
    const auto [cdna, cdna_waves] = waves("gfx942");
    EXPECT_GE(rdna_waves, 4) << rdna;
    EXPECT_GE(cdna_waves, 2) << cdna;
    EXPECT_NE(rdna, cdna);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(UnitLimits, BlocksAndWaves) {
  const UnitLimits navi = unit_limits("AMD Radeon RX 6700 XT (radeonsi, navi22, LLVM 15.0.6, DRM 3.49)");
  EXPECT_EQ(navi.wave_threads, 32);
  EXPECT_EQ(navi.blocks(256, 130, 33280), 3);  // by local memory: a pair of units has 128 KiB
  EXPECT_EQ(navi.waves(256, 130, 33280), 6);
  EXPECT_EQ(navi.blocks(256, 257, 0), 0);
  const UnitLimits instinct = unit_limits("gfx90a:sramecc+:xnack-");
  EXPECT_EQ(instinct.wave_threads, 64);
  EXPECT_EQ(instinct.blocks(256, 217, 17152), 2);  // by registers
  EXPECT_EQ(instinct.waves(256, 217, 17152), 2);
  EXPECT_EQ(instinct.blocks(256, 256, 41984), 1);
  EXPECT_EQ(unit_limits("sm_90a").blocks(128, 240, 100 << 10), 2);
  EXPECT_FALSE(unit_limits("NVIDIA H200").known());
  EXPECT_FALSE(unit_limits("Intel(R) Arc(TM) A770 Graphics").known());
}

INSTANTIATE_TEST_SUITE_P(Chips, PortableAmdgcn, testing::Values("gfx1010", "gfx1030", "gfx90a", "gfx942"));

}  // namespace
}  // namespace faltung
