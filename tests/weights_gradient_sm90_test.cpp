// What can be known of the kernels of Hopper's weights' gradient without a GPU: names parse back, tiles keep
// within the chip's limits, and what NVRTC makes of them uses the matrix units and spills nothing.
#include <algorithm>
#include <set>

#include "tests/sampling.hpp"
#include "tests/weights_gradient_sm90.hpp"

namespace faltung::weights_gradient_sm90 {
namespace {

const char* const kProblems[] = {
    "bwd_w:n128c64h256w256k64r3s3:pad1:f16:nhwc",
    "bwd_w:n2c64h33w35k64r3s3:pad1:bf16:nhwc",
    "bwd_w:n3c50h17w19k70r3s3:pad1:bf16:nhwc",
    "bwd_w:n32c512h7w7k512r3s3:pad1:f16:nchw",
    "bwd_w:n32c128h56w56k128r3s3:st2:pad1:f16:nhwc",
    "bwd_w:n2c64h24w24k64r2s2:st2:dil3:pad1:f16:nhwc",
    "bwd_w:n2c256h33w33k256r3s3:dil20:pad20:f16:nhwc",
    "bwd_w:n2c64h20w21k64r5s5:pad2:f16:nhwc",
    "bwd_w:n32c3h224w224k64r7s7:st2:pad3:f16:nhwc",
    "bwd_w:n32c256h14w14k1024r1s1:f16:nhwc",
    "bwd_w:n32c1024h14w14k2048r1s1:st2:f16:nhwc",
    "bwd_w:n2c200h20w21k140r3s1:pad1.1.0.0:f16:nhwc",
    "bwd_w:n32c256h28w28k512r1s1:f16:nchw",
    "bwd_w:n5c72h8w10k40r1s1:bf16:nchw",
    "bwd_w:n32c256h14w14k1024r1s1:f16:nchw",
    "bwd_w:n5c72h6w10k40r1s1:bf16:nchw",
    "bwd_w:n32c256h56w56k512r1s1:st2:f16:nchw",
    "bwd_w:n32c512h28w28k1024r1s1:st2:f16:nchw",
    "bwd_w:n32c512h7w7k2048r1s1:f16:nhwc",
    "bwd_w:n128c64h64w64k64r3s3:pad1:f16:nchw",
    "bwd_w:n1c50h9w24k70r3s3:pad1:bf16:nchw",
    "bwd_w:n2c64h64w64k64r3s3:pad1:f32:nchw:math=tf32",
    "bwd_w:n2c64h64w64k64r3s3:pad1:f32:nhwc:math=tf32",
    "bwd_w:n2c64h64w64k64r3s3:pad1:f32:nchw",
    "bwd_w:n2c64h64w64k64r3s3:pad1:f32:nhwc",
    "bwd_w:n2c50h19w41k70r3s3:pad1:f32:nchw",
    "bwd_w:n2c64h64w64k64r3s3:f32:nchw",
    "bwd_w:n2c64h64w64k64r3s3:f32:nchw:math=tf32",
    "bwd_w:n2c64h64w64k64r3s3:bf16:nchw",
    "bwd_w:n3c40h9w16k70r1s3:pad0.0.1.1:f32:nhwc:math=tf32",
    "bwd_w:n2c64h20w36k64r2s2:dil1x2:pad1:f32:nhwc",
    "bwd_w:n2c64h28w28k64r3s3:st2:pad1:f32:nchw",
    "bwd_w:n2c64h20w21k64r4s2:pad1:f16:nhwc",
    "bwd_w:n32c3h224w224k64r7s7:st2:pad3:bf16:nchw",
    "bwd_w:n32c128h56w56k128r3s3:pad1:g32:f16:nhwc",
    "bwd_w:n32c1024h14w14k1024r3s3:st2:pad1:g32:bf16:nchw",
    "bwd_w:n2c256h28w28k512r1s1:g2:f16:nchw",
    "bwd_w:n2c40h16w24k56r3s3:pad1:g8:f16:nchw",
    "bwd_w:n2c64h16w32k64r3s3:pad1:g16:f32:nhwc",
};

TEST(WeightsGradientSm90, NamesParseBack) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    const std::vector<Tile> all = tiles(problem, kMultiprocessors);
    ASSERT_FALSE(all.empty()) << text;
    std::set<std::string> names;
    for (const Tile& tile : all) {
      const std::string name = to_string(tile);
      EXPECT_TRUE(names.insert(name).second) << text << ": " << name << " is listed twice";
      EXPECT_EQ(to_string(parse_tile(name)), name);
      EXPECT_EQ(unfit(parse_tile(name), problem), "") << name;
    }
  }
}

TEST(WeightsGradientSm90, OtherNamesAreRefusedWithTheForm) {
  for (const char* name : {"", "patch", "patch_bt64x64", "patch_bt64x64_tp8x32x1_st3_ys2",
                           "lines_bt64x64_tp8x32x1_st2", "patch_bt64x64_tp8x32x1_st3_cl2_sk3",
                           "patch_bt64x64_tp8x32x1_st3_sk1", "patch_bt0x64_tp8x32x1_st3"}) {
    try {
      parse_tile(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      EXPECT_THAT(error.what(), testing::HasSubstr("looks like")) << name;
    }
  }
}

TEST(WeightsGradientSm90, AnUnfitTileSaysWhichLimitItBreaks) {
  const Problem p = parse_problem("bwd_w:n8c64h32w32k64r3s3:pad1:f16:nhwc");
  EXPECT_EQ(unfit(parse_tile("patch_bt64x64_tp8x32x1_st3"), p), "");
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp8x32x1_st4"), p), testing::HasSubstr("shared memory"));
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp3x8x1_st4"), p), testing::HasSubstr("by 16"));
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp8x32x1_st3_sk33"), p), testing::HasSubstr("shares"));
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp8x32x1_st3_cl3_sk3"), p), testing::HasSubstr("cluster"));
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp8x32x1_st3_cl4_sk4"), p), testing::HasSubstr("cluster"));
  EXPECT_THAT(unfit(parse_tile("lines_bt64x64_tp8x32x1_st2_ys3"), p), testing::HasSubstr("NCHW"));
  const Problem strided = parse_problem("bwd_w:n8c64h32w32k64r3s3:st2:pad1:f32:nchw");
  EXPECT_THAT(unfit(parse_tile("lines_bt64x32_tp8x32x1_st2_ys3"), strided), testing::HasSubstr("stride"));
  const Problem fp32 = parse_problem("bwd_w:n8c64h32w32k64r3s3:pad1:f32:nchw");
  EXPECT_THAT(unfit(parse_tile("lines_bt64x64_tp4x32x1_st2_ys2"), fp32), testing::HasSubstr("sums"));
  const Problem planes = parse_problem("bwd_w:n8c64h28w28k64r1s1:f16:nchw");
  EXPECT_EQ(unfit(parse_tile("planes_bt64x64_tp1x64x1_st3"), planes), "");
  EXPECT_THAT(unfit(parse_tile("planes_bt64x64_tp1x32x1_st3"), planes), testing::HasSubstr("by 64 pixels"));
  for (const char* other : {"bwd_w:n8c64h14w14k64r1s1:f16:nchw", "bwd_w:n8c64h28w28k64r1s1:f16:nhwc",
                            "bwd_w:n8c64h28w28k64r3s3:pad1:f16:nchw", "bwd_w:n8c64h28w28k64r1s1:f32:nchw"}) {
    EXPECT_THAT(unfit(parse_tile("planes_bt64x64_tp1x64x1_st3"), parse_problem(other)),
                testing::HasSubstr("planes serve"))
        << other;
  }
  const Problem dense = parse_problem("bwd_w:n8c128h14w14k256r1s1:f16:nhwc");
  EXPECT_THAT(unfit(parse_tile("thin_patch_bt64x64_tp1x64x1_st4"), dense), testing::HasSubstr("every pixel"));
  const Problem huge = parse_problem("bwd_w:n1c64h32000w32000k64r3s3:dil9000:f16:nhwc");
  EXPECT_THAT(unfit(parse_tile("patch_bt64x64_tp8x32x1_st3"), huge), testing::HasSubstr("256 pixels"));
}

TEST(WeightsGradientSm90, TilesKeepWithinTheChip) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    for (const Tile& tile : tiles(problem, kMultiprocessors)) {
      const Config c = config(tile, problem);
      EXPECT_LE(shared_bytes(c), kSharedLimit) << to_string(tile);
      EXPECT_LE(threads(c), 544) << to_string(tile);
      EXPECT_LE(columns(c), 256) << to_string(tile);
      EXPECT_GT(cost(tile, problem, {kMultiprocessors}).ms, 0) << to_string(tile);
    }
  }
}

// The last step's result is the gradient; parts of it and turned tensors lie beside each other.
TEST(WeightsGradientSm90, StepsUseTheWorkspaceTheyAskFor) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    for (const Tile& tile : tiles(problem, kMultiprocessors)) {
      const Recipe made = recipe(tile, problem, h200());
      EXPECT_EQ(made.workspace_bytes, workspace(tile, problem).bytes);
      const bool at_once = made.steps.front().name == "input and output's gradient to NHWC";
      EXPECT_TRUE(!at_once || (turns_x(tile, problem) && turns_y(tile, problem)));
      const std::size_t steps = 1 + turns_x(tile, problem) + turns_y(tile, problem) - at_once +
                                (tile.parts() > 1 ? 1 : 0) + (turns_result(tile, problem) ? 1 : 0);
      EXPECT_EQ(made.steps.size(), steps) << to_string(tile);
      bool writes = false;
      for (const Step& step : made.steps) {
        for (const Address& use : step.uses()) {
          EXPECT_TRUE(use.slot.place != Place::workspace || use.slot.offset <= made.workspace_bytes)
              << step.name;
          writes |= use.slot.place == Place::w && use.access == Access::write;
        }
      }
      EXPECT_TRUE(writes) << to_string(tile);
      const std::size_t parts =
          tile.parts() > 1 ? static_cast<std::size_t>(tile.parts() * w_shape(problem).elements() * 4) : 0;
      EXPECT_GE(workspace(tile, problem).x, parts) << to_string(tile);
    }
  }
}

TEST(WeightsGradientSm90, ABlockHasTheProductsOfAsManyGroupsAsItHasRows) {
  const Tile tile = parse_tile("patch_bt64x64_tp8x8x1_st3");
  const auto merged = [&](const char* text) {
    const Problem p = parse_problem(text);
    return unfit(tile, p).empty() ? config(tile, p).merged : 0;
  };
  const auto groups = [&](const char* text) { return counts(tile, parse_problem(text)).groups; };
  EXPECT_EQ(merged("bwd_w:n2c128h8w8k128r3s3:pad1:f16:nhwc"), 1);
  EXPECT_FALSE(config(tile, parse_problem("bwd_w:n2c128h8w8k128r3s3:pad1:f16:nhwc")).grouped());
  EXPECT_EQ(merged("bwd_w:n2c128h8w8k128r3s3:pad1:g32:f16:nhwc"), 16);
  EXPECT_EQ(groups("bwd_w:n2c128h8w8k128r3s3:pad1:g32:f16:nhwc"), 2);
  EXPECT_EQ(merged("bwd_w:n2c256h8w8k256r3s3:pad1:g2:f16:nhwc"), 1);
  EXPECT_EQ(groups("bwd_w:n2c256h8w8k256r3s3:pad1:g2:f16:nhwc"), 2);
  EXPECT_EQ(merged("bwd_w:n2c60h8w8k60r3s3:pad1:g6:f16:nhwc"), 6);     // all of them: none begins astray
  EXPECT_EQ(merged("bwd_w:n2c120h8w8k120r3s3:pad1:g12:f16:nhwc"), 4);  // 40 channels
  EXPECT_EQ(merged("bwd_w:n2c200h8w8k200r3s3:pad1:g2:f16:nhwc"), 0);   // 100: 200 bytes
}

// The thread that asks the copy engine for boxes is chosen once: where the compiler does not know that it is
// one, it chooses at each box again, in a loop. Blocks that add up their sums wait for barriers of theirs,
// not for all memory.
TEST(WeightsGradientSm90, ProducersAreChosenOnceAndClustersWaitForNoMemory) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const std::pair<const char*, const char*> all[] = {
      {"bwd_w:n32c1024h14w14k512r1s1:f16:nhwc", "patch_bt64x128_tp1x128x1_st4_cl2_sk2"},
      {"bwd_w:n32c256h14w14k256r3s3:pad1:f16:nhwc", "patch_bt64x32_tp14x2x4_st4_cl2_sk4"},
      {"bwd_w:n8c256h28w28k256r1s1:f16:nchw", "planes_bt64x128_tp1x64x1_st8_mx_sk3"},
      {"bwd_w:n2c64h64w64k64r3s3:pad1:f32:nhwc:math=tf32", "lines_bt64x64_tp4x32x1_st2_ys6_cl2_sk2"},
      {"bwd_w:n2c64h64w64k64r3s3:f32:nchw:math=tf32", "runs_lines_bt64x64_tp4x32x1_st2_ys6_cl2_sk2"}};
  for (const auto& [text, name] : all) {
    const Problem problem = parse_problem(text);
    const Tile tile = parse_tile(name);
    ASSERT_EQ(unfit(tile, problem), "") << name;
    const Binary binary = Nvrtc::get()->compile(source(tile, problem).whole(), "sm_90a");
    expect_good_code(binary, name);
    const auto count = [&](const Operation& o) { return count_instructions(binary.code, o); };
    if (tile.kind != Kind::lines) {
      EXPECT_TRUE(count(kElect) > 0 && count(kElect) == count(kElectAlways)) << name;
    }
    // But what warps turn is fenced for the matrix units.
    EXPECT_EQ(count(kMembar), config(tile, problem).turns() ? 1 : 0) << name;
  }
}

// Of planes, as measured on an H200: rows of 128 bytes, four high where a block has few tiles, eight where it
// has many.
TEST(WeightsGradientSm90, LinesAreAsWideAsARow) {
  const struct {
    const char *problem, *tile;
  } fastest[] = {{"n128c64h32w32k64r3s3:pad1:f16", "lines_bt64x64_tp4x32x1_st2_ys6"},
                 {"n128c64h64w64k64r3s3:pad1:f16", "lines_bt64x64_tp4x64x1_st2_ys6"},
                 {"n128c64h256w256k64r3s3:pad1:f16", "lines_bt64x64_tp8x64x1_st2_ys5"},
                 {"n128c64h32w32k64r3s3:pad1:f32:math=tf32", "lines_bt64x64_tp4x32x1_st2_ys6"},
                 {"n128c64h64w64k64r3s3:pad1:f32:math=tf32", "lines_bt64x64_tp4x32x1_st2_ys6"},
                 {"n128c64h256w256k64r3s3:pad1:f32:math=tf32", "lines_bt64x64_tp8x32x1_st2_ys5"}};
  for (const auto& row : fastest) {
    const Problem problem = parse_problem("bwd_w:" + std::string(row.problem) + ":nchw");
    const std::vector<Tile> all = tiles(problem, kMultiprocessors);
    const auto ms = [&](const Tile& t) { return cost(t, problem, {kMultiprocessors}).ms; };
    const auto first =
        std::min_element(all.begin(), all.end(), [&](const Tile& a, const Tile& b) { return ms(a) < ms(b); });
    EXPECT_EQ(to_string(*first), std::string(row.tile) + "_sk132") << row.problem;
  }
  // In two parts 64² and 128² took 14 % longer a pixel in rows of 64 bytes than 32² and 256² in rows of 128.
  for (const char* size : {"h64w64", "h128w128"}) {
    const Problem problem = parse_problem("bwd_w:n128c64" + std::string(size) + "k64r3s3:pad1:f32:nchw");
    const std::vector<Tile> all = tiles(problem, kMultiprocessors);
    const auto ms = [&](const Tile& t) { return cost(t, problem, {kMultiprocessors}).ms; };
    EXPECT_EQ(std::ranges::min_element(all, {}, ms)->width, 32) << size;
  }
}

// A tile of every problem: FALTUNG_TEST_FULL=1 compiles them all.
TEST(WeightsGradientSm90, NvrtcCompilesEveryKindForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  struct Compiled {
    Problem problem;
    Tile tile;
  };
  std::vector<Compiled> all;
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    for (const Tile& tile : tiles(problem, kMultiprocessors)) all.push_back({problem, tile});
  }
  std::set<std::string> known;  // steps around the kernels are often the same
  for (const auto& [problem, tile] :
       sampling::draw(all, 1, "every kind", [](const Compiled& one) { return to_string(one.problem); })) {
    const Config c = config(tile, problem);
    for (const Step& made : recipe(tile, problem, h200()).steps) {
      const jit::Source& compiled = std::get<Launch>(made.work).source;
      if (!known.insert(compiled.text).second) continue;
      const Binary binary = nvrtc->compile(compiled.whole(), "sm_90a");
      expect_good_code(binary, compiled.name);
      if (made.name != "weights_gradient") continue;
      const int instructions = c.kind != Kind::lines ? pixels(c) / 16 * phases(c)
                                                     : row_bytes(c) / 32 * (c.parts == Parts::two ? 3 : 1);
      EXPECT_GE(count_instructions(binary.code, kHgmma), instructions) << compiled.name;
    }
  }
}

// Wide blocks of strided filters have a tap each, without a halo.
TEST(WeightsGradientSm90, NvrtcCompilesTapsByThemselves) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const Problem problem = parse_problem("bwd_w:n32c256h28w28k256r3s3:st2:pad1:f16:nhwc");
  const Tile tile = parse_tile("patch_bt128x128_tp14x8x1_st4_sk3");
  const Config c = config(tile, problem);
  EXPECT_EQ(c.tap_rows * c.tap_columns, 1);
  EXPECT_EQ(counts(tile, problem).results(), 9 * 2 * 2);
  expect_good_kernel(problem, to_string(tile), pixels(c) / 16);
}

}  // namespace
}  // namespace faltung::weights_gradient_sm90
