// What can be known of Hopper's kernels without a GPU: names parse back, tilings keep within the chip's
// limits, and what NVRTC makes of them uses the matrix units and spills nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/list.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/reference.hpp"
#include "tests/machine_code.hpp"
#include "tests/sampling.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

constexpr Chip kChip{132};

std::vector<Tiling> tilings_of(const Problem& problem) { return tilings(problem, kChip); }

const char* const kProblems[] = {
    "fwd:n128c64h256w256k64r3s3:pad1:f16:nhwc:bias:relu",
    "fwd:n2c64h33w35k64r3s3:pad1:bf16:nhwc:bias:residual:gelu",
    "fwd:n2c1280h32w32k1280r3s3:pad1:f16:nhwc",
    "fwd:n32c256h14w14k1024r1s1:f16:nhwc:bias:relu",
    "fwd:n32c128h28w28k128r3s3:st2:pad1:bf16:nhwc",
    "fwd:n1c128h64w64k3r3s3:pad1:f16:nhwc:bias",
    "fwd:n2c64h32w32k64r3s3:pad1:f16:nchw:residual:relu",
    "fwd:n2c64h32w32k128r3s3:pad1:f16:nchw:bias:maxpool2",
    "fwd:n2c64h32w32k128r3s3:pad1:bf16:nhwc:avgpool2",
    "fwd:n2c64h32w32k128r3s3:pad1:f16:nhwc:bias:relu:maxpool3s2p1",
    "fwd:n2c64h32w32k64r3s3:pad1:bf16:nchw:silu:avgpool3s2",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nhwc:bias:relu",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nchw:residual",
    "fwd:n2c64h32w32k64r3s3:pad1:f32:nhwc:math=tf32:maxpool2",
    "fwd:n2c640h32w32k1280r1s1:f16:nchw:bias",
    "fwd:n4c3h64w64k64r7s7:st2:pad3:f16:nhwc",
    "fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32:bias:residual",
    "fwd:n1c256h32w16k256r3s3:f32:nchw:bias",
    "fwd:n1c256h32w16k250r3s3:bf16:nhwc:residual",
    "fwd:n2c640h128w128k320r1s1:f16:nhwc:bias:relu",
    "fwd:n1c256h224w224k256r3s3:f32:nhwc:math=tf32",
    "fwd:n32c1024h14w14k256r1s1:f16:nchw:bias:relu",
    "fwd:n32c512h7w7k2048r1s1:f16:nchw:bias:residual:relu",
    "fwd:n32c256h56w56k512r1s1:st2:bf16:nchw",
    "fwd:n32c512h7w7k512r3s3:pad1:f16:nchw:bias:residual",
    "fwd:n32c256h28w28k256r3s3:st2:pad1:bf16:nchw:bias:relu",
    "fwd:n2c64d8h56w56k64t3r3s3:pad1:bf16:nhwc:bias:relu",
    "fwd:n8c128d8h28w28k256t3r3s3:st2:pad1:f16:nhwc:residual",
    "fwd:n8c128d4h14w14k128t3r3s3:pad1:bf16:nchw:bias",
    "fwd:n32c128h56w56k128r3s3:pad1:g8:f16:nhwc:bias:relu",
    "fwd:n32c128h56w56k128r3s3:pad1:g2:f16:nchw",
    "fwd:n32c1024h7w7k1024r3s3:pad1:g16:f16:nchw:residual",
    "fwd:n2c96h15w13k192r3s3:pad1:g6:f16:nhwc:residual",
    "fwd:n2c64h16w16k64r3s3:pad1:g8:f32:nhwc:math=tf32:bias",
};

// Kinds that few problems have.
const struct {
  const char *problem, *tiling;
} kKinds[] = {
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32:bias:residual", "patch_bt64x8x16_k32_co_px_xs1_ws12_sk8"},
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=f32", "im2col_bt128x64_k32_co_st4_sk4"},
    {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=f32:gelu", "im2col_bt128x128_k32_co_st3_sk8"},
    {"fwd:n1c256h32w16k256r3s3:f32:nchw:math=tf32:residual", "turned_bt128x16x4_k32_co_xs1_ws8_rs1_sk8"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nchw:math=tf32:bias", "turned_bt64x16x16_k32_pp_xs2_ws12"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nchw:math=f32:residual", "turned_bt64x8x16_k32_pp_xs2_ws4"},
    {"fwd:n1c256h32w16k256r3s3:f32:nchw:math=f32:bias", "patch_bt128x8x8_k32_co_xs1_ws6_sk8"},
    {"fwd:n1c256h32w16k250r3s3:bf16:nhwc:residual", "im2col_bt64x128_k64_co_px_st8_sk4"},
    {"fwd:n1c256h32w16k256r3s3:f16:nchw:bias:gelu", "im2col_bt128x128_k64_co_st6_sk2"},
    {"fwd:n1c256h224w224k256r3s3:f32:nhwc:math=tf32:residual", "patch_bt128x16x16_k32_co_xs2_ws8_ds"},
    {"fwd:n32c1024h14w14k256r1s1:f16:nhwc:bias:residual", "im2col_bt256x96_k64_co_st4"},
    {"fwd:n32c64h56w56k256r1s1:f16:nhwc:bias:residual:relu", "im2col_bt128x192_k64_co_xs4_wres_ra2"},
    {"fwd:n32c64h56w56k256r1s1:f16:nhwc:biasf32:residual:relu", "im2col_bt64x256_k64_pp_xs2_wres_ra2"},
    {"fwd:n32c512h7w7k2048r1s1:bf16:nhwc:bias:residual:relu", "im2col_bt128x128_k64_co_px_st4_ra2"},
    {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:residual:gelu", "patch_bt64x8x16_k64_pp_xs2_wres_ra2"},
    {"fwd:n32c256h56w56k128r1s1:f16:nchw:residual:relu", "planes_bt128x128_k64_pp_px_xs2_wres_ra2"},
    {"fwd:n2c64h256w256k64r3s3:pad1:f32:nhwc:math=tf32:bias", "patch_bt64x8x24_k32_pp_xs2_wres_ds"},
    {"fwd:n2c640h128w128k320r1s1:f16:nhwc:bias:relu", "im2col_bt160x256_k64_co_px_st3_us2"},
    {"fwd:n2c64h33w35k64r3s3:st2x1:pad1:f16:nhwc", "patch_bt64x8x16_k64_pp_xs2_ws8"},
    {"fwd:n2c960h128w128k320r1s1:f16:nchw:bias:residual", "planes_bt160x128_k64_co_px_st5"},
    {"fwd:n2c960h128w128k320r1s1:bf16:nchw:bias:gelu", "planes_bt160x128_k64_co_px_st5"},
    {"fwd:n32c256h56w56k128r1s1:f16:nchw:residual:relu", "planes_bt128x128_k64_pp_px_xs6_wres"},
    {"fwd:n1c512h512w512k256r1s1:bf16:nchw:residual", "planes_bt128x256_k64_co_st3"},
    {"fwd:n32c512h28w28k256r1s1:f16:nchw:bias:residual", "planes_bt256x128_k64_co_px_st3"},
    {"fwd:n2c640h128w128k320r1s1:f16:nchw:bias:residual:silu", "planes_bt160x128_k64_pp_px_st4"},
    {"fwd:n32c512h7w7k2048r1s1:f16:nchw:bias:residual:gelu", "fetch_bt256x104_k64_co_st3"},
    {"fwd:n32c1024h7w7k2048r1s1:f16:nchw:bias:residual:gelu", "im2col_bt256x104_k64_co_st3"},
    {"fwd:n32c256h14w14k256r3s3:pad1:f16:nchw:bias:gelu", "turned_bt64x16x14_k64_pp_xs2_ws6_rs2"},
    {"fwd:n2c256h14w14k256r3s3:pad1:f16:nchw:bias", "turned_bt128x8x7_k64_co_xs2_ws4_rs2_sk2"},
    {"fwd:n32c512h7w7k512r3s3:pad1:bf16:nchw:gelu", "turned_bt128x8x7_k64_co_xs2_ws10_rs2"},
    {"fwd:n32c128h28w28k128r3s3:pad1:f16:nchw", "turned_bt128x32x7_k32_co_xs2_ws11_rs2"},
    {"fwd:n32c2048h7w7k512r1s1:f16:nchw", "fetch_bt128x104_k64_co_st4_sk2"},
    {"fwd:n32c1024h14w14k512r1s1:f16:nchw:bias:residual:gelu", "fetch_bt128x96_k64_co_st4"},
    {"fwd:n32c512h28w28k1024r1s1:st2:f16:nchw:bias", "fetch_bt256x96_k64_co_st3"},
    {"fwd:n32c256h56w56k512r1s1:st2:f16:nchw:bias:residual:gelu", "fetch_bt256x128_k64_co_st3"},
    {"fwd:n32c256h14w14k256r3s3:pad1:f16:nchw:bias:gelu", "turned_bt64x16x14_k64_pp_xs2_ws10"},
    {"fwd:n32c128h56w56k128r3s3:st2:pad1:f16:nchw:bias:residual", "turned_bt128x16x7_k64_co_xs2_ws4"},
    {"fwd:n2c64h14w14k64r3s3:pad1:f16:nchw:bias:maxpool2", "turned_bt64x16x16_k64_pp_xs2_ws8"},
    {"fwd:n32c128h56w56k128r3s3:pad1:g8:f16:nhwc", "patch_bt64x8x16_k64_pp_px_xs6_wres_gt4"},
    {"fwd:n32c256h56w56k256r3s3:st2:pad1:g8:f16:nhwc", "im2col_bt64x128_k64_co_px_xs8_wres_gt2"},
    {"fwd:n32c256h56w56k256r3s3:st2:pad1:g4:f16:nchw", "turned_bt64x8x7_k64_pp_xs2_wres"},
};

// What NCHW as it is serves, by shifted sums.
const char* const kShifted[] = {
    "fwd:n128c64h256w256k64r3s3:pad1:f16:nchw:bias:relu",
    "fwd:n1c256h224w224k256r3s3:f16:nchw:bias:residual",
    "fwd:n2c1280h32w32k1280r3s3:pad1:bf16:nchw:bias",
    "fwd:n1c4h128w128k512r3s3:pad1:f16:nchw",
    "fwd:n2c64h64w64k64r3s3:pad1:bf16:nchw:bias:avgpool2",
    "fwd:n2c24h20w72k64r5s5:pad2:f16:nchw",
    "fwd:n2c64h64w256k64r3s3:pad1:f16:nchw:bias:residual:relu",
    "fwd:n2c64h64w64k128r3s3:pad1:bf16:nchw:residual",
    "fwd:n1c64d8h64w64k64t3r3s3:pad1:bf16:nchw:bias",
    "fwd:n32c128h56w56k128r3s3:pad1:g2:f16:nchw",
};

// With strides, and with the filter as it is.
const char* const kBackward[] = {
    "bwd_d:n32c128h56w56k128r3s3:st2:pad1:f16:nhwc",
    "bwd_d:n32c256h28w28k256r3s3:st2:pad1:bf16:nchw",
    "bwd_d:n32c256h56w56k512r1s1:st2:f16:nhwc",
    "bwd_d:n2c64h33w31k48r5s5:st1x2:pad0.1.2.1:f16:nchw",
    "bwd_d:n2c64h24w24k64r3s3:st2:pad1:f32:nhwc",
    "bwd_d:n2c64h24w24k64r3s3:st2:dil2:pad2:f32:nchw:math=tf32",
    "bwd_d:n128c64h64w64k64r3s3:pad1:f16:nhwc",
    "bwd_d:n32c256h28w28k512r1s1:f16:nchw",
    "bwd_d:n2c64d8h17w16k64t3r3s3:st2:pad1:bf16:nhwc",
    "bwd_d:n1c64d9h16w16k72t2r2s2:st2:f32:nchw:math=tf32",
    "bwd_d:n32c256h56w56k256r3s3:st2:pad1:g16:f16:nhwc",
    "bwd_d:n32c128h28w28k128r3s3:pad1:f16:nhwc:drelu",
    "bwd_d:n32c128h28w28k128r3s3:pad1:bf16:nchw:drelu",
    "bwd_d:n2c64h24w24k64r3s3:pad1:f32:nhwc:math=tf32:drelu",
};

// Transposed ones, of which as many phases are left where pixels side by side are channels.
const struct {
  const char* problem;
  int phases, repeats;
} kUpsampling[] = {
    {"fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nhwc:bias", 2, 2},
    {"fwd:n8c1024h32w32k512r2s2:transposed:st2:bf16:nhwc:bias:relu", 2, 2},
    {"fwd:n1c64h8w10k48r3s4:transposed:st3x4:f16:nhwc:bias", 3, 4},
    {"fwd:n2c256h13w11k128r4s4:transposed:st2:pad1:f16:nhwc:bias:relu", 4, 1},
    {"fwd:n2c64h9w9k16r2s2:transposed:st2:f32:nhwc:math=tf32:bias", 2, 2},
};

TEST(ImplicitGemmSm90, NamesParseBack) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    const std::vector<Tiling> all = tilings_of(problem);
    ASSERT_FALSE(all.empty()) << text;
    std::set<std::string> names;
    for (const Tiling& tiling : all) {
      const std::string name = to_string(tiling);
      EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
      EXPECT_EQ(to_string(parse_tiling(name)), name);
      EXPECT_EQ(unfit(parse_tiling(name), problem), "") << name;
      EXPECT_EQ(shared_bytes(parse_tiling(name), problem), shared_bytes(tiling, problem)) << name;
    }
  }
}

TEST(ImplicitGemmSm90, OtherNamesAreRefusedWithTheForm) {
  for (const char* name :
       {"", "patch", "patch_bt64x8x32_k64_pp_xs2", "im2col_bt64x256_k64_xx_st4", "m14n2_k64",
        "patch_64x8x32_k64_pp_s2_w8", "patch_bt64x8x32_k64_pp_xs2_ws9 ", "patch_bt64x8x32_k64_pp_xs02_ws9",
        "im2col_bt64x256_k64_co_xs4", "im2col_bt64x256x1_k64_co_st4", "im2col_bt64x256_k64_co_st4_wres",
        "patch_bt64x8x32_k64_pp_st4", "patch_bt64x8x32_k64_pp_xs2_wres_ws9",
        "patch_bt64x8x32_k64_pp_xs2_ws9_sk1", "patch_bt99999999999x8x32_k64_pp_xs2_ws9"}) {
    try {
      parse_tiling(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      EXPECT_THAT(error.what(), testing::HasSubstr("looks like")) << name;
    }
  }
}

TEST(ImplicitGemmSm90, AnUnfitTilingSaysWhichLimitItBreaks) {
  const Problem strided = parse_problem("fwd:n1c64h32w32k64r3s3:st2:pad1:f16:nhwc");
  EXPECT_THAT(unfit(parse_tiling("patch_bt64x8x32_k64_pp_xs2_ws8"), strided), testing::HasSubstr("stride 1"));
  const Problem plain = parse_problem("fwd:n1c64h32w32k64r3s3:pad1:f16:nhwc");
  EXPECT_EQ(unfit(parse_tiling("patch_bt64x8x32_k64_pp_xs2_ws8"), plain), "");
  EXPECT_THAT(unfit(parse_tiling("patch_bt64x8x32_k64_pp_xs4_ws8"), plain),
              testing::HasSubstr("shared memory"));
  EXPECT_THAT(unfit(parse_tiling("patch_bt128x8x32_k64_pp_xs2_ws4"), plain), testing::HasSubstr("registers"));
  EXPECT_THAT(unfit(parse_tiling("patch_bt96x8x16_k64_pp_xs2_ws4"), plain), testing::HasSubstr("64"));
}

TEST(ImplicitGemmSm90, TilingsKeepWithinTheChip) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    for (const Tiling& t : tilings_of(problem)) {
      EXPECT_LE(shared_bytes(t, problem), 232448) << to_string(t);
      const bool many =
          t.store_slots > 0 || (t.bring == Bring::planes && t.pixels_on_m() && !t.cooperative());
      EXPECT_LE(t.sums(), many ? 160 : 128) << to_string(t) << ": sums a thread";
      const Estimate e = estimate(t, problem, kChip);
      EXPECT_GT(e.ms, 0);
      EXPECT_NE(e.bound, Bound::unknown);
    }
  }
}

TEST(ImplicitGemmSm90, FewChannelsFold) {
  const Problem stem = parse_problem("fwd:n2c3h224w224k64r7s7:st2:pad3:f16:nhwc");
  ASSERT_TRUE(folds(stem));
  const Problem inner = folded(stem);
  EXPECT_EQ(inner.p(), stem.p());
  EXPECT_EQ(inner.q(), stem.q());
  EXPECT_EQ(inner.c, 21);
  EXPECT_EQ(padded_channels(inner), 24);
  EXPECT_FALSE(tilings_of(inner).empty());
  // Folded rows need no horizontal stride, so that patches serve, and with them pools.
  const Problem pooled = parse_problem("fwd:n2c3h224w224k64r7s7:st2:pad3:f16:nhwc:bias:relu:maxpool3s2p1");
  EXPECT_TRUE(tilings_of(pooled).empty());
  EXPECT_FALSE(tilings_of(folded(pooled)).empty());
  EXPECT_FALSE(folds(parse_problem("fwd:n2c64h56w56k64r3s3:pad1:f16:nhwc")));
  EXPECT_FALSE(folds(parse_problem("fwd:n2c3h56w56k64r1s1:f16:nhwc")));
}

// A sequence is one line, which one block of threads folds.
TEST(ImplicitGemmSm90, FewLinesTakeLongerToFold) {
  EXPECT_GT(few_lines_ms(8e6, 8), 0.1);
  EXPECT_LT(few_lines_ms(8e6, 32), few_lines_ms(8e6, 8) / 3);
  EXPECT_EQ(few_lines_ms(8e6, 32 * 224), 0);
}

TEST(ImplicitGemmSm90, FewChannelsWithStridesAreTakenFromSpaceToDepth) {
  const Problem stem = parse_problem("fwd:n2c3h224w224k64r7s7:st2:pad3:f16:nhwc:bias:relu:maxpool3s2p1");
  ASSERT_TRUE(deepens(stem));
  const Problem inner = deepened(stem);
  EXPECT_EQ(to_string(inner), "fwd:n2c12h115w115k64r4s4:f16:nhwc:bias:relu:maxpool3s2p1");
  EXPECT_EQ(inner.p(), stem.p());
  EXPECT_EQ(inner.q(), stem.q());
  EXPECT_FALSE(tilings_of(inner).empty());
  const Problem odd = parse_problem("fwd:n2c4h35w33k40r5s3:st3x2:pad1.2.0.1:f16:nchw");
  ASSERT_TRUE(deepens(odd));
  EXPECT_EQ(deepened(odd).c, 24);
  EXPECT_EQ(deepened(odd).r, 2);
  EXPECT_EQ(deepened(odd).s, 2);
  EXPECT_EQ(deepened(odd).p(), odd.p());
  EXPECT_EQ(deepened(odd).q(), odd.q());
  for (const char* other :
       {"fwd:n2c3h56w56k64r3s3:pad1:f16:nhwc", "fwd:n2c9h56w56k64r3s3:st2:f16:nhwc",
        "fwd:n2c3h56w56k64r3s3:st2:dil2:f16:nhwc", "fwd:n2c3h56w56k64r1s1:st2:f16:nhwc",
        "fwd:n2c8h56w56k64r4s4:st4:f16:nhwc", "fwd:n400000000c1h4w4k8r3s3:st2:pad1:f16:nhwc"}) {
    EXPECT_FALSE(deepens(parse_problem(other))) << other;
  }
}

// A product wants 16 channels of 16 bits, in tiles of several groups; or 64, in tiles of one.
TEST(ImplicitGemmSm90, GroupsOfFewChannelsAreMerged) {
  const auto merged = [](const char* problem) { return merges(parse_problem(problem)); };
  EXPECT_EQ(merged("fwd:n1c128h8w8k128r3s3:g1:f16:nhwc"), std::vector{1});
  EXPECT_EQ(merged("fwd:n1c128h8w8k128r3s3:g32:f16:nhwc"), (std::vector{4, 16}));
  EXPECT_EQ(merged("fwd:n1c256h8w8k256r3s3:g32:f16:nhwc"), (std::vector{2, 8}));
  EXPECT_EQ(merged("fwd:n1c512h8w8k512r3s3:g32:f16:nhwc"), (std::vector{1, 4}));
  EXPECT_EQ(merged("fwd:n1c1024h8w8k1024r3s3:g32:f16:nhwc"), (std::vector{1, 2}));
  EXPECT_EQ(merged("fwd:n1c1024h8w8k1024r3s3:g16:f16:nhwc"), std::vector{1});
  EXPECT_EQ(merged("fwd:n1c512h8w8k512r3s3:g2:f16:nhwc"), std::vector{1});
  EXPECT_EQ(merged("fwd:n1c64h8w8k64r3s3:g16:f32:nhwc:math=tf32"), (std::vector{2, 16}));
  EXPECT_EQ(merged("fwd:n1c96h8w8k192r3s3:g12:f16:nchw"), (std::vector{2, 4}));
  EXPECT_EQ(merged("fwd:n1c12h8w8k18r3s3:g3:f16:nhwc"), std::vector{3});  // all as one, and padded
  EXPECT_TRUE(merged("fwd:n1c404h8w8k404r3s3:g4:f16:nhwc").empty());      // mostly zeros
}

// Merged to one group or not: what the filter lacks between them is nowhere in memory.
TEST(ImplicitGemmSm90, AFilterOfGroupsIsPacked) {
  for (const char* text :
       {"bwd_d:n2c64h14w14k64r3s3:pad1:g16:f16:nhwc", "bwd_d:n2c128h15w14k128r3s3:st2:pad1:g2:bf16:nchw"}) {
    const Problem asked = parse_problem(text);
    for (const i64 merged : {i64{1}, asked.groups / 2, asked.groups}) {
      const Problem engine = merge_groups(unchanged(engine_problem(asked)), merged).inner;
      for (const Tiling& t : tilings(asked, engine, kChip)) EXPECT_FALSE(t.filter_as_it_is()) << to_string(t);
    }
    EXPECT_FALSE(
        tilings(asked, merge_groups(unchanged(engine_problem(asked)), asked.groups).inner, kChip).empty());
  }
}

TEST(ImplicitGemmSm90, ATileIsOfOneGroupOrOfWholeOnes) {
  const Problem four = parse_problem("fwd:n32c128h56w56k128r3s3:pad1:g8:f16:nhwc");  // of 16 channels
  std::size_t several = 0;
  for (const Tiling& t : tilings_of(four)) {
    if (t.groups == 1) continue;
    ++several;
    EXPECT_EQ(t.channels, 16 * t.groups) << to_string(t);
    EXPECT_EQ(t.k_block, t.channels) << to_string(t);
    EXPECT_EQ(t.n(), 16) << to_string(t);
    EXPECT_EQ(channel_blocks(t, four), 1) << to_string(t);
  }
  EXPECT_GT(several, 0u);
  const Problem two = parse_problem("fwd:n32c128h56w56k128r3s3:pad1:g2:f16:nhwc");  // of 64
  for (const Tiling& t : tilings_of(two)) EXPECT_EQ(t.channels, 64) << to_string(t);
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"patch_bt64x8x16_k64_pp_px_xs6_wres_gt4", "fwd:n1c128h56w56k128r3s3:pad1:f16:nhwc", "no groups"},
      {"patch_bt64x8x16_k64_pp_px_xs6_wres_gt2", "fwd:n1c128h56w56k128r3s3:pad1:g8:f16:nhwc", "whole groups"},
      {"patch_bt64x8x32_k64_pp_xs2_wres_gt4", "fwd:n1c128h56w56k128r3s3:pad1:g8:f16:nhwc", "pixels on M"},
      {"patch_bt128x8x8_k64_pp_xs2_ws8", "fwd:n1c128h56w56k128r3s3:pad1:g2:f16:nhwc", "one group"},
      {"patch_bt64x8x8_k64_pp_xs2_ws8", "fwd:n1c64h56w56k128r3s3:pad1:g2:f16:nhwc", "of one group"},
      {"patch_bt64x8x8_k64_pp_xs2_ws8", "fwd:n1c8h56w56k128r3s3:pad1:g2:f16:nhwc", "16 bytes"},
      {"fetch_bt64x64_k64_pp_st4", "fwd:n1c128h7w7k128r1s1:g2:f16:nchw", "no groups"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
}

// By the block that wastes least, which is best where bytes are the bound, and by whole rows of 128 bytes,
// which are best where many blocks are summed up.
TEST(ImplicitGemmSm90, ChannelsThatFillNoRowAreTakenByTwoBlocks) {
  const auto blocks = [](const char* problem) {
    std::set<int> found;
    for (const Tiling& t : tilings_of(parse_problem(problem))) found.insert(t.k_block);
    return found;
  };
  EXPECT_EQ(blocks("fwd:n8c528h14w14k88r1s1:f16:nhwc"), (std::set{16, 64}));
  EXPECT_EQ(blocks("fwd:n8c144h14w14k88r3s3:pad1:math=tf32:nhwc"), (std::set{16, 32}));
  EXPECT_EQ(blocks("fwd:n8c512h14w14k88r1s1:f16:nhwc"), std::set{64});
  EXPECT_EQ(blocks("fwd:n8c96h14w14k96r3s3:pad1:g2:f16:nhwc"),
            std::set{16});  // no block has two groups' channels
}

TEST(ImplicitGemmSm90, GatheredTilesMayBeWholeImages) {
  const Problem p = parse_problem("fwd:n5c64h7w7k72r3s3:pad1:f16:nchw:bias");
  std::size_t found = 0;
  for (const Tiling& t : tilings_of(p)) {
    if (t.bring != Bring::im2col || !whole_images(t, p)) continue;
    ++found;
    EXPECT_EQ(step(t, p) % 49, 0) << to_string(t);
    EXPECT_GT(step(t, p) + 8, t.pixels()) << to_string(t);
  }
  EXPECT_GT(found, 0u);
  // No more than fit, one of the copy engine's stores, and no sum that other blocks share.
  EXPECT_EQ(tiles(parse_tiling("im2col_bt128x104_k64_co_st4"), p), 3);  // of two images
  EXPECT_EQ(tiles(parse_tiling("im2col_bt128x128_k64_co_st4"), p), 2);  // of 128 pixels
  EXPECT_FALSE(whole_images(parse_tiling("im2col_bt128x104_k64_co_st4_sk2"), p));
  Problem nhwc = p;
  nhwc.layout = Layout::nhwc;
  EXPECT_FALSE(whole_images(parse_tiling("im2col_bt128x104_k64_co_st4"), nhwc));
}

TEST(ImplicitGemmSm90, TilesOverlapForWindowsOf3) {
  const Problem p = parse_problem("fwd:n2c64h32w33k64r3s3:pad1:f16:nhwc:maxpool3s2p1");
  EXPECT_EQ(pooled_extent(15, p), 7);
  EXPECT_EQ(pooled_extent(16, p), 7);
  const Tiling t = parse_tiling("patch_bt64x16x15_k64_pp_xs2_ws8");
  EXPECT_EQ(unfit(t, p), "");
  EXPECT_EQ(tiles(t, p), 2 * 3 * 3);  // an output of 16 x 17
  EXPECT_THAT(unfit(parse_tiling("patch_bt64x16x16_k64_pp_xs2_ws8"), p), testing::HasSubstr("odd"));
  EXPECT_THAT(unfit(parse_tiling("im2col_bt64x128_k64_pp_st4"), p), testing::HasSubstr("halo patches"));
  EXPECT_THAT(unfit(parse_tiling("patch_bt64x8x15_k32_pp_xs2_ws4"),
                    parse_problem("fwd:n2c64h32w33k64r3s3:pad1:f32:nhwc:maxpool3s2p1")),
              testing::HasSubstr("16 bits"));
}

TEST(ImplicitGemmSm90, StridesOfA1x1FilterThinAnNchwInput) {
  const Problem p = parse_problem("fwd:n2c64h28w29k64r1s1:st2x3:f16:nchw:bias");
  ASSERT_TRUE(thins(p));
  const Problem inner = thinned(p);
  EXPECT_EQ(inner.p(), p.p());
  EXPECT_EQ(inner.q(), p.q());
  EXPECT_EQ(inner.h, 14);
  EXPECT_EQ(inner.w, 10);
  EXPECT_FALSE(tilings_of(inner).empty());
  for (const char* text :
       {"fwd:n2c64h28w28k64r1s1:st2:f16:nhwc", "fwd:n2c64h28w28k64r1s1:f16:nchw",
        "fwd:n2c64h28w28k64r3s3:st2:f16:nchw", "fwd:n2c64h28w28k64r1s1:st2:pad1:f16:nchw"}) {
    EXPECT_FALSE(thins(parse_problem(text))) << text;
  }
}

TEST(ImplicitGemmSm90, ShiftedSumsServeNchwOfStride1) {
  for (const char* text : kShifted) {
    const Problem p = parse_problem(text);
    std::size_t found = 0;
    for (const Tiling& t : tilings_of(p)) {
      if (t.bring != Bring::shift) continue;
      ++found;
      EXPECT_EQ(unfit(t, p), "") << to_string(t);
      EXPECT_EQ(to_string(parse_tiling(to_string(t))), to_string(t));
      EXPECT_EQ(parse_tiling(to_string(t)).bring, Bring::shift);
      EXPECT_LE(shared_bytes(t, p), kSharedLimit) << to_string(t);
      EXPECT_LE(p.s * t.n() / 2, 192) << to_string(t) << ": sums a thread";
      EXPECT_FALSE(turns_input(t, p));
      EXPECT_GT(estimate(t, p, kChip).ms, 0);
    }
    EXPECT_GT(found, 0u) << text;
  }
  const struct {
    const char *problem, *reason;
  } declined[] = {
      {"fwd:n2c64h64w64k64r3s3:pad1:f16:nhwc", "NCHW"},
      {"fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "32-bit"},
      {"fwd:n2c64h64w64k64r3s3:st2:pad1:f16:nchw", "stride 1"},
      {"fwd:n2c64h28w28k64r3s3:pad1:f16:nchw", "multiple of 8 pixels, not 28"},
      {"fwd:n2c64h64w64k64r3s3:dil4:pad4:f16:nchw", "two columns"},
      {"fwd:n2c64h64w64k64r3s7:pad3:f16:nchw", "two columns"},
      {"fwd:n2c128h64w64k64r3s3:pad1:f16:nchw", "one block"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling("shift_bt64x64x4_k64_pp_xs2_wres"), parse_problem(d.problem)),
                testing::HasSubstr(d.reason))
        << d.problem;
  }
  const Problem p = parse_problem(kShifted[0]);
  EXPECT_THAT(unfit(parse_tiling("shift_bt128x64x4_k64_pp_xs2_wres"), p), testing::HasSubstr("64 channels"));
  EXPECT_THAT(unfit(parse_tiling("shift_bt64x64x3_k64_pp_xs2_wres"), p), testing::HasSubstr("share"));
  EXPECT_THAT(unfit(parse_tiling("shift_bt64x64x6_k64_pp_xs2_wres"), p), testing::HasSubstr("registers"));
  EXPECT_THAT(unfit(parse_tiling("shift_bt64x64x4_k64_pp_xs4_wres"), p), testing::HasSubstr("shared memory"));
}

TEST(ImplicitGemmSm90, FewTilesSplitTheirSum) {
  for (const char* text : {"fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32", "fwd:n1c256h32w16k256r3s3:f16:nchw",
                           "fwd:n32c512h7w7k512r3s3:pad1:f16:nhwc"}) {
    const Problem p = parse_problem(text);
    std::size_t found = 0;
    for (const Tiling& t : tilings_of(p)) {
      if (t.split == 1) continue;
      ++found;
      EXPECT_EQ(parse_tiling(to_string(t)).split, t.split) << to_string(t);
      EXPECT_LE(blocks(t, p), 132) << to_string(t);
      EXPECT_EQ(blocks(t, p), tiles(t, p) * t.split);
      EXPECT_FALSE(stores_by_map(t, p));
    }
    EXPECT_GT(found, 0u) << text;
  }
  for (const Tiling& t : tilings_of(parse_problem("fwd:n128c64h256w256k64r3s3:pad1:f16:nhwc")))
    EXPECT_EQ(t.split, 1) << to_string(t);
}

TEST(ImplicitGemmSm90, RareKindsSayWhomTheyServe) {
  const char* const f16 = "fwd:n1c256h32w16k256r3s3:f16:nhwc";
  const char* const f32 = "fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32";
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"im2col_bt128x64_k64_pp_st8_sk4", f16, "cooperating consumers"},
      {"im2col_bt128x64_k64_co_xs4_wres_sk4", f16, "streamed weights"},
      {"im2col_bt128x64_k64_co_st8_sk3", f16, "in 2, 4 or 8"},
      {"im2col_bt128x64_k64_co_st8_sk8", f16, "too few channels"},
      {"patch_bt128x8x8_k64_co_xs2_ws4_sk2", "fwd:n1c256h32w16k256r3s3:f16:nhwc:maxpool2", "not pooled"},
      {"im2col_bt128x128_k64_co_st2_sk2", f16, "too few buffers"},
      {"patch_bt64x16x16_k64_pp_xs2_ws8_ds", f16, "32-bit NHWC"},
      {"patch_bt64x8x16_k32_pp_px_xs2_ws8_ds", f32, "weights on M"},
      {"im2col_bt128x256_k64_co_st3_us2", f16, "pixels on M"},
      {"im2col_bt128x128_k64_co_st3_ra2", f16, "of a residual"},
      {"im2col_bt128x64_k64_co_st4_ra2_sk2", "fwd:n1c256h32w16k256r3s3:f16:nhwc:residual", "of a residual"},
      {"im2col_bt128x64_k64_co_st4_ra3", "fwd:n1c256h32w16k256r3s3:f16:nhwc:residual", "of a residual"},
      {"patch_bt64x8x16_k32_pp_xs2_ws4_ra2", "fwd:n1c256h32w16k256r3s3:f32:nhwc:math=tf32:residual",
       "of a residual"},
      {"im2col_bt128x128_k64_co_px_st3_us2", f16, "not so many"},
      {"im2col_bt160x256_k64_co_px_st3_us2", "fwd:n2c640h128w128k320r1s1:f16:nhwc:gelu", "gelu"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:st2x1:pad1:f32:nchw", "stride 1"},
      {"planes_bt160x128_k64_co_px_st5", "fwd:n2c960h128w128k320r1s1:f16:nhwc", "planes serve NCHW"},
      {"im2col_bt160x128_k64_co_px_st5", "fwd:n2c960h128w128k320r1s1:f16:nchw", "but for planes"},
      {"planes_bt160x128_k64_pp_px_st4", "fwd:n2c960h128w128k320r1s1:f16:nchw:gelu", "gelu"},
      {"planes_bt160x256_k64_co_px_st2", "fwd:n2c960h128w128k320r1s1:f16:nchw", "registers"},
      {"planes_bt160x256_k64_co_px_st3_us1", "fwd:n2c960h128w128k320r1s1:f16:nchw", "16-bit NHWC"},
      {"planes_bt64x96_k64_pp_st3", "fwd:n2c960h128w128k320r1s1:f16:nchw", "64 pixels"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
  // A vertical stride alone is the pitch of a patch.
  const Problem p = parse_problem("fwd:n2c64h33w35k64r3s3:st2x1:pad1:f16:nhwc");
  EXPECT_EQ(unfit(parse_tiling("patch_bt64x8x16_k64_pp_xs2_ws8"), p), "");
  EXPECT_EQ(patch_height(kernel_config(parse_tiling("patch_bt64x8x16_k64_pp_xs2_ws8"), p)), 33);
}

TEST(ImplicitGemmSm90, TurnedPatchesServe32BitNchw) {
  for (const char* math : {"f32", "tf32"}) {
    const Problem p =
        parse_problem("fwd:n2c64h64w64k64r3s3:pad1:f32:nchw:bias:relu:math=" + std::string(math));
    std::size_t found = 0;
    for (const Tiling& t : tilings_of(p)) {
      if (t.bring != Bring::turned) continue;
      ++found;
      EXPECT_EQ(parse_tiling(to_string(t)).row_slots, t.row_slots) << to_string(t);
      EXPECT_FALSE(turns_input(t, p));
      // Rows of 64 or 128 bytes, or an odd number of 16, that hold the patch from a multiple of 4 pixels on.
      const auto width = raw_width(kernel_config(t, p));
      EXPECT_TRUE(width == 16 || width == 32 || (width > 32 && width % 8 == 4)) << to_string(t);
      EXPECT_GE(width, t.width + 2 + 3) << to_string(t);
    }
    EXPECT_GT(found, 0u) << math;
  }
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f16:nhwc", "NCHW alone"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nhwc", "NCHW alone"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w66k64r3s3:pad1:f32:nchw",
       "multiple of 4 pixels, not 66"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:st2:pad1:f32:nchw", "stride 1"},
      {"turned_bt64x8x16_k16_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "32 channels"},
      {"patch_bt64x8x16_k32_pp_xs2_ws4_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "buffers of their own"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
}

TEST(ImplicitGemmSm90, PatchesOf16BitsAreTurnedWhateverTheirAlignment) {
  for (const char* text :
       {"fwd:n32c512h7w7k512r3s3:pad1:f16:nchw", "fwd:n2c128h14w14k64r3s3:st1x2:pad1:bf16:nchw",
        "fwd:n2c128h56w56k128r3s3:st2:pad1:f16:nchw", "fwd:n1c64h15w13k40r5s3:pad2:f16:nchw"}) {
    const Problem p = parse_problem(text);
    std::size_t found = 0, buffered = 0;
    for (const Tiling& t : tilings_of(p)) {
      if (t.bring != Bring::turned) continue;
      ++found;
      if (t.row_slots > 0) ++buffered;
      EXPECT_EQ(parse_tiling(to_string(t)).bring, Bring::turned) << to_string(t);
      EXPECT_EQ(parse_tiling(to_string(t)).row_slots, t.row_slots) << to_string(t);
      // Of each channel a buffer has whole rows, which may begin 14 bytes late; or all there are.
      const KernelConfig c = kernel_config(t, p);
      const std::int64_t rows = std::min<std::int64_t>(patch_height(c), p.h) * p.w * 2;
      if (t.row_slots > 0) {
        EXPECT_TRUE(c.rows_whole ? c.row_pitch == p.h * p.w * 2
                                 : c.row_pitch % 16 == 0 && c.row_pitch >= rows + 14)
            << to_string(t);
      }
      EXPECT_TRUE(reads_input(t, p));
      EXPECT_FALSE(turns_input(t, p));
      // The columns of each phase of the stride: as many as the tile has, and what the window reaches beyond.
      EXPECT_GE(patch_width(c), (t.width - 1) * p.stride_w + p.s) << to_string(t);
      EXPECT_EQ(patch_width(c) % p.stride_w, 0) << to_string(t);
    }
    EXPECT_GT(found, 0u) << text;
    EXPECT_GT(buffered, 0u) << text;
  }
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"turned_bt64x8x16_k64_pp_xs2_ws5", "fwd:n2c64h64w64k64r3s3:pad1:f16:nhwc", "NCHW alone"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5", "fwd:n2c64h64w64k64r3s3:pad1:f16:nchw", "by 64 channels"},
      {"turned_bt64x8x16_k16_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f16:nchw", "by 64 channels"},
      {"turned_bt64x16x14_k64_pp_xs2_ws5", "fwd:n2c64h14w14k64r3s3:pad1:f16:nchw:residual", "so many sums"},
      {"turned_bt64x8x16_k64_pp_xs2_ws5_rs1", "fwd:n2c60h64w64k64r3s3:pad1:f16:nchw",
       "a multiple of 8 channels"},
      {"turned_bt64x8x16_k64_pp_xs2_ws5_rs1", "fwd:n2c64h64w300k64r3s3:pad1:f16:nchw", "shared memory"},
      {"turned_bt64x8x16_k64_pp_px_xs2_ws5", "fwd:n2c64h64w64k64r3s3:pad1:f16:nchw", "weights on M"},
      {"turned_bt64x8x16_k64_pp_xs2_ws5", "fwd:n2c64h64w64k64r3s3:st3:pad1:f16:nchw", "strides up to 2"},
      {"patch_bt64x8x16_k64_pp_xs2_ws5", "fwd:n2c64h64w64k64r3s3:st2:pad1:f16:nchw", "stride 1"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
}

TEST(ImplicitGemmSm90, PlanesOfAnyAlignmentAreFetched) {
  const struct {
    const char* problem;
    int pixels_a_load;
    bool whole;
  } served[] = {
      {"fwd:n32c1024h14w14k256r1s1:f16:nchw", 4, false},
      {"fwd:n4c64h6w11k40r1s1:f16:nchw", 2, true},
      {"fwd:n32c512h7w7k2048r1s1:f16:nchw", 1, true},
      {"fwd:n32c512h7w7k2044r1s1:f16:nchw", 1, false},
      {"fwd:n32c256h56w56k512r1s1:st2:f16:nchw", 4, false},
      {"fwd:n32c512h28w28k1024r1s1:st2:f16:nchw", 2, false},
      {"fwd:n32c1024h14w14k2048r1s1:st2:bf16:nchw", 1, true},
      {"fwd:n2c64h8w7k64r1s1:st1x2:f16:nchw", 1, false},
      {"fwd:n2c64h17w17k64r1s1:f16:nchw", 1, false},
  };
  for (const auto& s : served) {
    const Problem p = parse_problem(s.problem);
    EXPECT_EQ(fetch::pixels_a_load(p), s.pixels_a_load) << s.problem;
    std::size_t found = 0;
    for (const Tiling& t : fetch::tilings(p, kChip)) {
      ++found;
      EXPECT_EQ(unfit(t, p), "") << to_string(t);
      EXPECT_EQ(parse_tiling(to_string(t)).bring, Bring::fetch) << to_string(t);
      EXPECT_FALSE(turns_input(t, p));
      EXPECT_LE(shared_bytes(t, p), kSharedLimit) << to_string(t);
      EXPECT_EQ(whole_images(t, p), s.whole) << s.problem << " " << to_string(t);
      EXPECT_EQ(step(t, p) % (s.whole ? p.p() * p.q() : 1), 0) << to_string(t);
      EXPECT_LE(step(t, p), t.pixels()) << to_string(t);
      EXPECT_GT(estimate(t, p, kChip).ms, 0);
    }
    EXPECT_GT(found, 0u) << s.problem;
  }
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r1s1:f16:nhwc", "NCHW"},
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r3s3:f16:nchw", "1x1"},
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r1s1:pad1:f16:nchw", "no padding"},
      {"fetch_bt128x96_k32_co_st4", "fwd:n2c64h7w7k64r1s1:f32:nchw", "side by side"},
      {"fetch_bt128x96_k32_co_st4", "fwd:n2c64h7w7k64r1s1:f16:nchw", "by 64 channels"},
  };
  for (const auto& d : declined) {
    EXPECT_THAT(unfit(parse_tiling(d.tiling), parse_problem(d.problem)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
  // Where the copy engine takes the planes as they are, it does.
  EXPECT_TRUE(fetch::tilings(parse_problem("fwd:n2c64h8w8k64r1s1:f16:nchw"), kChip).empty());
}

TEST(ImplicitGemmSm90, PhasesOfStridesShareALaunch) {
  for (const char* text : kBackward) {
    const Problem asked = parse_problem(text);
    const Problem p = engine_problem(asked);
    const std::vector<Tiling> all = tilings(asked, p, kChip);
    ASSERT_FALSE(all.empty()) << text;
    for (const Tiling& t : all) {
      EXPECT_EQ(unfit(parse_tiling(to_string(t)), asked, p), "") << to_string(t);
      EXPECT_EQ(t.phases, has_phases(asked) ? asked.stride_d * asked.stride_h * asked.stride_w : 1)
          << to_string(t);
    }
    if (!has_phases(asked)) continue;
    // Every result once, each tap in one phase.
    Phases phases = phases_of(asked);
    std::int64_t results = 0, taps = 0;
    for (const Phase& phase : phases.of) {
      results += std::int64_t{phase.depth.out} * phase.p * phase.q, taps += phase.depths * phase.taps;
      EXPECT_LE(phase.taps, p.r * p.s);
      EXPECT_LE(phase.p, p.p());
      EXPECT_LE(phase.q, p.q());
      EXPECT_LE(phase.depths, p.t);
      EXPECT_LE(phase.depth.out, p.z());
      EXPECT_LE(phase.depths * phase.taps, phases.of.front().depths * phases.of.front().taps);
    }
    EXPECT_EQ(results, asked.d * asked.h * asked.w) << text;
    EXPECT_EQ(taps, asked.t * asked.r * asked.s) << text;
    const Tiling& t = all.front();
    EXPECT_GE(count_tiles(phases.of, t, p) * t.channels * t.pixels(), asked.n * asked.c * results);
    EXPECT_GT(estimate_phases(t, asked, kChip).ms, 0);
  }
  EXPECT_NE(without_phases(parse_problem("bwd_d:n2c64h32w32k64r3s3:st3:pad1:f16:nhwc")), "");
  EXPECT_EQ(without_phases(parse_problem("bwd_d:n2c64h32w32k64r3s3:st1x3:pad1:f16:nhwc")), "");
  const Problem strided = parse_problem(kBackward[0]), engine = engine_problem(strided);
  EXPECT_THAT(unfit(parse_tiling("patch_bt128x8x28_k64_co_xs2_ws6_wx"), strided, engine),
              testing::HasSubstr("4 positions"));
  EXPECT_THAT(unfit(parse_tiling("im2col_bt128x128_k64_co_st4_ph4"), strided, engine),
              testing::HasSubstr("halo patches"));
}

TEST(ImplicitGemmSm90, PixelsThatOneColumnOfTheFilterEachHasAreChannels) {
  for (const auto& [text, phases, repeats] : kUpsampling) {
    const Problem given = parse_problem(text);
    const Asked asked = as_asked(given);
    EXPECT_EQ(asked.repeats, repeats) << text;
    EXPECT_EQ(asked.problem.c, given.k * repeats);
    EXPECT_EQ(asked.problem.w * repeats, given.q());
    EXPECT_EQ(bytes(asked.problem, Tensor::w), bytes(given, Tensor::w));
    const Problem engine = engine_problem(asked.problem);
    EXPECT_TRUE(engine.epilogue.bias);
    const std::vector<Tiling> all = tilings(asked.problem, engine, kChip);
    ASSERT_FALSE(all.empty()) << text;
    for (const Tiling& t : all) EXPECT_EQ(t.phases, phases) << to_string(t);
    EXPECT_EQ(phase_order(phases_of(asked.problem).of), PhaseOrder::in_turn) << text;
  }
  // Padding cuts a pixel in two, groups lie between the columns, and rows are not side by side.
  for (const char* text :
       {"bwd_d:n2c64h32w33k64r2s2:st2:f16:nhwc", "bwd_d:n2c64h32w31k64r2s2:st2:pad0.0.1.0:f16:nhwc",
        "bwd_d:n2c64h32w32k64r2s2:st2:g2:f16:nhwc", "bwd_d:n2c64h32w32k64r2s2:st2:f16:nchw"}) {
    EXPECT_EQ(as_asked(parse_problem(text)).repeats, 1) << text;
  }
  EXPECT_EQ(phase_order(phases_of(parse_problem(kBackward[0])).of), PhaseOrder::most_taps_first);
}

// The same numbers in the same memory.
TEST(ImplicitGemmSm90, WhatIsAskedForIsTheSameConvolution) {
  for (const char* text : {"bwd_d:n2c3h6w8k5r3s2:st2:pad1.0.0.0:f32:nhwc",
                           "bwd_d:n1c2h5w9k3r1s3:st1x3:f32:nhwc", "bwd_d:n1c2d4h4w6k3t2r2s2:st2:f32:nhwc"}) {
    const Problem given = parse_problem(text), asked = as_asked(given).problem;
    const auto values = [](const TensorShape& shape) {
      std::vector<float> v(static_cast<std::size_t>(shape.elements()));
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 7 % 11) - 5;
      return v;
    };
    std::vector<float> w = values(w_shape(given)), y = values(conv_shape(given));
    Tensors tensors;
    tensors.w = w.data(), tensors.y = y.data();
    const TensorShape x = x_shape(given), merged = x_shape(asked);
    ASSERT_EQ(x.elements(), merged.elements()) << text;
    const auto all = [&](const Problem& p, const TensorShape& s) {
      std::vector<double> of(static_cast<std::size_t>(s.elements()));
      for (i64 n = 0; n < s.n; ++n)
        for (i64 c = 0; c < s.c; ++c)
          for (i64 d = 0; d < s.d; ++d)
            for (i64 h = 0; h < s.h; ++h)
              for (i64 col = 0; col < s.w; ++col) {
                const i64 at =
                    n * s.stride_n + c * s.stride_c + d * s.stride_d + h * s.stride_h + col * s.stride_w;
                of[static_cast<std::size_t>(at)] = reference(p, tensors, {n, c, d, h, col}).value;
              }
      return of;
    };
    EXPECT_NE(asked, given);
    EXPECT_EQ(all(asked, merged), all(given, x)) << text;
  }
}

TEST(ImplicitGemmSm90, AFilterThatIsReadAsItIsComesBy64Channels) {
  const struct {
    const char *tiling, *problem, *reason;
  } declined[] = {
      {"patch_bt64x8x32_k64_pp_xs2_ws8_wx", "fwd:n2c64h32w32k64r3s3:pad1:f16:nhwc", "backward_data"},
      {"patch_bt64x8x16_k32_pp_xs2_ws8_wx", "bwd_d:n2c64h32w32k64r3s3:pad1:f32:nhwc:math=tf32", "32-bit"},
      {"im2col_bt160x128_k64_co_px_st5_wx", "bwd_d:n2c320h32w32k64r3s3:pad1:f16:nhwc", "by 64 channels"},
  };
  for (const auto& d : declined) {
    const Problem asked = parse_problem(d.problem);
    EXPECT_THAT(unfit(parse_tiling(d.tiling), asked, engine_problem(asked)), testing::HasSubstr(d.reason))
        << d.tiling << " " << d.problem;
  }
}

TEST(ImplicitGemmSm90, SumsOfTwoPartsAreMadeApart) {
  for (const char* layout : {"nhwc", "nchw"}) {
    const Problem p = parse_problem("fwd:n8c128h64w64k128r3s3:pad1:f32:" + std::string(layout));
    for (const Tiling& t : tilings_of(p)) {
      const KernelConfig c = kernel_config(t, p);
      ASSERT_TRUE(sums_apart(c));
      EXPECT_EQ(t.m_blocks() * t.n_blocks() * halves(c) % 2, 0) << to_string(t);
      EXPECT_EQ(columns(c) * halves(c), t.n()) << to_string(t);
      EXPECT_EQ(columns(c) % 8, 0) << to_string(t);
      EXPECT_LE(sum_registers(c), 192) << to_string(t);
    }
  }
  const Problem tf32 = parse_problem("fwd:n8c128h64w64k128r3s3:pad1:f32:nhwc:math=tf32");
  EXPECT_FALSE(sums_apart(kernel_config(tilings_of(tf32).front(), tf32)));
}

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
  EXPECT_GE(count_instructions(binary.code, kHgmmaOfShared),
            steps * tiling.m_blocks() * tiling.n_blocks() / tiling.groups * halves(c) * products)
      << source.name;
}

// Every kind of kernel, in a few tilings each: FALTUNG_TEST_FULL=1 compiles them all.
TEST(ImplicitGemmSm90, NvrtcCompilesEveryKindForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const bool everything = sampling::full();
  std::vector<Problem> problems;
  for (const char* text : kProblems) problems.push_back(parse_problem(text));
  for (const char* text : kShifted) problems.push_back(parse_problem(text));
  for (const char* layout : {"nhwc", "nchw"}) {
    problems.push_back(folded(parse_problem("fwd:n2c3h64w64k64r7s7:st2:pad3:f16:" + std::string(layout) +
                                            ":bias:relu:maxpool3s2p1")));
    problems.push_back(deepened(parse_problem("fwd:n2c3h64w64k64r7s7:st2:pad3:f16:" + std::string(layout))));
  }
  for (const Problem& problem : problems) {
    const std::vector<Tiling> all = tilings_of(problem);
    // The shifted ones stand last, so they are counted from the end.
    const std::size_t step = everything ? 1 : std::max<std::size_t>(1, (all.size() + 1) / 2);
    for (std::size_t back = 0; back < all.size(); back += step) {
      const std::size_t i = all.size() - 1 - back;
      expect_compiles_well(*nvrtc, all[i], problem);
    }
  }
  for (const char* text : kBackward) {
    const Problem asked = parse_problem(text), problem = engine_problem(asked);
    const std::vector<Tiling> all = tilings(asked, problem, kChip);
    const std::size_t step = everything ? 1 : std::max<std::size_t>(1, (all.size() + 1) / 2);
    for (std::size_t i = 0; i < all.size(); i += step) expect_compiles_well(*nvrtc, all[i], problem);
  }
  for (const auto& up : kUpsampling) {
    const Problem asked = as_asked(parse_problem(up.problem)).problem, problem = engine_problem(asked);
    const std::vector<Tiling> all = tilings(asked, problem, kChip);
    const std::size_t step = everything ? 1 : all.size();
    for (std::size_t i = 0; i < all.size(); i += step)
      expect_compiles_well(*nvrtc, all[i], problem, PhaseOrder::in_turn);
  }
  for (const auto& kind : kKinds) {
    const Problem problem = parse_problem(kind.problem);
    ASSERT_EQ(unfit(parse_tiling(kind.tiling), problem), "") << kind.tiling;
    expect_compiles_well(*nvrtc, parse_tiling(kind.tiling), problem);
  }
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

}  // namespace
}  // namespace faltung::sm90
