// How implicit GEMM on the CPU divides its work, and what it predicts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "kernels/cpu/brgemm.hpp"
#include "kernels/cpu/pack.hpp"
#include "src/algorithms/candidate.hpp"
#include "src/algorithms/cpu_rates.hpp"
#include "src/algorithms/implicit_gemm_part.hpp"
#include "src/algorithms/implicit_gemm_prefetch.hpp"
#include "tests/algorithms.hpp"
#include "tests/builder.hpp"
#include "tests/made_up_rates.hpp"

namespace faltung {
namespace {

// What a worker that runs the first of two halves of the items wrote of the result: zeros.
std::vector<float> first_half(const Problem& p, const ImplicitGemmPart& lanes) {
  const std::vector<float> x(static_cast<std::size_t>(x_shape(p).elements()), 1);
  std::vector<float> y(static_cast<std::size_t>(y_shape(p).elements()), -1);
  const std::vector<float> packed(static_cast<std::size_t>(lanes.packed_floats()));
  std::vector<std::byte> scratch(lanes.scratch_bytes() + kAlignment);
  PartCall call;
  call.in = x.data(), call.out = y.data(), call.packed = packed.data();
  call.scratch = reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(scratch.data())));
  for (std::int64_t item = 0; item < (lanes.items() + 1) / 2; ++item) lanes.run(item, call);
  return y;
}

// What is predicted must not beat the best tile's own rate, however the work is divided: a model that thinks
// one layout or tile faster than any processor chooses it. Rows of taps that lie in the padding are not
// multiplied.
TEST(ImplicitGemmCpu, PredictsNoMoreThanItsTilesReach) {
  const Algorithm& algorithm = find_algorithm("implicit_gemm_cpu");
  const Target target{find_device("cpu")->info(), 1};
  constexpr double kPadded = 0.9;  // 2 of 27 rows of taps, and 2 of 2100 in a row
  for (const char* shape : {"n1c672h14w14k112r1s1", "n1c16h112w112k64r1s1", "n2c256h56w56k64r1s1",
                            "n1c32h9w700k48r3s3:pad1", "n1c64h40w40k64r3s3:pad1"}) {
    for (const char* layout : {":nchw", ":nhwc"}) {
      const Problem p = parse_problem(std::string("fwd:") + shape + ":f32" + layout);
      const double ns = flops(p) / 2 / brgemm_lanes() * vector_multiply_add_ns();
      for (const Candidate& candidate : algorithm.candidates(p, target))
        EXPECT_GE(candidate.cost.ms, (p.pad_top == 0 ? 1 : kPadded) * ns / 1e6)
            << candidate.kernel() << " for " << to_string(p);
    }
  }
}

// A choice takes no longer where there is more to compute: four million tiles of four sizes are four.
TEST(ImplicitGemmCpu, PredictsByCountsOfTiles) {
  const Algorithm& algorithm = find_algorithm("implicit_gemm_cpu");
  const Target target{find_device("cpu")->info(), 2};
  for (const char* direction : {"fwd:", "bwd_d:", "bwd_w:"}) {
    for (const char* shape :
         {"n4c256h1024w1024k128r1s1", "n4c256h1021w1023k128r3s3:st2:pad1", "n1c512h1w1000003k256r1s1"}) {
      for (const char* layout : {":nchw", ":nhwc"}) {
        const Problem p = parse_problem(std::string(direction) + shape + ":f32" + layout);
        const std::size_t before = tile_times_asked();
        const std::size_t candidates = algorithm.candidates(p, target).size();
        EXPECT_LT(tile_times_asked() - before, 5000 * candidates) << to_string(p);
      }
    }
  }
}

// Each item of images that are joined stages all of them: items beyond those that the threads need do so in
// vain.
TEST(ImplicitGemmCpu, StagesJoinedImagesNoMoreThanTheThreadsNeed) {
  if (brgemm_lanes() < 8) GTEST_SKIP() << "rows of 7 by 7 pixels leave few lanes empty";
  const Problem p = parse_problem("fwd:n2c240h7w7k208r1s1:f32:nchw");
  constexpr int kThreads = 2;
  const auto lanes = make_pixel_lanes(p, tap_convolutions(p).front(), {brgemm_max_rows(2), 2}, kThreads);
  EXPECT_GE(lanes->items(), kThreads);
  EXPECT_LE(lanes->items(), 2 * kThreads);
}

// Few tiles in a row: items are as even as vectors allow, so that no worker waits long for the other. They
// are even in the time that tiles are said to take; here as long as their products.
TEST(ImplicitGemmCpuDeathTest, SharesFewTilesByVectors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins anew, where nothing was measured
  const auto all_share = [] {
    adopt_cpu_rates(made_up_rates([](int rows, int vectors, int) {
      return TileTime{0.1 * rows * vectors, 1};
    }));
    const Problem p = parse_problem("fwd:n1c1024h14w14k256r1s1:f32:nchw");
    for (int vectors = 2; vectors <= kBrgemmMaxVectors; ++vectors) {
      const auto lanes =
          make_pixel_lanes(p, tap_convolutions(p).front(), {brgemm_max_rows(vectors), vectors}, 2);
      const std::vector<float> y = first_half(p, *lanes);
      if (std::ranges::count(y, 0.0f) >= static_cast<std::ptrdiff_t>(y.size()) * 6 / 10) return false;
    }
    return true;
  };
  EXPECT_EXIT(std::exit(all_share() ? 0 : 1), testing::ExitedWithCode(0), "");
}

std::size_t scratch_of(const std::string& shape, int rows) {
  const Problem p = parse_problem("fwd:" + shape + ":f32:nhwc");
  return make_channel_lanes(p, tap_convolutions(p).front(), {rows, 2}, 2)->scratch_bytes();
}

// Pixels a page apart push each other out of the first-level cache; copying them costs more than that.
TEST(ImplicitGemmCpu, ReadsPixelsAPageApartWhereTheyLie) {
  const int rows = brgemm_max_rows(2);
  for (const std::string& shape :
       {std::string("n1c1024h14w14k256r1s1"), fmt::format("n1c512h28w{}k1024r1s1:st2", 4 * rows)})
    EXPECT_LT(scratch_of(shape, rows), std::size_t{64} << 10) << shape;
}

// Of a strided 1x1's row a tile would be left with one pixel: rows are copied one after the other first.
TEST(ImplicitGemmCpu, JoinsRowsThatLeaveTilesShort) {
  const int rows = brgemm_max_rows(2);
  const std::string shape = fmt::format("n2c512h28w{}k1024r1s1:st2", 2 * (rows + 1));
  EXPECT_GT(scratch_of(shape, rows), std::size_t{512} * 4 * static_cast<std::size_t>(rows + 1)) << shape;
}

// A plane that no cache has room for is not staged whole, though there is but one.
TEST(ImplicitGemmCpu, StagesLargePlanesByRows) {
  const Problem p = parse_problem("fwd:n1c1h4000w130k64r3s3:pad1:f32:nchw");
  const auto lanes = make_pixel_lanes(p, tap_convolutions(p).front(), {brgemm_max_rows(2), 2}, 2);
  EXPECT_LT(lanes->scratch_bytes(), std::size_t{4} << 20);
}

// A filter's columns side by side, a step apart, and rows side by side; zeros fill the width up, and nothing
// is written beside it.
TEST(ImplicitGemmCpu, PacksColumnsOfEveryStride) {
  constexpr std::int64_t kRows = 5, kMost = 70, kStep = 9;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> from(static_cast<std::size_t>(kRows * kMost * kStep * size_of(dtype)));
    const auto value = [](std::int64_t i) { return static_cast<float>(i % 251); };
    for (std::int64_t i = 0; i < kRows * kMost * kStep; ++i) store_element(dtype, from.data(), i, value(i));
    for (const auto& [row_stride, column_stride] :
         {std::pair{kMost, std::int64_t{1}}, std::pair{kMost * kStep, kStep},
          std::pair{std::int64_t{1}, kStep}}) {
      for (const std::int64_t columns : {1, 3, 6, 13, 14, 16, 31, 48}) {
        for (const std::int64_t width : {columns, columns + 3}) {
          std::vector<float> to(static_cast<std::size_t>(kRows * width + 1), -1);
          PackCall call;
          call.dtype = dtype, call.from = from.data();
          call.row_stride = row_stride, call.column_stride = column_stride;
          call.rows = kRows, call.columns = columns, call.width = width;
          call.to = to.data(), call.next = to.data();
          call.share = 1, call.shares = 3;
          pack_columns(call);
          EXPECT_EQ(to.back(), -1);
          for (std::int64_t i = 0; i < kRows * width; ++i) {
            const std::int64_t row = i / width, column = i % width;
            ASSERT_EQ(to[static_cast<std::size_t>(i)],
                      column < columns ? value(row * row_stride + column * column_stride) : 0)
                << columns << " of " << width << " at " << row << ", " << column;
          }
        }
      }
    }
  }
}

// Few problems are turned: what is read and written by planes, as numbers of 32 bits, and all of it.
TEST(ImplicitGemmCpu, TurnsPlanesAlone) {
  const Target target{find_device("cpu")->info(), 2};
  for (const char* problem : {"fwd:n1c16h8w8k16r1s1:f32:nhwc", "fwd:n1c16h8w8k16r1s1:bf16:nchw",
                              "bwd_w:n1c16h8w8k16r1s1:f32:nchw", "fwd:n1c16h8w8k16r1s1:xpitch32:f32:nchw"}) {
    const Problem p = parse_problem(problem);
    for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, target))
      EXPECT_FALSE(candidate.config.starts_with("nhwc_")) << problem;
    EXPECT_THROW(
        find_candidate("implicit_gemm_cpu/nhwc_rt" + std::to_string(brgemm_max_rows(2)) + "x2", p, target),
        Error)
        << problem;
  }
}

// A run that begins within a cache line touches one more.
TEST(Prefetch, BringsTheLastLineOfRunsThatBeginAnywhere) {
  alignas(64) static char memory[4096];
  for (const std::int64_t stride : {320, 784, 1024}) {
    for (const std::int64_t first : {0, 16, 60}) {
      Prefetch prefetch({memory + first, 3, 320, stride}, 1);
      const BrgemmFetch fetch = prefetch.next(1000);
      ASSERT_EQ(fetch.lines, 3 * fetch.run_lines);
      for (std::int64_t run = 0; run < 3; ++run) {
        const std::int64_t begin = first + run * stride;
        EXPECT_GE((begin / 64 + fetch.run_lines) * 64, begin + 320) << stride << " " << first;
      }
      if (first == 0 && stride % 64 == 0) {
        EXPECT_EQ(fetch.run_lines, 5);
      }
    }
  }
}

// Rows of runs: each line once, and in no call what lies between rows.
TEST(Prefetch, BringsRowsOfRuns) {
  alignas(64) static char memory[8192];
  for (const std::int64_t calls : {1, 5, 50}) {
    Prefetch prefetch({memory, 3, 128, 256, 4, 2048}, calls);
    std::multiset<std::int64_t> lines, expected;
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::int64_t line = 0; line < 6; ++line)
        expected.insert(row * 2048 + line / 2 * 256 + line % 2 * 64);
    }
    for (std::int64_t call = 0; call < std::max<std::int64_t>(calls, 4); ++call) {
      BrgemmFetch fetch = prefetch.next(1000);
      for (; fetch.lines > 0; --fetch.lines) {
        lines.insert(fetch.at - memory);
        const bool end = --fetch.run_left == 0;
        fetch.at += end ? fetch.run_stride - 64 * (fetch.run_lines - 1) : 64;
        if (end) fetch.run_left = fetch.run_lines;
      }
    }
    EXPECT_EQ(lines, expected) << calls;
  }
}

// Workers begin with their own half of the items: where all weights stay in a cache these are pixels, which
// the steps before and after share alike; where the weights are more than the pixels, channels.
TEST(ImplicitGemmCpu, WorkersSharePixelsOrWeightsWhicheverIsLess) {
  if (brgemm_lanes() < 8) GTEST_SKIP() << "panels of channels are narrow";
  for (const char* shape :
       {"n1c120h28w28k40r1s1", "n1c200h14w14k80r1s1", "n8c40h3w9k120r1s1", "n1c960h7w7k160r1s1"}) {
    const Problem p = parse_problem(std::string("fwd:") + shape + ":f32:nhwc");
    for (const int vectors : {1, 2, 3}) {
      const TileShape tile{brgemm_max_rows(vectors), vectors};
      const auto lanes = make_channel_lanes(p, tap_convolutions(p).front(), tile, 2);
      ASSERT_GE(lanes->items(), 4) << shape;
      const std::vector<float> y = first_half(p, *lanes);
      const auto done = static_cast<std::int64_t>(std::ranges::count(y, 0.0f));
      EXPECT_GT(done, static_cast<std::int64_t>(y.size()) / 3) << shape;
      EXPECT_LT(done, static_cast<std::int64_t>(y.size()) * 2 / 3) << shape;
      const bool first_pixels =
          std::ranges::all_of(y.begin(), y.begin() + done, [](float v) { return v == 0; });
      EXPECT_EQ(first_pixels, p.c < 960) << shape << " " << vectors;
    }
  }
}

// Taps that read padding alone are left out, by rows and by depths, also where a whole row has none; planes
// of several images stand side by side, their channels in parts where the second-level cache is too small for
// all.
TEST(ImplicitGemmCpu, LeavesOutPaddingAndCutsChannels) {
  const auto parallel = std::make_shared<Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  for (const char* problem :
       {"fwd:n2c20d2h5w5k40t3r3s3:pad1:f32", "fwd:n1c24d4h7w7k20t3r1s1:st2x1x1:pad1x0x0:f32",
        "fwd:n2c40h2w9k24r3s1:pad1x0:f32", "fwd:n2c17h7w7k33r3s3:st2:pad1:f32",
        "fwd:n1c16h3w20k24r3s3:pad5:f32", "bwd_d:n2c20d3h6w7k24t3r3s3:st2:pad1:f32",
        "fwd:n2c4096h7w7k16r3s3:pad1:f32", "fwd:n3c8192h7w7k18r1s1:f32", "fwd:n2c64h8w16k24r1s1:f32"}) {
    for (const char* layout : {":nhwc", ":nchw"}) {
      const Problem p = parse_problem(std::string(problem) + layout);
      Verifier verifier(p, builder.device(), parallel, 1);
      for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
        const Report report = verifier.kernel(candidate, builder.store());
        EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << to_string(p) << ": " << report.why;
      }
    }
  }
}

// So are they of bf16 by dot products, where short rows are taken of two images, or of one where none is
// left for the last.
TEST(ImplicitGemmCpu, LeavesOutPaddingOfPairs) {
  const auto parallel = std::make_shared<Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  for (const char* problem : {"fwd:n3c32h7w7k40r3s3:pad1", "fwd:n2c34h3w5k33r5s3:pad2x1:bias:residual:relu",
                              "fwd:n1c32h4w14k32r3s3:pad1", "fwd:n5c32h6w6k32r3s3:st2:pad1:bias:silu",
                              "bwd_d:n3c32h7w7k40r3s3:pad1", "fwd:n2c32h2w20k32r5s1:pad4x0"}) {
    const Problem p = parse_problem(std::string(problem) + ":bf16:nhwc");
    Verifier verifier(p, builder.device(), parallel, 1);
    for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
      const Report report = verifier.kernel(candidate, builder.store());
      EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << to_string(p) << ": " << report.why;
    }
  }
}

// Tiles of images side by side are stored to the result where they are one image's, and piece by piece where
// they are not, whole or in parts of the channels; and so they are where planes become pixels first, with the
// channels' pitch or without.
TEST(ImplicitGemmCpu, StoresTilesOfSeveralImages) {
  const auto parallel = std::make_shared<Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  for (const char* shape : {"n5c40h7w7k33r1s1", "n9c24h3w3k20r1s1", "n3c1100h14w14k20r1s1",
                            "n4c48h14w14k40r1s1:st2", "n3c512h5w5k30r3s3:pad1:g2", "n1c9600h4w9k20r1s1"}) {
    for (const char* epilogue : {"", ":bias:residual:relu", ":bias:residual:silu"}) {
      const Problem p = parse_problem(std::string("fwd:") + shape + epilogue + ":f32:nchw");
      Verifier verifier(p, builder.device(), parallel, 1);
      int turns = 0;
      for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
        const Report report = verifier.kernel(candidate, builder.store());
        EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << to_string(p) << ": " << report.why;
        turns += candidate.config.starts_with("nhwc_") ? 1 : 0;
      }
      EXPECT_EQ(turns, kBrgemmMaxVectors) << to_string(p);
    }
  }
}

// Few channels: neighbouring taps, or a stride's columns, are the rows of one product, unless a dilation
// parts them; some columns have a pixel less, and some no tap at all.
TEST(ImplicitGemmCpu, JoinsWhatFewChannelsShare) {
  const auto parallel = std::make_shared<Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  for (const char* shape :
       {"n2c3h19w23k20r7s7:st2:pad3", "n1c3h9w40k24r3s3:pad1", "n2c5h9w11k33r3s3:dil2:pad2",
        "n1c32h14w23k96r2s2:st2:pad1:dil3:g4", "n2c8h9w11k32r3s3:pad1:g4", "n1c2h17w22k40r5s4:st1x3:pad2",
        "n1c2h17w23k16r1s1:st2:pad1", "n1c3h30w1k16r3s3:st2:pad1", "n1c3d5h9w12k17t3r3s3:st2:pad1"}) {
    for (const char* form :
         {"bwd_w:%s:f32:nhwc", "bwd_w:%s:f16:nhwc", "bwd_d:%s:f32:nchw", "bwd_d:%s:bf16:nchw"}) {
      std::string text = form;
      const Problem p = parse_problem(text.replace(text.find("%s"), 2, shape));
      Verifier verifier(p, builder.device(), parallel, 1);
      for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
        const Report report = verifier.kernel(candidate, builder.store());
        EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << to_string(p) << ": " << report.why;
      }
    }
  }
}

// Panels of channels that two workers cannot share evenly are waited for: three take as long as four.
TEST(ImplicitGemmCpu, WaitsForTheBusiestWorker) {
  if (brgemm_lanes() < 8) GTEST_SKIP() << "panels of channels are narrow";
  const int vectors = 3, rows = brgemm_max_rows(vectors), panel = vectors * brgemm_lanes();
  for (const int panels : {3, 4, 5}) {
    Problem p = parse_problem("fwd:n1c4096h4w4k16r1s1:f32:nhwc");
    p.k = panels * panel;
    const auto lanes = make_channel_lanes(p, tap_convolutions(p).front(), {rows, vectors}, 2);
    ASSERT_EQ(lanes->items(), panels);
    EXPECT_DOUBLE_EQ(lanes->busiest_share(2), static_cast<double>((panels + 1) / 2) / panels);
    EXPECT_DOUBLE_EQ(lanes->busiest_share(1), 1);
  }
}

// Gradients larger than a cache are written past it: whole lines of them, and what begins within lines.
TEST(ImplicitGemmCpu, WritesLargeGradients) {
  const auto parallel = std::make_shared<Parallel>(2);
  Builder builder(find_device("cpu"), parallel);
  for (const char* problem : {"bwd_w:n1c1040h1w3k1056r1s1:f32:nhwc", "bwd_w:n1c1041h1w3k1056r1s1:f32:nhwc",
                              "bwd_w:n1c1040h1w3k1056r1s1:f32:nchw"}) {
    const Problem p = parse_problem(problem);
    ASSERT_GT(w_shape(p).elements() * 4, cpu_caches().level2);
    Verifier verifier(p, builder.device(), parallel, 1);
    for (const Candidate& candidate : find_algorithm("implicit_gemm_cpu").candidates(p, builder.target())) {
      const Report report = verifier.kernel(candidate, builder.store());
      EXPECT_TRUE(passed(report)) << candidate.kernel() << " for " << problem << ": " << report.why;
    }
  }
}

// Whom a step wakes would cost it more than he saves.
TEST(ImplicitGemmCpu, TinyStepsAreOneWorkers) {
  const Algorithm& algorithm = find_algorithm("implicit_gemm_cpu");
  for (const bool tiny : {true, false}) {
    const Problem p =
        parse_problem(tiny ? "fwd:n1c24h1w1k8r1s1:f32:nhwc" : "fwd:n1c64h56w56k64r1s1:f32:nhwc");
    for (const Candidate& candidate : algorithm.candidates(p, {find_device("cpu")->info(), 2})) {
      int wakes = 0;
      const Parallel parallel(2, [&](int count, const std::function<void(int)>& body) {
        ++wakes;
        for (int i = 0; i < count; ++i) body(i);
      });
      const Recipe recipe = candidate.recipe();
      std::vector<float> x(static_cast<std::size_t>(x_shape(p).elements())),
          y(static_cast<std::size_t>(y_shape(p).elements()));
      std::vector<std::byte> packed(recipe.packed_bytes + kAlignment),
          workspace(recipe.workspace_bytes + kAlignment);
      Memory memory;
      memory[Place::x] = reinterpret_cast<std::byte*>(x.data()),
      memory[Place::y] = reinterpret_cast<std::byte*>(y.data());
      const auto align = [](std::vector<std::byte>& bytes) {
        return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<std::uintptr_t>(bytes.data())));
      };
      memory[Place::packed] = align(packed), memory[Place::workspace] = align(workspace);
      for (const Step& step : recipe.steps) std::get<Call>(step.work).run(memory, parallel);
      EXPECT_EQ(wakes == 0, tiny) << candidate.kernel() << " for " << to_string(p);
    }
  }
}

}  // namespace
}  // namespace faltung
