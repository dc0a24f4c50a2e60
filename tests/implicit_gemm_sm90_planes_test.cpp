// 32-bit planes of NCHW as Hopper's matrix units take them, through registers, as far as no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/sm90/planes_pixels.h"
#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/backend/nvrtc.hpp"
#include "tests/machine_code.hpp"
#include "tests/sm90_checks.hpp"
#include "tests/sm90_problems.hpp"

namespace faltung::sm90 {
namespace {

constexpr const char* kServed = "fwd:n32c512h28w28k256r1s1:f32:nchw:math=tf32";

std::vector<Tiling> planes_of(const Problem& p) {
  std::vector<Tiling> all = tilings(p, kChip);
  std::erase_if(all, [](const Tiling& t) { return t.bring != Bring::planes; });
  return all;
}

// The threads of a warp that shared memory answers at the same time: as many as read 128 bytes.
TEST(ImplicitGemmSm90Planes, AReadMeetsEveryBankOnce) {
  for (const int blocks : {1, 2}) {
    const int pixels = 2 * blocks, together = 32 / pixels;
    for (int first = 0; first < 128; first += together) {
      for (int channel = 0; channel < planes::kBox; channel += 4) {
        std::set<int> banks;
        for (int thread = first; thread < first + together; ++thread) {
          const int at = planes::place_of(planes::first_pixel(blocks, thread), channel + thread % 4);
          EXPECT_EQ(at % (pixels * 4), 0);
          for (int i = 0; i < pixels; ++i) banks.insert((at / 4 + i) % 32);
        }
        EXPECT_EQ(banks.size(), 32u) << blocks << " blocks, thread " << first << ", channel " << channel;
      }
    }
  }
}

// Of a consumer's pixels every one is of four threads, which have different channels, and lies alone.
TEST(ImplicitGemmSm90Planes, EveryPixelIsRead) {
  for (const int blocks : {1, 2}) {
    std::map<int, std::set<int>> channels;  // a pixel's
    std::set<int> places;
    for (int thread = 0; thread < 128; ++thread) {
      const int first = planes::first_pixel(blocks, thread);
      for (int i = 0; i < 2 * blocks; ++i) {
        channels[first + i].insert(thread % 4);
        // Side by side in memory, too.
        EXPECT_EQ(planes::place_of(first + i, thread % 4), planes::place_of(first, thread % 4) + 4 * i);
      }
    }
    EXPECT_EQ(channels.size(), 64u * static_cast<unsigned>(blocks));
    for (const auto& [pixel, met] : channels) {
      EXPECT_EQ(met.size(), 4u) << pixel;
      for (int c = 0; c < planes::kBox; ++c) places.insert(planes::place_of(pixel, c));
    }
    EXPECT_EQ(places.size(), channels.size() * planes::kBox);
    EXPECT_LT(*places.rbegin(), 2 * blocks * planes::kBoxBytes);
  }
}

TEST(ImplicitGemmSm90Planes, TheyServeOneTap) {
  for (const char* text :
       {kServed, "fwd:n32c64h56w56k64r1s1:f32:nchw:math=tf32:bias:relu:residual",
        "fwd:n3c5h2w2k7r1s1:f32:nchw:math=tf32", "fwd:n2c64h8w9k64r1s1:g2:f32:nchw:math=tf32",
        "fwd:n8c88h14w14k528r1s1:f32:nchw:math=tf32:gelu", "fwd:n32c512h28w28k256r1s1:f32:nchw",
        "fwd:n3c50h2w2k7r1s1:f32:nchw:bias"}) {
    const Problem p = parse_problem(text);
    const std::vector<Tiling> all = planes_of(p);
    ASSERT_FALSE(all.empty()) << text;
    for (const Tiling& t : all) {
      const std::string name = to_string(t);
      EXPECT_TRUE(t.pixels_on_m()) << name;
      EXPECT_EQ(to_string(parse_tiling(name)), name);
      EXPECT_LE(shared_bytes(t, p), kSharedLimit) << name;
      EXPECT_LE(t.sums(), tf32_parts(p) == 2 ? 64 : 128) << name;
      EXPECT_FALSE(turns_input(t, p));
      EXPECT_FALSE(stores_by_map(t, p));
      EXPECT_GT(estimate(t, p, kChip).ms, 0);
    }
  }
  expect_unfit({
      {"planes_bt128x128_k32_pp_px_st7", "fwd:n32c512h28w28k256r1s1:f32:nhwc:math=tf32", "planes serve NCHW"},
      {"planes_bt128x128_k32_pp_px_st3", "fwd:n32c512h28w28k256r1s1:f32:nchw", "64 pixels a consumer"},
      {"planes_bt192x128_k32_co_px_st2", "fwd:n32c512h28w28k256r1s1:f32:nchw", "up to 128 channels"},
      {"planes_bt24x128_k32_co_px_st3", "fwd:n32c512h28w28k24r1s1:f32:nchw", "no halves"},
      {"planes_bt128x128_k32_pp_px_st7", "fwd:n32c512h7w7k256r1s1:f32:nchw:math=tf32",
       "multiple of 4 pixels"},
      {"planes_bt128x128_k32_pp_px_st7", "fwd:n32c512h28w28k256r3s3:f32:nchw:math=tf32", "1x1 filters"},
      {"planes_bt128x128_k32_pp_px_st7", "fwd:n32c512h28w28k256r1s1:st2:f32:nchw:math=tf32", "stride 1"},
      {"planes_bt128x128_k32_pp_st7", kServed, "or from registers"},
      {"planes_bt128x128_k16_pp_px_st7", kServed, "by 32 channels"},
      {"planes_bt160x128_k32_pp_px_st4", kServed, "registers"},
      {"planes_bt128x256_k32_co_px_st5", kServed, "shared memory"},
      {"planes_bt128x128_k32_co_px_st7_sk2", kServed, "no planes"},
  });
}

// A tile goes on with the next image's boxes.
TEST(ImplicitGemmSm90Planes, TilesAreOfBoxesOfAllImages) {
  const Tiling t = parse_tiling("planes_bt128x128_k32_pp_px_st7");
  const auto tiles_of = [&](const char* text) { return tiles(t, parse_problem(text)); };
  EXPECT_EQ(tiles_of("fwd:n5c64h14w14k128r1s1:f32:nchw:math=tf32"), 9);  // 7 boxes an image
  EXPECT_EQ(tiles_of("fwd:n5c64h14w14k129r1s1:f32:nchw:math=tf32"), 2 * 9);
  EXPECT_EQ(tiles_of("fwd:n32c64h56w56k128r1s1:f32:nchw:math=tf32"), 32 * 98 / 4);
  EXPECT_EQ(tiles_of("fwd:n7c64h2w2k128r1s1:f32:nchw:math=tf32"), 2);
}

TEST(ImplicitGemmSm90Planes, NothingIsTurned) {
  expect_one_step("planes_bt64x128_k32_pp_px_st7", 1,
                  {kServed, "bwd_d:n3c64h14w14k96r1s1:f32:nchw:math=tf32"});
}

TEST(ImplicitGemmSm90Planes, NvrtcCompilesThemForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const struct {
    const char *problem, *tiling;
  } kinds[] = {
      {kServed, "planes_bt128x128_k32_pp_px_st7"},
      {"fwd:n32c512h28w28k256r1s1:f32:nchw:math=tf32:bias:residual:gelu", "planes_bt128x128_k32_co_px_st7"},
      {"fwd:n32c512h28w28k256r1s1:f32:nchw:math=tf32:bias:residual:silu", "planes_bt256x128_k32_co_px_st4"},
      {"fwd:n32c512h28w28k256r1s1:f32:nchw:math=tf32:relu:residual", "planes_bt64x64_k32_pp_px_st8"},
      {"fwd:n32c64h56w56k64r1s1:f32:nchw:math=tf32:bias:gelu", "planes_bt64x256_k32_co_px_xs5_wres"},
      {"fwd:n2c5h4w6k7r1s1:f32:nchw:math=tf32", "planes_bt8x128_k32_pp_px_xs6_wres"},
      {"fwd:n8c88h14w14k528r1s1:f32:nchw:math=tf32:bias", "planes_bt176x64_k32_pp_px_st7"},
      {"fwd:n32c512h28w28k256r1s1:f32:nchw:bias:residual:gelu", "planes_bt128x128_k32_co_px_st3"},
      {"fwd:n32c64h56w56k64r1s1:f32:nchw", "planes_bt64x64_k32_pp_px_xs3_wres"},
  };
  for (const auto& kind : kinds) {
    const Problem p = parse_problem(kind.problem);
    const Tiling t = parse_tiling(kind.tiling);
    ASSERT_EQ(unfit(t, p), "") << kind.tiling;
    const Binary binary = nvrtc->compile(kernel_source(t, p).whole(), "sm_90a");
    EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << kind.tiling;
    // Products made to wait for each other, registers not set.
    EXPECT_THAT(binary.log, testing::Not(testing::ContainsRegex("C75"))) << kind.tiling;
    const int products = tf32_parts(p) == 2 ? 2 * 3 : t.m_blocks();  // of two halves of the columns
    EXPECT_EQ(count_instructions(binary.code, kHgmma), t.k_block / 8 * products) << kind.tiling;
    EXPECT_EQ(count_instructions(binary.code, kHgmmaOfShared), 0) << kind.tiling;
  }
}

}  // namespace
}  // namespace faltung::sm90
