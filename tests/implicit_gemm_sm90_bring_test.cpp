// Hopper's ways of bringing pixels: whom each serves, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/algorithms/sm90/bring.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/problem/reference.hpp"
#include "tests/sm90_checks.hpp"
#include "tests/sm90_problems.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;

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
  expect_unfit({
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
  });
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
  expect_unfit({
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f16:nhwc", "NCHW alone"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nhwc", "NCHW alone"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w66k64r3s3:pad1:f32:nchw",
       "multiple of 4 pixels, not 66"},
      {"turned_bt64x8x16_k32_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:st2:pad1:f32:nchw", "stride 1"},
      {"turned_bt64x8x16_k16_pp_xs2_ws5_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "32 channels"},
      {"patch_bt64x8x16_k32_pp_xs2_ws4_rs1", "fwd:n2c64h64w64k64r3s3:pad1:f32:nchw", "buffers of their own"},
  });
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
  expect_unfit({
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
  });
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
      if (alternates(t, p)) continue;
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
  expect_unfit({
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r1s1:f16:nhwc", "NCHW"},
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r3s3:f16:nchw", "1x1"},
      {"fetch_bt128x96_k64_co_st4", "fwd:n2c64h7w7k64r1s1:pad1:f16:nchw", "no padding"},
      {"fetch_bt128x96_k32_co_st4", "fwd:n2c64h7w7k64r1s1:f32:nchw", "side by side"},
      {"fetch_bt128x96_k32_co_st4", "fwd:n2c64h7w7k64r1s1:f16:nchw", "by 64 channels"},
  });
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

}  // namespace
}  // namespace faltung::sm90
