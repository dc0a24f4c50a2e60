// What can be known of Hopper's kernels without a GPU: names parse back, tilings keep within the chip's
// limits, and what few channels, groups and windows become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "tests/sm90_checks.hpp"
#include "tests/sm90_problems.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

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

// The question is answered by the first of the list, or by all where phases refuse that one.
TEST(ImplicitGemmSm90, HasTilingsWhereAnyIsListed) {
  int with = 0, without = 0;
  for (const char* text :
       {"fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc", "fwd:n2c40h9w9k24r3s3:pad1:f16:nchw",
        "bwd_d:n2c128h15w14k128r3s3:st2:pad1:f16:nhwc", "bwd_d:n2c64h14w14k64r2s2:st2:f16:nhwc",
        "bwd_d:n2c64h14w14k64r1s1:st2:bf16:nchw", "fwd:n2c12h8w8k18r3s3:g3:f16:nhwc",
        "fwd:n1c64h8w600k64r3s3:dil300:pad300:f16:nchw", "fwd:n2c64h9w9k64r3s3:pad1:f16:nhwc:maxpool2"}) {
    const Problem asked = parse_problem(text), engine = engine_problem(asked);
    const bool any = !tilings(asked, engine, kChip).empty();
    EXPECT_EQ(has_tilings(asked, engine, kChip), any) << text;
    EXPECT_LE(tilings(engine, kChip, 1).size(), 1u) << text;
    ++(any ? with : without);
  }
  EXPECT_GT(with, 4);
  EXPECT_GT(without, 0);
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
  EXPECT_GT(few_lines_ms(8e6, 8, kChip), 0.1);
  EXPECT_LT(few_lines_ms(8e6, 32, kChip), few_lines_ms(8e6, 8, kChip) / 3);
  EXPECT_EQ(few_lines_ms(8e6, 32 * 224, kChip), 0);
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
  expect_unfit({
      {"patch_bt64x8x16_k64_pp_px_xs6_wres_gt4", "fwd:n1c128h56w56k128r3s3:pad1:f16:nhwc", "no groups"},
      {"patch_bt64x8x16_k64_pp_px_xs6_wres_gt2", "fwd:n1c128h56w56k128r3s3:pad1:g8:f16:nhwc", "whole groups"},
      {"patch_bt64x8x32_k64_pp_xs2_wres_gt4", "fwd:n1c128h56w56k128r3s3:pad1:g8:f16:nhwc", "pixels on M"},
      {"patch_bt128x8x8_k64_pp_xs2_ws8", "fwd:n1c128h56w56k128r3s3:pad1:g2:f16:nhwc", "one group"},
      {"patch_bt64x8x8_k64_pp_xs2_ws8", "fwd:n1c64h56w56k128r3s3:pad1:g2:f16:nhwc", "of one group"},
      {"patch_bt64x8x8_k64_pp_xs2_ws8", "fwd:n1c8h56w56k128r3s3:pad1:g2:f16:nhwc", "16 bytes"},
      {"fetch_bt64x64_k64_pp_st4", "fwd:n1c128h7w7k128r1s1:g2:f16:nchw", "no groups"},
  });
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

// Of 7x7 pixels neither 192 nor 256 a tile do: 144 and 112 tiles of 132 multiprocessors' one round.
TEST(ImplicitGemmSm90, PixelsThatAreAllTakenComeAsRows) {
  const Tiling t = parse_tiling("im2col_bt128x128_k64_co_st4");
  const MapShape rows = x_map(t, parse_problem("fwd:n3c72h13w11k136r1s1:f16:nhwc"));
  ASSERT_TRUE(std::holds_alternative<TiledMap>(rows));
  const TiledMap& map = std::get<TiledMap>(rows);
  EXPECT_EQ(map.rank, 2);
  EXPECT_EQ(map.size[0], 72);
  EXPECT_EQ(map.size[1], 3 * 13 * 11);
  EXPECT_EQ(map.stride_bytes[0], 144);
  EXPECT_EQ(map.box[1], 128);
  for (const char* gathered :
       {"fwd:n3c72h13w11k136r1s1:st2:f16:nhwc", "fwd:n3c72h13w11k136r1s1:pad1:f16:nhwc",
        "fwd:n3c72h13w11k136r3s3:pad1:f16:nhwc"})
    EXPECT_FALSE(std::holds_alternative<TiledMap>(x_map(t, parse_problem(gathered)))) << gathered;
}

TEST(ImplicitGemmSm90, GatheredTilesFillTheMultiprocessors) {
  const Problem p = parse_problem("fwd:n32c1024h7w7k2048r1s1:f16:nhwc");
  const Tiling filling = parse_tiling("im2col_bt128x200_k64_co_st4");
  EXPECT_EQ(tiles(filling, p), 128);
  const auto all = tilings_of(p);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [&](const Tiling& t) { return to_string(t) == to_string(filling); }));
  for (const char* other : {"im2col_bt128x192_k64_co_st4", "im2col_bt128x256_k64_co_st3"})
    EXPECT_LT(estimate(filling, p, kChip).ms, estimate(parse_tiling(other), p, kChip).ms) << other;
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

}  // namespace
}  // namespace faltung::sm90
