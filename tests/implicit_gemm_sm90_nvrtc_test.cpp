// What NVRTC makes of Hopper's kernels uses the matrix units and spills nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/algorithms/sm90/form.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/problem/dtype.hpp"
#include "tests/machine_code.hpp"
#include "tests/sampling.hpp"
#include "tests/sm90_problems.hpp"

namespace faltung::sm90 {
namespace {

void expect_compiles_well(const Nvrtc& nvrtc, const Tiling& tiling, const Problem& problem,
                          PhaseOrder order = PhaseOrder::most_taps_first) {
  const KernelSource source = kernel_source(tiling, problem, order).whole();
  const Binary binary = nvrtc.compile(source, "sm_90a");
  EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << source.name;
  // Warnings of the assembler: matrix products made to wait for each other, registers not set. That it
  // ordered registers before a product itself (C7519) is none: an instruction a block, seen where 25 taps
  // stay.
  EXPECT_THAT(binary.log, testing::Not(testing::ContainsRegex("C75(0|1[0-8]|[2-9])"))) << source.name;
  // Each k-step of 32 bytes is an instruction of its own; there is at least one block's worth.
  const int steps = tiling.k_block * size_of(problem.dtype) / 32;
  const KernelConfig c = kernel_config(tiling, problem);
  const int products = c.parts == 2 ? 3 : 1;
  EXPECT_GE(count_instructions(binary.code, c.through_registers() ? kHgmma : kHgmmaOfShared),
            steps * tiling.m_blocks() * tiling.n_blocks() / tiling.groups * halves(c) * products)
      << source.name;
}

struct Compiled {
  Problem problem;
  Tiling tiling;
  PhaseOrder order = PhaseOrder::most_taps_first;
};

// A third of the problems, each in one of its tilings, and every kind of kernel: FALTUNG_TEST_FULL=1 compiles
// them all.
TEST(ImplicitGemmSm90, NvrtcCompilesEveryKindForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  std::vector<Compiled> all;
  std::vector<Problem> problems;
  for (const char* text : kProblems) problems.push_back(parse_problem(text));
  for (const char* text : kShifted) problems.push_back(parse_problem(text));
  for (const char* layout : {"nhwc", "nchw"}) {
    problems.push_back(folded(parse_problem("fwd:n2c3h64w64k64r7s7:st2:pad3:f16:" + std::string(layout) +
                                            ":bias:relu:maxpool3s2p1")));
    problems.push_back(deepened(parse_problem("fwd:n2c3h64w64k64r7s7:st2:pad3:f16:" + std::string(layout))));
  }
  for (const Problem& problem : problems) {
    for (const Tiling& tiling : tilings_of(problem)) all.push_back({problem, tiling});
  }
  for (const char* text : kBackward) {
    const Problem asked = parse_problem(text), problem = engine_problem(asked);
    for (const Tiling& tiling : tilings(asked, problem, kChip)) all.push_back({problem, tiling});
  }
  for (const auto& up : kUpsampling) {
    const Problem asked = as_asked(parse_problem(up.problem)).problem, problem = engine_problem(asked);
    for (const Tiling& tiling : tilings(asked, problem, kChip))
      all.push_back({problem, tiling, PhaseOrder::in_turn});
  }
  const auto kind_of = [](const Compiled& one) {
    return to_string(one.problem) + (one.tiling.bring == Bring::shift ? " shifted" : "");
  };
  for (const Compiled& one : sampling::draw(all, 0.33, "every kind", kind_of))
    expect_compiles_well(*nvrtc, one.tiling, one.problem, one.order);
  for (const auto& kind : kKinds) {
    const Problem problem = parse_problem(kind.problem);
    ASSERT_EQ(unfit(parse_tiling(kind.tiling), problem), "") << kind.tiling;
    expect_compiles_well(*nvrtc, parse_tiling(kind.tiling), problem);
  }
}

// Blocks that add up their sums wait for a count of bytes, not for all memory; but what warps turn is fenced
// for the matrix units.
TEST(ImplicitGemmSm90, ClustersAddUpWithoutAFenceOfMemory) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const struct {
    const char *problem, *tiling;
    int fences;
  } all[] = {{"fwd:n1c256h32w16k256r3s3:f16:nhwc", "im2col_bt128x64_k64_co_st8_sk4", 0},
             {"fwd:n32c512h14w14k512r3s3:st2:pad1:f16:nhwc", "im2col_bt256x128_k64_co_px_st4_sk4", 0},
             {"fwd:n1c256h32w16k256r3s3:f32:nchw:math=tf32", "lines_bt64x16x16_k16_co_px_st3_sk8", 0},
             {"fwd:n4c128h32w16k128r3s3:f32:nchw:math=tf32", "turned_bt128x8x10_k32_co_xs1_ws12_sk4", 1}};
  for (const auto& one : all) {
    const Problem problem = parse_problem(one.problem);
    const Tiling tiling = parse_tiling(one.tiling);
    expect_compiles_well(*nvrtc, tiling, problem);
    const Binary binary = nvrtc->compile(kernel_source(tiling, problem).whole(), "sm_90a");
    EXPECT_EQ(count_instructions(binary.code, kMembar), one.fences) << one.tiling;
  }
}

// The exact error function has a dozen selections a result.
TEST(ImplicitGemmSm90, GeluOfSixteenBitsIsTheQuickOne) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const auto text = [](const char* dtype) {
    const Problem p = parse_problem("fwd:n1c64h1w6272k256r1s1:nhwc:bias:gelu:" + std::string(dtype));
    return kernel_source(tilings_of(p).front(), p).whole().text;
  };
  for (const char* dtype : {"f16", "bf16"})
    EXPECT_THAT(text(dtype), testing::HasSubstr("quick_gelu(x, slope)"));
  EXPECT_THAT(text("f32"), testing::HasSubstr("activate_gelu(x, slope, 0.0f)"));
  const Problem p = parse_problem("fwd:n1c64h1w6272k256r1s1:nhwc:bias:gelu:f16");
  for (const Tiling& tiling : {tilings_of(p).front(), tilings_of(p).back()})
    expect_compiles_well(*nvrtc, tiling, p);
}

TEST(ImplicitGemmSm90, ACompileErrorNamesTheKernelAndShowsTheLog) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  KernelSource source;
  source.name = "broken/one";
  source.entry = "broken";
  source.text = "extern \"C\" __global__ void broken() { undeclared(); }";
  try {
    nvrtc->compile(source, "sm_90a");
    ADD_FAILURE() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::device_error);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("broken/one"), testing::HasSubstr("undeclared")));
  }
}

// Those that no kernel in front writes are in shared memory when it has ended. Of strides' phases none come
// so early.
TEST(ImplicitGemmSm90, WeightsAtRestComeBeforeTheWait) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const auto boxes_before = [&](const std::string& tiling, const Problem& problem) {
    const Binary binary = nvrtc->compile(kernel_source(parse_tiling(tiling), problem).whole(), "sm_90a");
    const std::vector<std::uint64_t> wait = find_instructions(binary.code, kWaitForPrevious);
    EXPECT_EQ(wait.size(), 1u) << tiling;
    const std::vector<std::uint64_t> boxes = find_instructions(binary.code, kLoadBox);
    return std::count_if(boxes.begin(), boxes.end(),
                         [&](std::uint64_t at) { return !wait.empty() && at < wait[0]; });
  };
  const struct {
    const char *problem, *tiling;
  } early[] = {{"fwd:n1c1024h14w14k256r1s1:f16:nhwc", "im2col_bt64x64_k64_pp_xs6_wres"},
               {"fwd:n1c1024h14w14k256r1s1:f16:nhwc", "im2col_bt64x64_k64_pp_st8"},
               {"fwd:n1c256h14w14k256r3s3:pad1:f16:nhwc", "patch_bt64x8x16_k64_co_px_xs1_ws12_sk4"},
               {"fwd:n1c64h16w16k64r1s1:f16:nchw", "planes_bt64x64_k64_pp_st8"}};
  for (const auto& [problem, tiling] : early)
    EXPECT_GT(boxes_before(tiling, parse_problem(problem)), 0) << problem << " " << tiling;
  const Problem strided = engine_problem(parse_problem("bwd_d:n2c64h16w16k64r3s3:st2:pad1:f16:nhwc"));
  EXPECT_EQ(boxes_before("patch_bt64x8x16_k64_pp_xs3_ws8_wx_ph4", strided), 0);
}

}  // namespace
}  // namespace faltung::sm90
