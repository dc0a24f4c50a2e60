// How the tiles of Hopper's weights' gradient come by what they multiply, and how filters leave them: by the
// copy engine, by warps, turned before or afterwards.
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/problem/dtype.hpp"
#include "src/problem/integers.hpp"
#include "tests/weights_gradient_sm90.hpp"

namespace faltung::weights_gradient_sm90 {
namespace {

TEST(WeightsGradientSm90, WeightsFromDepthFindTheirPlaces) {
  for (const char* text :
       {"bwd_w:n2c3h38w42k64r7s7:st2:pad3:f16:nhwc", "bwd_w:n2c3h37w41k40r5s6:st3x2:pad2:f16:nchw"}) {
    const Problem p = parse_problem(text);
    const Config c = config(parse_tile("s2d_patch_bt64x32_tp8x8x1_st3"), p);
    ASSERT_TRUE(c.deepened());
    const bool nhwc = p.layout == Layout::nhwc;
    for (int k = 0; k < 2; ++k) {
      for (int r = 0; r < p.r; ++r) {
        for (int s = 0; s < p.s; ++s) {
          for (int channel = 0; channel < p.c; ++channel) {
            const int sh = static_cast<int>(p.stride_h), sw = static_cast<int>(p.stride_w);
            const int deep = (r % sh * sw + s % sw) * static_cast<int>(p.c) + channel;
            EXPECT_EQ(
                from_depth(c, k, r / sh, s / sw, deep),
                nhwc ? ((k * p.r + r) * p.s + s) * p.c + channel : ((k * p.c + channel) * p.r + r) * p.s + s);
          }
        }
      }
    }
    // The last taps reach beyond a filter that is no multiple of its strides.
    const int last = narrow(p.c * p.stride_h * p.stride_w) - 1;
    EXPECT_LT(from_depth(c, 0, c.r - 1, c.s - 1, last), 0);
  }
}

TEST(WeightsGradientSm90, WhatTheCopyEngineDoesNotTakeIsTurnedBefore) {
  const auto turns = [](const char* text, const char* name) {
    const Problem p = parse_problem(text);
    return std::pair(turns_x(parse_tile(name), p), turns_y(parse_tile(name), p));
  };
  const char *const patch = "patch_bt64x64_tp8x32x1_st3", *const lines = "lines_bt64x32_tp8x32x1_st2_ys3";
  EXPECT_EQ(turns("bwd_w:n2c64h32w32k64r3s3:pad1:f16:nhwc", patch), std::pair(false, false));
  EXPECT_EQ(turns("bwd_w:n2c60h32w32k64r3s3:pad1:f16:nhwc", patch), std::pair(true, false));
  EXPECT_EQ(turns("bwd_w:n2c64h32w32k60r3s3:pad1:f16:nhwc", patch), std::pair(false, true));
  EXPECT_EQ(turns("bwd_w:n2c64h32w32k64r3s3:pad1:f16:nchw", patch), std::pair(true, true));
  EXPECT_EQ(turns("bwd_w:n2c64h32w32k64r3s3:pad1:f32:nchw", lines), std::pair(false, false));
  EXPECT_EQ(turns("bwd_w:n2c64h32w33k64r3s3:pad1:f32:nchw", lines), std::pair(true, true));
  EXPECT_EQ(turns("bwd_w:n2c64h32w33k64r3s3:pad1:f32:nhwc", lines), std::pair(false, false));
  EXPECT_EQ(turns("bwd_w:n2c60h28w28k66r1s1:f16:nchw", "planes_bt64x64_tp1x64x1_st3"),
            std::pair(false, false));
}

// Rows of the output's gradient alone are continued, by zeros, which leave the weights' gradient as it is.
TEST(WeightsGradientSm90, RowsAreWidenedWhereTheOutputsAloneAreNoChunks) {
  const Tile wide = parse_tile("wide_lines_bt64x32_tp8x32x1_st2_ys5");
  const Problem p = parse_problem("bwd_w:n2c3h7w12k5r3s3:pad0.1.1.0:f32:nchw");
  ASSERT_EQ(unfit(wide, p), "");
  EXPECT_FALSE(turns_x(wide, p));
  EXPECT_TRUE(turns_y(wide, p));
  const Problem inner = inner_of(wide, p);
  EXPECT_EQ(inner.layout, Layout::nchw);
  EXPECT_EQ(inner.q() % 4, 0);
  EXPECT_LT(inner.q() - p.q(), 4);
  EXPECT_EQ(inner.p(), p.p());
  const Recipe made = recipe(wide, p, h200());
  EXPECT_EQ(made.steps.front().name, "output's gradient in wider rows");

  std::vector<float> x(static_cast<std::size_t>(x_shape(p).elements()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  const TensorShape own = conv_shape(p), wider = conv_shape(inner);
  std::vector<float> y(static_cast<std::size_t>(own.elements())),
      y_wide(static_cast<std::size_t>(wider.elements()), 0.0f);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<float>(i % 5) - 2;
    const auto row = static_cast<std::int64_t>(i) / own.w, column = static_cast<std::int64_t>(i) % own.w;
    y_wide[static_cast<std::size_t>(row * wider.w + column)] = y[i];
  }
  Tensors as_asked, as_seen;
  as_asked.x = as_seen.x = x.data();
  as_asked.y = y.data(), as_seen.y = y_wide.data();
  for (std::int64_t k = 0; k < p.k; ++k) {
    for (std::int64_t c = 0; c < p.c; ++c) {
      for (std::int64_t tap = 0; tap < 9; ++tap) {
        const Position at{k, c, 0, tap / 3, tap % 3};
        EXPECT_EQ(reference(inner, as_seen, at).value, reference(p, as_asked, at).value);
      }
    }
  }

  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r3s3:pad1:f32:nchw", "wide_lines_bt64x32_tp8x32x1_st2_ys5"),
              testing::HasSubstr("whose output alone"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w33k64r3s3:f32:nchw", "wide_lines_bt64x32_tp8x32x1_st2_ys5"),
              testing::HasSubstr("whose output alone"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r3s3:f16:nchw", "wide_patch_bt64x64_tp8x32x1_st3"),
              testing::HasSubstr("for lines alone"));
}

// What the copy engine brings of a tensor whose elements are their own indices; outside of the map -1.
std::vector<std::int64_t> box_of(const TiledMap& map, const std::int64_t (&start)[4]) {
  std::vector<std::int64_t> box;
  std::int64_t at[4];
  for (at[3] = start[3]; at[3] < start[3] + map.box[3]; ++at[3]) {
    for (at[2] = start[2]; at[2] < start[2] + map.box[2]; ++at[2]) {
      for (at[1] = start[1]; at[1] < start[1] + map.box[1]; ++at[1]) {
        for (at[0] = start[0]; at[0] < start[0] + map.box[0]; ++at[0]) {
          std::int64_t bytes = at[0] * size_of(map.dtype);
          bool inside = true;
          for (int i = 0; i < 4; ++i) {
            inside = inside && at[i] >= 0 && at[i] < map.size[i];
            if (i > 0) bytes += at[i] * map.stride_bytes[i - 1];
          }
          box.push_back(inside ? bytes / size_of(map.dtype) : -1);
        }
      }
    }
  }
  return box;
}

// Every pixel that a tap reads is where the kernel looks for it, whatever rows and planes begin at; and no
// box begins beside 16 bytes or reaches beyond the tensor.
TEST(WeightsGradientSm90, RowsOfRunsLieWhereTheyAreReadInTheirBoxes) {
  const std::tuple<const char*, const char*, int> all[] = {
      {"bwd_w:n2c8h10w20k24r3s3:f32:nchw", "runs_lines_bt64x32_tp8x32x1_st2_ys5", 1},
      {"bwd_w:n2c3h7w44k70r3s3:f32:nchw", "runs_lines_bt64x32_tp4x32x1_st2_ys6", 2},
      {"bwd_w:n1c4h8w36k8r2s2:f32:nchw:math=tf32", "runs_lines_bt64x64_tp8x16x1_st2_ys5", 4},
      {"bwd_w:n2c6h12w12k8r2s2:f32:nchw", "runs_lines_bt64x32_tp8x32x1_st2_ys5", 4},
      {"bwd_w:n2c8h20w72k132r3s3:f16:nchw", "runs_lines_bt64x64_tp8x64x1_st2_ys5", 2},
      {"bwd_w:n1c33h9w136k20r3s3:bf16:nchw", "runs_lines_bt64x64_tp4x32x1_st2_ys6", 4},
      {"bwd_w:n1c8h9w24k16r2s3:pad0.0.1.3:f16:nchw", "runs_lines_bt64x64_tp8x32x1_st2_ys3", 1},
      {"bwd_w:n1c8h10w64k64r3s3:pad1.1.0.0:f16:nchw", "runs_lines_bt64x64_tp4x64x1_st2_ys6", 2}};
  for (const auto& [text, name, together] : all) {
    SCOPED_TRACE(text);
    const Problem p = parse_problem(text);
    const Tile tile = parse_tile(name);
    ASSERT_EQ(unfit(tile, p), "");
    const Config c = config(tile, p);
    const int late = late_by(c, p.p() * p.q()), q = narrow(p.q());
    EXPECT_EQ(channels_together(c, late), together);
    const Recipe made = recipe(tile, p, h200());
    const auto& launch = std::get<Launch>(made.steps.front().work);
    const auto& map = std::get<TiledMap>(launch.arguments[1].maps.front().shape);
    const TensorShape dy = conv_shape(p);
    for (int n = 0; n < p.n; ++n) {
      for (int k = 0; k < p.k; k += kOutChannels) {
        for (int row = 0; row < p.p(); ++row) {
          for (int column = 0; column < p.w; column += c.width) {
            const int start = box_start(c, row, q, column);
            EXPECT_EQ(start % chunk_pixels(c), 0);
            const std::vector<std::int64_t> box = box_of(map, {start, 0, k / channels_together(c, late), n});
            ASSERT_EQ(static_cast<int>(box.size()) * c.element_bytes(), line_bytes(c));
            EXPECT_LT(*std::ranges::max_element(box), dy.elements());
            for (int channel = 0; channel < kOutChannels; ++channel) {
              for (int i = -(c.s - 1) * c.dilation_w + c.pad_left; i < c.width + c.pad_left; ++i) {
                const int at = place_in_box(c, late, channel, i) / c.element_bytes() + row_shift(c, row, q);
                ASSERT_TRUE(at >= channel * line_pixels(c) && at < (channel + 1) * line_pixels(c)) << i;
                if (column + i < 0 || column + i >= q) continue;  // read as zero
                const std::int64_t want =
                    k + channel < p.k ? ((n * p.k + k + channel) * p.p() + row) * q + column + i : -1;
                ASSERT_EQ(box[static_cast<std::size_t>(at)], want) << channel << ' ' << row << ' ' << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST(WeightsGradientSm90, AWarpReadsEveryBankOnceOfRunsOfOneOrTwoChannels) {
  const std::tuple<const char*, const char*, int> all[] = {
      {"bwd_w:n128c64h64w64k64r3s3:f32:nchw", "runs_lines_bt64x32_tp8x32x1_st2_ys5", 0},
      {"bwd_w:n2c3h7w44k70r3s3:f32:nchw", "runs_lines_bt64x32_tp4x16x1_st2_ys6", 8},
      {"bwd_w:n128c64h64w64k64r3s3:f16:nchw", "runs_lines_bt64x64_tp8x64x1_st2_ys5", 8},
      {"bwd_w:n128c64h32w32k64r3s3:bf16:nchw", "runs_lines_bt64x64_tp4x32x1_st2_ys6", 8}};
  for (const auto& [text, name, late_bytes] : all) {
    const Problem p = parse_problem(text);
    ASSERT_EQ(why_not(text, name), "");
    const Config c = config(parse_tile(name), p);
    const int late = late_by(c, p.p() * p.q()), pixels_of_word = 4 / c.element_bytes();
    EXPECT_EQ(late * c.element_bytes(), late_bytes);
    std::set<int> words[32];
    for (int load = 0; load < 2; ++load) {
      std::set<int> banks;
      for (int lane = 0; lane < 32; ++lane) {
        const int word = word_of_lane(crosses(c, late), lane, load);
        banks.insert(place_in_box(c, late, lane / 4, word * pixels_of_word) / 4 % 32);
        words[lane].insert(word);
      }
      EXPECT_EQ(banks.size(), 32u) << text << load;
    }
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(words[lane], (std::set<int>{lane % 4, lane % 4 + 4}));
  }
}

// Nothing is copied: rows of no multiple of 16 bytes are read as they lie, where they are whole words.
TEST(WeightsGradientSm90, RowsAreReadAsRunsWhereTheOutputsAloneAreNoChunks) {
  const char* const f32 = "runs_lines_bt64x32_tp8x32x1_st2_ys5";
  const char* const f16 = "runs_lines_bt64x64_tp8x64x1_st2_ys5";
  const Problem p = parse_problem("bwd_w:n2c64h32w32k64r3s3:f32:nchw");
  EXPECT_EQ(recipe(parse_tile(f32), p, h200()).steps.size(), 1u);
  EXPECT_EQ(why_not("bwd_w:n2c64h32w32k64r3s3:f16:nchw", f16), "");
  EXPECT_EQ(why_not("bwd_w:n2c64h32w32k64r3s3:g2:f16:nchw", f16), "");
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r3s3:pad1:f32:nchw", f32),
              testing::HasSubstr("whose output alone"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w33k64r3s3:f32:nchw", f32), testing::HasSubstr("whose output alone"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r3s3:f32:nhwc", f32), testing::HasSubstr("whose output alone"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r2s2:f16:nchw", f16), testing::HasSubstr("multiple of 4 bytes"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k63r3s3:f16:nchw", f16), testing::HasSubstr("planes in runs"));
  EXPECT_THAT(why_not("bwd_w:n2c64h3w8k64r3s3:f16:nchw", f16), testing::HasSubstr("16 bytes or more"));
  EXPECT_THAT(why_not("bwd_w:n2c64h6w12k64r2s2:f32:nchw", f32), testing::HasSubstr("has room"));
  EXPECT_THAT(why_not("bwd_w:n2c64h32w32k64r3s3:f16:nchw", "runs_patch_bt64x64_tp8x32x1_st3"),
              testing::HasSubstr("lines alone"));
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const std::tuple<const char*, const char*, int> all[] = {
      {"bwd_w:n128c64h64w64k64r3s3:f32:nchw", "runs_lines_bt64x32_tp8x32x1_st2_ys5_sk66", 12},
      {"bwd_w:n128c64h64w64k64r3s3:f32:nchw:math=tf32", "runs_lines_bt64x64_tp4x32x1_st2_ys6_sk132", 4},
      {"bwd_w:n128c64h64w64k64r3s3:f16:nchw", "runs_lines_bt64x64_tp4x64x1_st2_ys6_sk132", 4},
      {"bwd_w:n128c64h64w64k64r3s3:bf16:nchw", "runs_lines_bt64x64_tp8x32x1_st2_ys5_cl2_sk132", 2},
      {"bwd_w:n2c6h12w12k8r2s2:f32:nchw:math=tf32", "runs_lines_bt64x64_tp8x16x1_st2_ys3_sk2", 2}};
  for (const auto& [text, name, products] : all) expect_good_kernel(parse_problem(text), name, products);
}

// By the model the copy of wide_lines_… is not worth its time where runs are read.
TEST(WeightsGradientSm90, RunsAreChosenBeforeACopy) {
  for (const char* math : {"f32", "f32:math=tf32", "f16"}) {
    for (const int size : {32, 64, 128, 256}) {
      const std::string side = std::to_string(size), shape = "bwd_w:n128c64h" + side + "w" + side + "k64r3s3";
      const auto first = [&](const std::string& padding, Form form) {
        const Problem problem = parse_problem(shape + padding + ":" + math + ":nchw");
        double least = 1e9;
        for (const Tile& tile : tiles(problem, kMultiprocessors)) {
          if (tile.form == form) least = std::min(least, cost(tile, problem, {kMultiprocessors}).ms);
        }
        return least;
      };
      const double runs = first("", Form::runs), padded = first(":pad1", Form::plain);
      EXPECT_LT(runs, 0.9 * first("", Form::widened)) << size << math;
      EXPECT_LT(runs, padded * 1.01) << size << math;
      EXPECT_GT(runs, padded * 0.9) << size << math;
    }
  }
}

// Two blocks of neighbouring channels bring half of what both multiply each.
TEST(WeightsGradientSm90, PairsOfBlocksBringForEachOther) {
  const Problem flat = parse_problem("bwd_w:n8c256h14w14k256r1s1:f16:nhwc");
  const Problem planes = parse_problem("bwd_w:n8c256h28w28k256r1s1:f16:nchw");
  const std::pair<const Problem*, const char*> fits[] = {{&flat, "patch_bt64x64_tp1x64x1_st12_mx"},
                                                         {&flat, "patch_bt64x128_tp1x64x1_st8_mx_sk2"},
                                                         {&flat, "patch_bt64x128_tp1x128x1_st4_my_sk2"},
                                                         {&flat, "patch_bt128x128_tp1x64x1_st6_my"},
                                                         {&planes, "planes_bt64x128_tp1x64x1_st9_mx_sk3"}};
  for (const auto& [problem, name] : fits) {
    const Tile tile = parse_tile(name);
    ASSERT_EQ(unfit(tile, *problem), "") << name;
    EXPECT_EQ(to_string(tile), name);
    for (const Step& step : recipe(tile, *problem, h200()).steps) {
      if (step.name != "weights_gradient") continue;
      EXPECT_EQ(std::get<Launch>(step.work).shape.cluster[0], 2u) << name;
    }
  }
  const auto why = [&](const Problem& problem, const char* name) { return unfit(parse_tile(name), problem); };
  EXPECT_THAT(why(flat, "patch_bt64x64_tp1x64x1_st3_cl2_mx_sk2"),
              testing::HasSubstr("add up their sums, or"));
  EXPECT_THAT(why(flat, "patch_bt64x192_tp1x64x1_st3_mx"), testing::HasSubstr("half of the blocks"));
  EXPECT_THAT(why(flat, "patch_bt256x64_tp1x64x1_st3_mx"), testing::HasSubstr("even number"));
  EXPECT_THAT(why(parse_problem("bwd_w:n8c256h14w14k256r3s3:pad1:f16:nhwc"), "patch_bt64x64_tp8x8x1_st3_mx"),
              testing::HasSubstr("rows of 64 pixels"));
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  for (const auto& [problem, name] : fits)
    expect_good_kernel(*problem, name, pixels(config(parse_tile(name), *problem)) / 16);
}

// One box has several blocks of 64 channels where there are no others.
TEST(WeightsGradientSm90, BoxesHaveBlocksOfChannelsWhereTheseAreWhole) {
  const auto have = [](const char* text, const char* name) {
    return config(parse_tile(name), parse_problem(text)).boxes_of_blocks;
  };
  EXPECT_TRUE(have("bwd_w:n8c256h14w14k256r1s1:f16:nhwc", "patch_bt64x128_tp1x64x1_st3"));
  EXPECT_TRUE(have("bwd_w:n8c256h15w15k256r3s3:st2:pad1:f16:nhwc", "patch_bt128x128_tp8x8x1_st3"));
  EXPECT_FALSE(have("bwd_w:n8c264h14w14k256r1s1:f16:nhwc", "patch_bt64x128_tp1x64x1_st3"));
  EXPECT_FALSE(have("bwd_w:n8c256h14w14k200r1s1:f16:nhwc", "patch_bt64x128_tp1x64x1_st3"));
  EXPECT_FALSE(have("bwd_w:n8c256h14w14k256r1s1:f16:nhwc", "patch_bt64x64_tp1x64x1_st3"));
  EXPECT_FALSE(have("bwd_w:n8c256h14w14k256r1s1:g2:f16:nhwc", "patch_bt64x128_tp1x64x1_st3"));
}

// Of images whose rows are no eights, several lie side by side in each pixel's place: nothing is summed in
// vain.
TEST(WeightsGradientSm90, ImagesLieSideBySideWhereRowsAreNoEights) {
  const Problem problem = parse_problem("bwd_w:n32c256h14w14k256r3s3:pad1:f16:nhwc");
  const Tile tile = parse_tile("patch_bt64x32_tp14x2x4_st4"),
             eights = parse_tile("patch_bt64x32_tp14x8x1_st4");
  ASSERT_EQ(unfit(tile, problem), "");
  EXPECT_TRUE(together(config(tile, problem)) == 4 && together(config(eights, problem)) == 1);
  const auto summed = [&](const Tile& t) { return counts(t, problem).pixels() * pixels(config(t, problem)); };
  EXPECT_TRUE(summed(tile) == 32 * 14 * 14 && summed(eights) == 32 * 14 * 16);
  const auto listed = [](const char* text) {
    return std::ranges::any_of(tiles(parse_problem(text), kMultiprocessors),
                               [](const Tile& t) { return t.width % 8 != 0; });
  };
  EXPECT_TRUE(listed("bwd_w:n32c64h14w14k64r3s3:pad1:f16:nhwc"));
  EXPECT_FALSE(listed("bwd_w:n128c64h64w64k64r3s3:f16:nhwc"));  // 62 columns are nearly 64
  const Step step = recipe(tile, problem, h200()).steps.front();
  const StepArgument& x = std::get<Launch>(step.work).arguments.front();
  const auto& map = std::get<TiledMap>(x.maps.front().shape);  // c, n, w, h
  EXPECT_THAT(map.size, testing::ElementsAre(256, 32, 14, 14, 0));
  EXPECT_THAT(map.box, testing::ElementsAre(32, 4, 4, 16, 0));
  EXPECT_THAT(map.stride_bytes, testing::ElementsAre(14 * 14 * 512, 512, 14 * 512, testing::_));
  EXPECT_THAT(why_not("bwd_w:n32c64h14w14k64r3s3:pad1:f16:nhwc", "patch_bt64x64_tp14x2x2_st2"),
              testing::HasSubstr("by 8"));
  EXPECT_THAT(why_not("bwd_w:n32c64h28w28k64r3s3:st2:pad1:f16:nhwc", "patch_bt64x64_tp4x2x4_st2"),
              testing::HasSubstr("side by side"));
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const std::pair<const char*, const char*> all[] = {
      {"bwd_w:n32c256h14w14k256r3s3:pad1:f16:nhwc", "patch_bt64x32_tp14x2x4_st4_sk4"},
      {"bwd_w:n32c128h28w28k128r3s3:pad1:f16:nhwc", "patch_bt64x64_tp14x4x2_st3_sk8"},
      {"bwd_w:n32c512h7w7k512r3s3:pad1:f16:nhwc", "patch_bt64x32_tp1x7x16_st5"},
      {"bwd_w:n32c256h28w28k256r3s3:st2:pad1:f16:nhwc", "patch_bt128x128_tp14x2x4_st4_sk3"}};
  for (const auto& [text, name] : all) expect_good_kernel(parse_problem(text), name, 7);
}

// Planes of 4 more pixels than a multiple of 8 are brought by warps, as they lie.
TEST(WeightsGradientSm90, WarpsFetchPlanesThatTheCopyEngineDoesNotTake) {
  const Problem problem = parse_problem("bwd_w:n32c256h14w14k1024r1s1:f16:nchw");
  std::set<std::string> kinds;
  for (const Tile& tile : tiles(problem, kMultiprocessors)) {
    if (tile.kind != Kind::fetch) continue;
    EXPECT_FALSE(turns_x(tile, problem) || turns_y(tile, problem)) << to_string(tile);
    EXPECT_EQ(counts(tile, problem).pixels() * tile.width, 32 * 14 * 14) << to_string(tile);
    kinds.insert(to_string(tile));
  }
  EXPECT_FALSE(kinds.empty());
  for (const Tile& tile : tiles(parse_problem("bwd_w:n32c256h28w28k512r1s1:f16:nchw"), kMultiprocessors))
    EXPECT_NE(tile.kind, Kind::fetch) << "the copy engine takes these";
  EXPECT_EQ(why_not("bwd_w:n5c72h6w10k40r1s1:bf16:nchw", "fetch_bt64x64_tp1x64x1_st3"), "");
  EXPECT_THAT(why_not("bwd_w:n5c72h7w7k40r1s1:bf16:nchw", "fetch_bt64x64_tp1x64x1_st3"),
              testing::HasSubstr("multiple of 4 pixels"));
  EXPECT_THAT(why_not("bwd_w:n5c72h6w10k40r1s1:bf16:nhwc", "fetch_bt64x64_tp1x64x1_st3"),
              testing::HasSubstr("NCHW"));
  EXPECT_THAT(why_not("bwd_w:n8c256h14w14k256r1s1:f16:nchw", "fetch_bt128x256_tp1x64x1_st2"),
              testing::HasSubstr("16384 weights"));
  EXPECT_THAT(why_not("bwd_w:n8c256h14w14k256r1s1:f16:nchw", "fetch_bt128x128_tp1x64x1_st6"),
              testing::HasSubstr("shared memory"));
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  for (const char* name : {"fetch_bt64x64_tp1x64x1_st2", "fetch_bt64x256_tp1x64x1_st3_sk4",
                           "fetch_bt128x128_tp1x64x1_st4_sk4", "fetch_bt64x128_tp1x128x1_st3_cl2_sk4"})
    expect_good_kernel(problem, name, parse_tile(name).width / 16);
}

// A block that has whole filters of NCHW stores them as they are, and so does the sum of a few parts; others
// are turned by a step.
TEST(WeightsGradientSm90, FiltersOfNchwAreStoredAsTheyAreWhereTheyCanBe) {
  const Problem problem = parse_problem("bwd_w:n32c512h7w7k512r3s3:pad1:f16:nchw");
  const Tile whole = parse_tile("patch_bt64x32_tp7x8x2_st8"), taps = parse_tile("patch_bt64x128_tp7x8x2_st3"),
             few = parse_tile("patch_bt64x128_tp7x8x2_st3_sk2"),
             cluster = parse_tile("patch_bt64x32_tp7x8x2_st8_cl2_sk2"),
             many = parse_tile("patch_bt64x32_tp8x8x1_st8_sk17");
  EXPECT_TRUE(has_filters(config(whole, problem)));
  EXPECT_FALSE(turns_result(whole, problem));
  EXPECT_EQ(recipe(whole, problem, h200()).steps.size(), 2u);
  const Problem strided = parse_problem("bwd_w:n32c512h14w14k512r3s3:st2:pad1:f16:nchw");
  const std::pair<const Tile*, const Problem*> turned[] = {
      {&taps, &strided}, {&cluster, &problem}, {&many, &problem}};
  for (const auto& [tile, p] : turned) {
    ASSERT_EQ(unfit(*tile, *p), "") << to_string(*tile);
    EXPECT_FALSE(has_filters(config(*tile, *p))) << to_string(*tile);
    EXPECT_TRUE(turns_result(*tile, *p)) << to_string(*tile);
  }
  ASSERT_EQ(unfit(few, strided), "");
  EXPECT_TRUE(sums_filters(few, strided) && !turns_result(few, strided));
  const std::vector<Step> steps = recipe(few, strided, h200()).steps;
  ASSERT_EQ(steps.size(), 3u);
  const Launch& sum = std::get<Launch>(steps.back().work);
  EXPECT_EQ(sum.shape.grid[0], 512 / kSumOutputs * 512 / kSumInputs);
  EXPECT_EQ(sum.shape.block[0], 576u);
  const Problem pixels = parse_problem("bwd_w:n32c512h7w7k512r3s3:pad1:f16:nhwc");
  EXPECT_FALSE(has_filters(config(whole, pixels)) || turns_result(whole, pixels));
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  for (const char* name :
       {"patch_bt64x32_tp7x8x2_st8", "patch_bt64x64_tp7x8x2_st4", "patch_bt64x16_tp1x7x16_st2"})
    expect_good_kernel(problem, name, 7);
}

}  // namespace
}  // namespace faltung::weights_gradient_sm90
