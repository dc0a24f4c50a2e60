// Whole images of NCHW whose planes are no multiple of 16 bytes, of which Hopper's copy engine brings every
// second channel and warps the others; as far as no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <variant>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/sm90/copies.hpp"
#include "src/algorithms/sm90/cost.hpp"
#include "src/algorithms/sm90/form.hpp"
#include "src/algorithms/sm90/maps.hpp"
#include "src/algorithms/sm90/phases.hpp"
#include "src/algorithms/sm90/source.hpp"
#include "src/backend/nvrtc.hpp"
#include "tests/machine_code.hpp"
#include "tests/sm90_checks.hpp"
#include "tests/sm90_problems.hpp"

namespace faltung::sm90 {
namespace {

using i64 = std::int64_t;
using Values = std::vector<int>;

Values values(i64 count, int seed) {
  Values v(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int>((i * 2654435761u + seed) >> 7) % 7 - 3;
  return v;
}

// A box as the copy engine writes it: rows of its first dimension, zeros outside of the tensor. What the map
// has inside must be in memory.
std::vector<Values> box(const MapShape& shape, const Values& memory, const std::array<i64, 3>& at) {
  const TiledMap& map = std::get<TiledMap>(shape);
  std::vector<Values> rows;
  for (i64 second = 0; second < map.box[2]; ++second) {
    for (i64 first = 0; first < map.box[1]; ++first) {
      Values& row = rows.emplace_back(static_cast<std::size_t>(map.box[0]), 0);
      for (i64 i = 0; i < map.box[0]; ++i) {
        const i64 index[] = {at[0] + i, at[1] + first, at[2] + second};
        bool inside = true;
        for (int d = 0; d < 3; ++d) inside = inside && index[d] >= 0 && index[d] < map.size[d];
        if (!inside) continue;
        const i64 place = index[0] + (index[1] * map.stride_bytes[0] + index[2] * map.stride_bytes[1]) / 2;
        row[static_cast<std::size_t>(i)] = memory.at(static_cast<std::size_t>(place));
      }
    }
  }
  return rows;
}

// What a block of channels has in shared memory: channels (as they come) by pixels or results.
struct Block {
  std::vector<Values> rows;
  void put(const std::vector<Values>& box, std::size_t first, std::size_t column) {
    for (std::size_t i = 0; i < box.size(); ++i) {
      Values& row = rows[first + i];
      row.resize(std::max(row.size(), column + box[i].size()));
      std::copy(box[i].begin(), box[i].end(), row.begin() + static_cast<i64>(column));
    }
  }
};

// As kernels/sm90/bring/alternating.cuh brings it: boxes of the even channels, of the odd ones what each
// thread loads.
Block pixels_of_block(const Tiling& t, const Problem& p, const Values& x, i64 block, i64 n) {
  Block b{std::vector<Values>(64)};
  const i64 image = p.h * p.w, boxes = (t.pixels() + 63) / 64;
  for (i64 i = 0; i < boxes; ++i)
    b.put(box(x_map(t, p), x, {i * 64, block * 32, n}), 0, static_cast<std::size_t>(i * 64));
  for (std::size_t row = 32; row < 64; ++row) b.rows[row].resize(static_cast<std::size_t>(boxes * 64));
  constexpr i64 kDown = 4, kThreads = 7 * 32;
  const i64 across = t.pixels() / 4;
  for (i64 thread = 0; thread < kThreads; ++thread) {
    const i64 column = thread % across * 4, first = thread / across;
    if (first >= kDown || column >= image) continue;
    i64 at = (n * p.c + 2 * first + 1) * image + column + block * 64 * image;
    for (i64 i = 0; i < 32 / kDown; ++i, at += 2 * kDown * image) {
      EXPECT_EQ(at % 4, 0) << "loads of 8 bytes are aligned";
      for (i64 j = 0; j < 4; ++j)
        b.rows[static_cast<std::size_t>(32 + first + i * kDown)][static_cast<std::size_t>(column + j)] =
            x.at(static_cast<std::size_t>(at + j));
    }
  }
  return b;
}

// The filter as it is, or packed; k0: the tile's first result.
Block weights_of_block(const Tiling& t, const Problem& p, const Values& w, i64 block, i64 k0) {
  Block b{std::vector<Values>(64)};
  if (t.filter_as_it_is()) {
    for (i64 i = 0; i < t.channels / 64; ++i)
      b.put(box(w_map(t, p, 1), w, {k0 + i * 64, 0, block * 64}), 0, static_cast<std::size_t>(i * 64));
    return b;
  }
  for (const Values& result : box(w_map(t, p, 1), w, {block * 64, 0, k0})) {
    for (std::size_t c = 0; c < 64; ++c) b.rows[c].push_back(result[c]);
  }
  return b;
}

Values packed(const Problem& p, const Values& w) {
  const TensorCopy copy = even_channels_first(pixels_of(p, unchanged(p), Operand::w), 64);
  Values v;
  for (i64 k = 0; k < p.k; ++k) {
    for (i64 c = 0; c < p.c; ++c) {
      const Index from = copy.map({k, c, 0, 0}).value();
      EXPECT_EQ(from[kAxisN], k);
      v.push_back(w[static_cast<std::size_t>(k * p.c + from[kAxisC])]);
    }
  }
  return v;
}

constexpr struct {
  const char *problem, *tiling;
} kMultiplied[] = {
    {"fwd:n2c128h14w14k72r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3"},
    {"fwd:n3c192h12w15k24r1s1:bf16:nchw", "fetch_bt64x184_k64_pp_st3"},
    {"bwd_d:n2c72h14w14k128r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3_wx"},
    {"bwd_d:n2c40h10w14k64r1s1:f16:nchw", "fetch_bt64x144_k64_pp_st3_wx"},
};

// Every image's products of what its boxes hold are the convolution.
TEST(ImplicitGemmSm90Alternating, PixelsAndWeightsMeetChannelByChannel) {
  for (const auto& one : kMultiplied) {
    const Problem asked = parse_problem(one.problem), p = engine_problem(asked);
    const Tiling t = parse_tiling(one.tiling);
    ASSERT_EQ(unfit(t, asked, p), "") << one.problem;
    ASSERT_TRUE(alternates(t, p)) << one.problem;
    const i64 image = p.h * p.w;
    ASSERT_EQ(tiles(t, p), p.n) << "an image each";
    EXPECT_EQ(step(t, p), image);
    const Values x = values(p.n * p.c * image, 1), w = values(p.k * p.c, 2);
    const Values weights = t.filter_as_it_is() ? w : packed(p, w);
    // [c][k] as it is, else [k][c].
    const auto weight = [&](i64 k, i64 c) { return w.at(t.filter_as_it_is() ? c * p.k + k : k * p.c + c); };
    for (i64 n = 0; n < p.n; ++n) {
      Values sums(static_cast<std::size_t>(p.k * image), 0);
      for (i64 block = 0; block < channel_blocks(t, p); ++block) {
        const Block a = weights_of_block(t, p, weights, block, 0), b = pixels_of_block(t, p, x, block, n);
        for (std::size_t c = 0; c < 64; ++c) {
          ASSERT_GE(b.rows[c].size(), static_cast<std::size_t>(image));
          for (i64 k = 0; k < p.k; ++k) {
            for (i64 i = 0; i < image; ++i)
              sums[static_cast<std::size_t>(k * image + i)] +=
                  a.rows[c].at(static_cast<std::size_t>(k)) * b.rows[c][static_cast<std::size_t>(i)];
          }
        }
      }
      int wrong = 0;
      for (i64 k = 0; k < p.k; ++k) {
        for (i64 i = 0; i < image; ++i) {
          int sum = 0;
          for (i64 c = 0; c < p.c; ++c)
            sum += weight(k, c) * x.at(static_cast<std::size_t>((n * p.c + c) * image + i));
          wrong += sum != sums[static_cast<std::size_t>(k * image + i)] ? 1 : 0;
        }
      }
      EXPECT_EQ(wrong, 0) << one.problem << " image " << n;
    }
  }
}

// The copy engine's own: addresses and strides of 16 bytes, boxes that fill a buffer.
TEST(ImplicitGemmSm90Alternating, TheCopyEngineTakesThem) {
  for (const auto& one : kMultiplied) {
    const Problem p = engine_problem(parse_problem(one.problem));
    const Tiling t = parse_tiling(one.tiling);
    const TiledMap x = std::get<TiledMap>(x_map(t, p)), w = std::get<TiledMap>(w_map(t, p, 1));
    for (const TiledMap& map : {x, w}) {
      for (int i = 0; i + 1 < map.rank; ++i) EXPECT_EQ(map.stride_bytes[i] % 16, 0) << one.problem;
      EXPECT_EQ(map.box[0] * 2, map.swizzle_bytes) << one.problem;
    }
    EXPECT_EQ((t.pixels() + 63) / 64 * 64 * 64 * 2, slot_bytes(kernel_config(t, p))) << one.problem;
    EXPECT_EQ(x.box[0] * x.box[1] * x.box[2] * 2, 64 * 32 * 2) << one.problem;
    EXPECT_FALSE(reads_input(t, p));
    EXPECT_FALSE(turns_input(t, p));
    EXPECT_TRUE(whole_images(t, p));
  }
}

TEST(ImplicitGemmSm90Alternating, TheyServeWholeImagesOfEightBytes) {
  const struct {
    const char *problem, *tiling;
  } others[] = {
      {"fwd:n2c128h14w14k72r1s1:f16:nchw", "fetch_bt128x192_k64_co_st3"},  // no whole image
      {"fwd:n2c80h14w14k72r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3"},   // a part of a block
      {"fwd:n2c128h14w14k72r1s1:f16:nchw:residual", "fetch_bt128x200_k64_co_st3"},
      {"fwd:n2c64h28w28k64r1s1:st2:f16:nchw", "fetch_bt64x200_k64_pp_st3"},  // strides
      {"fwd:n2c64h7w7k64r1s1:f16:nchw", "fetch_bt64x56_k64_pp_st3"},         // few pixels
      {"fwd:n2c128h11w14k72r1s1:f16:nchw", "fetch_bt128x160_k64_co_st3"},    // words of one channel
      {"fwd:n2c128h14w14k70r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3"},    // stored by rows
      {"fwd:n2c128h14w14k72r1s1:f16:nhwc", "im2col_bt128x200_k64_co_st3"},
  };
  expect_unfit({{"fetch_bt64x200_k64_pp_xs3_wres", "fwd:n2c128h14w14k72r1s1:f16:nchw", "do not stay"}});
  for (const auto& one : others)
    EXPECT_FALSE(alternates(parse_tiling(one.tiling), parse_problem(one.problem))) << one.problem;
  for (const char* text :
       {"fwd:n32c1024h14w14k512r1s1:f16:nchw", "fwd:n32c512h14w14k1024r1s1:bf16:nchw:bias:relu",
        "fwd:n8c256h12w15k512r1s1:f16:nchw:bias"}) {
    const Problem p = parse_problem(text);
    std::size_t found = 0;
    for (const Tiling& t : tilings_of(p)) {
      if (!alternates(t, p)) continue;
      ++found;
      EXPECT_EQ(to_string(parse_tiling(to_string(t))), to_string(t));
      EXPECT_LE(shared_bytes(t, p), kSharedLimit) << to_string(t);
      EXPECT_GT(estimate(t, p, kChip).ms, 0);
    }
    EXPECT_GT(found, 1u) << text;
  }
}

// What is kept of packed weights says in which order. The filter of a backward_data stays as it is.
TEST(ImplicitGemmSm90Alternating, WeightsArePackedInTheirOrder) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const auto recipe_of = [](const char* problem, const char* tiling) {
    return find_algorithm("implicit_gemm_sm90")
        .candidate(parse_problem(problem), tiling, {hopper.info(), 1})
        .recipe();
  };
  const Recipe forward = recipe_of(kMultiplied[0].problem, kMultiplied[0].tiling);
  EXPECT_EQ(forward.steps.size(), 1u);
  EXPECT_EQ(forward.pack.size(), 1u);
  EXPECT_EQ(forward.packed_bytes, 72u * 128 * 2);
  EXPECT_THAT(forward.packing, testing::HasSubstr("even channels first"));
  EXPECT_EQ(forward.workspace_bytes, 0u);
  EXPECT_EQ(recipe_of(kMultiplied[0].problem, "fetch_bt128x192_k64_co_st3").packed_bytes, 0u);
  const Recipe backward = recipe_of(kMultiplied[3].problem, kMultiplied[3].tiling);
  EXPECT_EQ(backward.steps.size(), 1u);
  EXPECT_TRUE(backward.pack.empty());
  EXPECT_EQ(backward.packed_bytes, 0u);
}

// Groups that are merged have a filter of another order: kernels that fetch them bring every channel alike.
TEST(ImplicitGemmSm90Alternating, MergedGroupsDoNotAlternate) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Algorithm& gemm = find_algorithm("implicit_gemm_sm90");
  for (const char* text : {"fwd:n32c64h14w14k64r1s1:g4:f16:nchw", "bwd_d:n32c64h14w14k64r1s1:g2:f16:nchw"}) {
    const Problem p = parse_problem(text);
    std::size_t fetched = 0;
    for (const Candidate& candidate : gemm.candidates(p, {hopper.info(), 1})) {
      const Formed formed = parse_formed(candidate.config);
      if (formed.tiling.bring != Bring::fetch) continue;
      ++fetched;
      EXPECT_FALSE(alternates(formed.tiling, seen(engine_problem(p), formed))) << candidate.config;
    }
    EXPECT_GT(fetched, 0u) << text;
    const std::string config = "gm" + std::to_string(p.groups) + "_fetch_bt64x200_k64_pp_st3";
    EXPECT_THROW(gemm.candidate(p, config, {hopper.info(), 1}), Error) << text;
  }
}

TEST(ImplicitGemmSm90Alternating, NvrtcCompilesThemForTheMatrixUnits) {
  const Nvrtc* const nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const struct {
    const char *problem, *tiling;
  } kinds[] = {
      {"fwd:n32c1024h14w14k512r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3"},
      {"fwd:n32c1024h14w14k512r1s1:bf16:nchw:bias:gelu", "fetch_bt128x200_k64_co_st3"},
      {"fwd:n32c1024h14w14k256r1s1:f16:nchw:bias:relu", "fetch_bt64x200_k64_pp_st4"},
      {"fwd:n32c256h14w14k256r1s1:f16:nchw:silu", "fetch_bt64x200_k64_pp_st3"},
      {"fwd:n32c1024h14w14k256r1s1:f16:nchw", "fetch_bt128x200_k64_co_st4_sk2"},
      {"fwd:n32c1024h12w15k512r1s1:f16:nchw", "fetch_bt128x184_k64_co_st4"},
      {"bwd_d:n32c1024h14w14k512r1s1:f16:nchw", "fetch_bt128x200_k64_co_st3_wx"},
  };
  for (const auto& kind : kinds) {
    const Problem asked = parse_problem(kind.problem), p = engine_problem(asked);
    const Tiling t = parse_tiling(kind.tiling);
    ASSERT_EQ(unfit(t, asked, p), "") << kind.tiling;
    ASSERT_TRUE(alternates(t, p)) << kind.tiling;
    const Binary binary = nvrtc->compile(kernel_source(t, p).whole(), "sm_90a");
    EXPECT_THAT(binary.log, testing::HasSubstr(" 0 bytes spill stores, 0 bytes spill loads")) << kind.tiling;
    // Products made to wait for each other, registers not set.
    EXPECT_THAT(binary.log, testing::Not(testing::ContainsRegex("C75(0|1[0-8]|[2-9])"))) << kind.tiling;
    EXPECT_GE(count_instructions(binary.code, kHgmmaOfShared), 4) << kind.tiling;
    // An image's boxes of even channels, and weights.
    EXPECT_GE(count_instructions(binary.code, kLoadBox), (t.pixels() + 63) / 64 + 1) << kind.tiling;
  }
}

}  // namespace
}  // namespace faltung::sm90
