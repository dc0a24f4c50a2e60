// Lines of 32-bit NCHW as Hopper's matrix units take them, through registers, as far as no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/sm90/lines_pixels.h"
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

constexpr const char* kInLines = "fwd:n128c64h256w256k64r3s3:pad1:f32:nchw:math=tf32";

std::vector<Tiling> lines_of(const Problem& p) {
  std::vector<Tiling> all = tilings(p, kChip);
  std::erase_if(all, [](const Tiling& t) { return t.bring != Bring::lines; });
  return all;
}

const char* const kShapes[] = {"lines_bt64x16x8_k8_pp_px_xs4_wres",  "lines_bt64x32x8_k8_pp_px_xs4_wres",
                               "lines_bt64x64x4_k8_pp_px_xs4_wres",  "lines_bt64x128x1_k8_pp_px_xs4_wres",
                               "lines_bt64x16x32_k8_co_px_xs2_wres", "lines_bt64x32x16_k16_co_px_st2"};

// The threads of a warp that shared memory answers at the same time: eight of 16 bytes each, all of 4 bytes
// of which some want the same.
TEST(ImplicitGemmSm90Lines, AReadMeetsEveryBankOnce) {
  for (const char* name : kShapes) {
    const Tiling t = parse_tiling(name);
    for (const int pad_left : {0, 1, 2}) {
      const auto word = [&](int thread, int column) {
        const lines::Pixel at = lines::first_pixel(t, thread);
        return lines::place_of(t, pad_left, at.row, at.column + column, thread % 4) / 4;
      };
      for (int first = 0; first < 128; first += 8) {
        std::set<int> banks;
        for (int thread = first; thread < first + 8; ++thread) {
          EXPECT_EQ(word(thread, 0) % 4, 0);
          for (int i = 0; i < 4; ++i) banks.insert((word(thread, 0) + i) % 32);
        }
        EXPECT_EQ(banks.size(), 32u) << name << ", thread " << first;
      }
    }
  }
}

// Of a consumer's pixels every one is of four threads, which have different channels.
TEST(ImplicitGemmSm90Lines, EveryPixelIsRead) {
  for (const char* name : kShapes) {
    const Tiling t = parse_tiling(name);
    std::map<std::pair<int, int>, std::set<int>> channels;  // a pixel's
    for (int thread = 0; thread < 128; ++thread) {
      const lines::Pixel at = lines::first_pixel(t, thread);
      for (int row = 0; row < lines::rows_a_thread(t); ++row) {
        for (int i = 0; i < lines::kRun; ++i) channels[{at.row + row, at.column + i}].insert(thread % 4);
      }
    }
    EXPECT_EQ(channels.size(), static_cast<std::size_t>(t.width * lines::consumer_rows(t))) << name;
    EXPECT_EQ(lines::consumer_rows(t) * t.sharers(), t.height) << name;
    for (const auto& [pixel, met] : channels) {
      EXPECT_EQ(met.size(), 4u) << name;
      EXPECT_LT(pixel.first, lines::consumer_rows(t)) << name;
      EXPECT_LT(pixel.second, t.width) << name;
    }
  }
}

TEST(ImplicitGemmSm90Lines, TheyServeFiltersOfUpToThree) {
  for (const char* text :
       {kInLines, "fwd:n128c64h256w256k64r3s3:f32:nchw:math=tf32:bias:relu:residual",
        "fwd:n1c256h224w224k256r3s3:f32:nchw:math=tf32", "fwd:n3c5h9w12k7r2s3:pad1:f32:nchw:math=tf32",
        "fwd:n2c64h8w12k64r1s3:f32:nchw:math=tf32", "fwd:n2c64h8w12k128r3s3:pad1:g2:f32:nchw:math=tf32",
        "fwd:n2c64h20w20k64r3s3:dil1x2:pad1x2:f32:nchw:math=tf32",
        "fwd:n128c64h256w256k64r3s3:pad1:f32:nchw:bias", "fwd:n3c16h9w12k40r3s3:pad2:f32:nchw"}) {
    const Problem p = parse_problem(text);
    const std::vector<Tiling> all = lines_of(p);
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
      const KernelConfig c = kernel_config(t, p);
      // What the taps reach beside a tile is in its lines, which the copy engine takes.
      EXPECT_GE(patch_width(c),
                t.width + lines::chunks_before(c.pad_left) * 4 + (p.s - 1) * p.dilation_w - p.pad_left);
      EXPECT_LE(patch_width(c), 256);
      EXPECT_EQ(slot_stride(c), part_stride(c)) << "parts are made in registers";
    }
  }
  expect_unfit({
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:pad1:f32:nhwc:math=tf32",
       "lines serve NCHW"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:pad1:f16:nchw", "32, 64 or 128 bytes"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "one row a thread"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r5s5:pad2:f32:nchw:math=tf32", "up to three"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r1s1:f32:nchw:math=tf32", "more than one"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:st2:pad1:f32:nchw:math=tf32", "stride 1"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w66k64r3s3:pad1:f32:nchw:math=tf32", "not 66"},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:dil1x4:pad1x4:f32:nchw:math=tf32", ""},
      {"lines_bt64x32x8_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r3s3:dil1x5:pad1x5:f32:nchw:math=tf32",
       "four columns"},
      {"lines_bt64x128x1_k8_pp_px_xs4_wres", "fwd:n2c64h64w64k64r1s3:f32:nchw:math=tf32", "an even number"},
      {"lines_bt64x32x8_k8_pp_px_st4", kInLines, "keep their weights"},
      {"lines_bt64x32x8_k8_pp_px_xs3_wres", kInLines, "of their own"},
      {"lines_bt64x32x4_k8_co_px_st4", kInLines, "one or two rows"},
      {"lines_bt64x8x32_k8_pp_px_xs4_wres", kInLines, "16, 32, 64 or 128"},
      {"lines_bt48x32x16_k8_co_px_st4", kInLines, "multiple of 32"},
      {"lines_bt64x32x8_k8_pp_xs4_wres", kInLines, "or from registers"},
      {"lines_bt64x32x16_k8_co_px_st2_sk2", kInLines, "take their place"},
      {"lines_bt64x32x16_k16_co_px_st3", kInLines, "shared memory"},
  });
}

TEST(ImplicitGemmSm90Lines, NothingIsTurned) {
  expect_one_step("lines_bt64x32x8_k8_pp_px_xs4_wres", 9,
                  {kInLines, "bwd_d:n3c64h16w16k64r3s3:pad1:f32:nchw:math=tf32"});
}

TEST(ImplicitGemmSm90Lines, NvrtcCompilesThemForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const struct {
    const char *problem, *tiling;
  } kinds[] = {
      {kInLines, "lines_bt64x32x8_k8_pp_px_xs6_wres"},
      {"fwd:n128c64h256w256k64r3s3:f32:nchw:math=tf32:bias:residual:gelu",
       "lines_bt64x64x4_k8_pp_px_xs4_wres"},
      {"fwd:n1c256h224w224k256r3s3:f32:nchw:math=tf32:bias:silu", "lines_bt64x32x16_k16_co_px_st2"},
      {"fwd:n1c256h224w224k256r3s3:f32:nchw:math=tf32:residual", "lines_bt128x32x8_k16_co_px_st2"},
      {"fwd:n4c256h32w16k256r3s3:f32:nchw:math=tf32", "lines_bt64x16x32_k8_co_px_st5_sk8"},
      {"fwd:n4c64h30w20k64r3s3:f32:nchw:math=tf32:pad2:relu", "lines_bt64x16x16_k8_pp_px_xs4_wres"},
      {"fwd:n4c64h30w20k64r1s3:f32:nchw:math=tf32:bias", "lines_bt64x128x4_k16_co_px_st2"},
      {"fwd:n4c64h31w20k64r2s2:f32:nchw:math=tf32:bias", "lines_bt64x32x16_k16_co_px_st2"},
      {"fwd:n128c64h256w256k64r3s3:pad1:f32:nchw:bias:residual:gelu", "lines_bt64x32x8_k8_co_px_st4"},
      {"fwd:n128c64h256w256k64r3s3:f32:nchw", "lines_bt32x64x4_k8_co_px_xs5_wres"},
  };
  for (const auto& kind : kinds) {
    const Problem p = parse_problem(kind.problem);
    const Tiling t = parse_tiling(kind.tiling);
    ASSERT_EQ(unfit(t, p), "") << kind.tiling;
    const Binary binary = nvrtc->compile(kernel_source(t, p).whole(), "sm_90a");
    EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << kind.tiling;
    // Products made to wait for each other, registers not set.
    EXPECT_THAT(binary.log, testing::Not(testing::ContainsRegex("C75"))) << kind.tiling;
    const int products = static_cast<int>(p.r * p.s) * t.m_blocks() * (tf32_parts(p) == 2 ? 3 : 1);
    EXPECT_EQ(count_instructions(binary.code, kHgmma), t.k_block / 8 * products) << kind.tiling;
    EXPECT_EQ(count_instructions(binary.code, kHgmmaOfShared), 0) << kind.tiling;
  }
}

}  // namespace
}  // namespace faltung::sm90
