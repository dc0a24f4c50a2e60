// Volumes on Hopper's matrix units, as far as no GPU is needed: which planes of the input a plane of the
// output is the sum of, how the copy engine sees volumes, and which of them are computed as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "kernels/sm90/depths.h"
#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "tests/fake_device.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

Candidate first_candidate(const Problem& p) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  return find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1}).front();
}

std::vector<std::string> steps_of(const std::string& problem) {
  std::vector<std::string> names;
  for (const Step& step : first_candidate(parse_problem(problem)).recipe().steps) names.push_back(step.name);
  return names;
}

TEST(ImplicitGemmSm90Volume, TapsThatReachNoPlaneAreLeftOut) {
  for (int in = 1; in <= 6; ++in) {
    for (int taps = 1; taps <= 4; ++taps) {
      for (int pad = 0; pad <= 4; ++pad) {
        for (int stride = 1; stride <= 3; ++stride) {
          for (int dilation = 1; dilation <= 2; ++dilation) {
            const int out = (in + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
            if (in + 2 * pad < (taps - 1) * dilation + 1) continue;
            const Depth depth{in, out, pad, stride};
            for (int low = 0; low < out; ++low) {
              for (int high = low; high < out; ++high) {
                const Span span = taps_between(depth, low, high, taps, dilation);
                ASSERT_LE(0, span.first);
                ASSERT_LT(span.first, span.end);
                ASSERT_LE(span.end, taps);
                int met = 0;
                for (int tap = 0; tap < taps; ++tap) {
                  bool reaches = false;
                  for (int z = low; z <= high; ++z) {
                    const int plane = z * stride + tap * dilation - pad;
                    reaches = reaches || (plane >= 0 && plane < in);
                  }
                  met += reaches ? 1 : 0;
                  ASSERT_TRUE(!reaches || (span.first <= tap && tap < span.end)) << "a tap is missing";
                }
                if (low == high) {
                  ASSERT_EQ(span.end - span.first, std::max(1, met)) << "a tap too many";
                }
              }
              const Span all = taps_between(depth, low, out, taps, dilation);
              ASSERT_EQ(all.first, 0);
              ASSERT_EQ(all.end, taps);
            }
          }
        }
      }
    }
  }
}

// Two planes, each with two of three taps: a third of the products is not made, nor counted.
TEST(ImplicitGemmSm90Volume, WhatIsLeftOutIsNotCounted) {
  const Problem p = parse_problem("fwd:n8c512d2h7w7k512t3r3s3:pad1:bf16:nhwc");
  EXPECT_DOUBLE_EQ(depths_met(parse_tiling("patch_bt64x8x7_k64_pp_xs2_ws8"), p), 2);
  EXPECT_DOUBLE_EQ(depths_met(parse_tiling("im2col_bt128x256_k64_co_st3"), p), 3);
  const Problem wider = parse_problem("fwd:n8c256d4h14w14k256t3r3s3:pad1:bf16:nhwc");
  EXPECT_DOUBLE_EQ(depths_met(parse_tiling("im2col_bt128x64_k64_co_st4"), wider), 2.5);
  const Problem plane = parse_problem("fwd:n8c512h7w7k512r3s3:pad1:bf16:nhwc");
  EXPECT_DOUBLE_EQ(depths_met(parse_tiling("im2col_bt128x256_k64_co_st3"), plane), 1);
}

TEST(ImplicitGemmSm90Volume, TheCopyEngineSeesFiveDimensions) {
  const Problem p = parse_problem("fwd:n2c72d5h9w8k64t3r3s3:st2x1x1:pad1x0x2:dil1x2x1:bf16:nhwc");
  const auto patch = std::get<TiledMap>(x_map(parse_tiling("patch_bt64x8x8_k64_pp_xs2_ws8"), p));
  EXPECT_EQ(patch.rank, 5);
  EXPECT_THAT(patch.size, testing::ElementsAre(72, 8, 9, 5, 2));
  EXPECT_THAT(patch.stride_bytes, testing::ElementsAre(144, 144 * 8, 144 * 72, 144 * 360));
  EXPECT_THAT(patch.box, testing::ElementsAre(64, 10, 12, 1, 1));
  const auto gathered = std::get<Im2colMap>(x_map(parse_tiling("im2col_bt64x64_k64_pp_st4"), p));
  EXPECT_EQ(gathered.rank, 5);
  EXPECT_THAT(gathered.size, testing::ElementsAre(72, 8, 9, 5, 2));
  EXPECT_THAT(gathered.lower, testing::ElementsAre(-2, 0, -1));
  EXPECT_THAT(gathered.upper, testing::ElementsAre(0, -4, -1));
  EXPECT_THAT(gathered.step, testing::ElementsAre(1, 1, 2));
  // The output's planes are images to the copy engine.
  const auto y = std::get<TiledMap>(y_map(parse_tiling("patch_bt64x8x8_k64_pp_xs2_ws8"), p));
  EXPECT_EQ(y.rank, 4);
  EXPECT_EQ(y.size[3], 2 * p.z());
  const Problem rows = parse_problem("fwd:n2c64d5h9w16k64t3r3s3:pad1:bf16:nchw");
  const auto windows = std::get<TiledMap>(x_map(parse_tiling("shift_bt64x16x8_k64_co_xs2_ws8"), rows));
  EXPECT_EQ(windows.rank, 5);
  EXPECT_THAT(windows.size, testing::ElementsAre(16, 64, 9, 5, 2));
  EXPECT_THAT(windows.stride_bytes, testing::ElementsAre(16 * 9 * 5 * 2, 32, 32 * 9, 64 * 16 * 9 * 5 * 2));
}

TEST(ImplicitGemmSm90Volume, NothingIsCopiedOfWhatTheCopyEngineReaches) {
  const char* const kernel = "implicit_gemm";
  for (const char* problem :
       {"fwd:n2c64d8h56w56k64t3r3s3:pad1:bf16:nhwc:bias:relu", "fwd:n2c64d8h56w56k128t1r1s1:st2:f16:nhwc",
        "fwd:n1c64d8h64w64k64t3r3s3:pad1:f16:nchw", "fwd:n1c64d8h64w64k64t1r3s3:pad0x1x1:f16:nchw",
        "fwd:n2c64d8h56w56k128t3r1s1:pad1x0x0:bf16:nhwc", "fwd:n2c64d8h56w56k128t1r3s3:pad0x1x1:bf16:nhwc",
        "bwd_d:n2c64d8h16w16k64t3r3s3:pad1:f16:nhwc", "bwd_d:n2c64d8h16w16k64t3r3s3:st2:pad1:f16:nhwc",
        "n1c64d8h16w16k64t2r2s2:transposed:st2:f16:nhwc"})
    EXPECT_THAT(steps_of(problem), testing::ElementsAre(kernel)) << problem;
  // Of a 1x1x1 filter's strides the pixels that they take are turned; planes that are no rows of 16 bytes
  // all.
  EXPECT_THAT(steps_of("fwd:n2c64d8h16w16k128t1r1s1:st2:f16:nchw"),
              testing::ElementsAre("input to NHWC", kernel));
  EXPECT_THAT(steps_of("fwd:n2c64d8h14w14k64t3r3s3:pad1:f16:nchw"),
              testing::ElementsAre("input to NHWC", kernel));
  EXPECT_THAT(steps_of("fwd:n2c3d8h32w32k64t3r7s7:st1x2x2:pad1x3x3:bf16:nchw"),
              testing::ElementsAre("space to depth of input", kernel));
  // Few channels without strides are made more of by the taps in depth; filters beyond the copy engine's
  // reach come as images.
  for (const char* problem :
       {"fwd:n2c3d8h32w32k64t3r3s3:pad1:bf16:nhwc", "fwd:n1c64d40h8w8k64t3r3s3:dil17x1x1:pad17x1x1:f16:nhwc"})
    EXPECT_THAT(steps_of(problem), testing::Contains("gather x")) << problem;
}

TEST(ImplicitGemmSm90Volume, BackwardDataOfStride1IsForward) {
  const Problem p = parse_problem("bwd_d:n2c64d8h16w15k32t3r5s2:pad1.2.0.1.1.0:dil1x1x2:f16:nhwc");
  const Problem engine = engine_problem(p);
  EXPECT_EQ(to_string(engine), "fwd:n2c32d9h13w14k64t3r5s2:pad1.0.4.3.1.2:dil1x1x2:f16:nhwc");
  EXPECT_EQ(engine.z(), p.d);
  EXPECT_EQ(engine.p(), p.h);
  EXPECT_EQ(engine.q(), p.w);
}

TEST(ImplicitGemmSm90Volume, OtherWaysSayThatTheyKnowNoDepth) {
  const Problem nchw = parse_problem("fwd:n2c64d8h16w16k64t3r3s3:pad1:f16:nchw");
  for (const char* tiling :
       {"turned_bt64x8x16_k64_pp_xs2_ws5", "planes_bt64x128_k64_pp_st4", "fetch_bt128x96_k64_co_st4"})
    EXPECT_THAT(unfit(parse_tiling(tiling), nchw), testing::HasSubstr("volumes")) << tiling;
  const Problem far = parse_problem("fwd:n1c64d40h8w8k64t3r3s3:dil9x1x1:pad9x1x1:f16:nhwc");
  EXPECT_THAT(unfit(parse_tiling("im2col_bt64x64_k64_pp_st4"), far), testing::HasSubstr("up to 16"));
  // All of the filter's weights, or a window's blocks, at once.
  const Problem p = parse_problem("fwd:n2c64d8h16w16k64t3r3s3:pad1:f16:nhwc");
  EXPECT_THAT(unfit(parse_tiling("shift_bt64x16x8_k64_pp_xs2_wres"), nchw), testing::HasSubstr("one block"));
  EXPECT_THAT(unfit(parse_tiling("patch_bt64x8x8_k64_pp_xs1_ws8"), p), testing::HasSubstr("too few buffers"));
}

}  // namespace
}  // namespace faltung::sm90
