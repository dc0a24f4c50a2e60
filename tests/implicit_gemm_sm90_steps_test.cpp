// What Hopper's kernels do themselves, and what takes steps beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <variant>

#include "kernels/sm90/params.h"
#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/rewrite_steps.hpp"
#include "src/algorithms/sm90/rewrites.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/rewrite.hpp"
#include "src/problem/text.hpp"
#include "tests/fake_device.hpp"

namespace faltung {
namespace {

using testing::ElementsAre;

std::vector<std::string> steps_on_hopper(const std::string& text) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Problem p = parse_problem(text);
  const std::vector<Candidate> all = find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1});
  std::vector<std::string> names;
  for (const Step& step : all.front().recipe().steps) names.push_back(step.name);
  return names;
}

TEST(ImplicitGemmSm90Steps, ATransposedConvolutionIsOneLaunch) {
  for (const char* text : {"fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nhwc:bias:relu",
                           "fwd:n2c64h13w11k64r4s4:transposed:st2:pad1:bf16:nhwc:bias",
                           "fwd:n2c64w31k24s4:transposed:st2:pad1:f16:nhwc:bias"}) {
    EXPECT_THAT(steps_on_hopper(text), ElementsAre("implicit_gemm")) << text;
  }
  EXPECT_THAT(steps_on_hopper("fwd:n8c128h64w64k64r2s2:transposed:st2:f16:nchw:bias:relu"),
              ElementsAre("input to NHWC", "implicit_gemm", "result to NCHW"));
  // Two pixels of the result side by side would not be whole lines, a residual would come by phases.
  EXPECT_GT(steps_on_hopper("fwd:n2c64h13w11k3r4s4:transposed:st2:pad1:f16:nhwc:bias").size(), 1u);
  EXPECT_GT(steps_on_hopper("fwd:n2c64h13w11k64r2s2:transposed:st2:f16:nhwc:residual").size(), 1u);
}

// Each tap of the filter is of one phase, and the kernel is told so.
TEST(ImplicitGemmSm90Steps, PhasesReachTheKernel) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  int phased = 0;
  for (const char* text :
       {"bwd_d:n2c64h15w9k128r3s3:st2:pad1:f16:nhwc", "bwd_d:n2c64h15w9k128r3s3:st2:pad1:f32:nhwc"}) {
    const Algorithm& algorithm = find_algorithm("implicit_gemm_sm90");
    for (const Candidate& c : algorithm.candidates(parse_problem(text), {hopper.info(), 1})) {
      if (!c.config.ends_with("_ph4")) continue;
      ++phased;
      for (const Step& step : c.recipe().steps) {
        const auto* const launch = std::get_if<Launch>(&step.work);
        if (launch == nullptr || step.name != "implicit_gemm") continue;
        sm90::Params params;
        ASSERT_EQ(launch->arguments.back().bytes.size(), sizeof params) << c.kernel();
        std::memcpy(&params, launch->arguments.back().bytes.data(), sizeof params);
        int taps = 0;
        for (const sm90::Phase& phase : params.phases) taps += phase.taps;
        EXPECT_EQ(taps, 9) << c.kernel();
        // As many blocks as there are tiles of all phases, or multiprocessors.
        EXPECT_EQ(launch->shape.grid[0], static_cast<unsigned>(std::min(params.tiles, 132))) << c.kernel();
      }
    }
  }
  EXPECT_GT(phased, 4);
}

TEST(ImplicitGemmSm90Steps, AReluBeforeIsTheKernelsOwnWithoutPhases) {
  for (const char* text :
       {"bwd_d:n2c64h13w11k64r3s3:pad1:f16:nhwc:drelu", "bwd_d:n2c64h13w11k64r3s3:pad1:f16:nchw:drelu",
        "bwd_d:n2c64h13w16k64r3s3:pad1:f32:nchw:math=tf32:drelu"}) {
    EXPECT_THAT(steps_on_hopper(text), testing::Not(testing::Contains("through the ReLU"))) << text;
  }
  EXPECT_THAT(steps_on_hopper("bwd_d:n2c64h14w12k64r3s3:st2:pad1:f16:nhwc:drelu"),
              ElementsAre("implicit_gemm", "through the ReLU"));
}

TEST(ImplicitGemmSm90Steps, SumsOfChannelsAreTheKernelsOwnOfSixteenBitsInNhwc) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Algorithm& algorithm = find_algorithm("implicit_gemm_sm90");
  int own = 0, behind = 0;
  for (const char* text :
       {"fwd:n8c64h13w11k200r3s3:pad1:f16:nhwc:bias:relu:stats",
        "fwd:n2c512h9w7k256r3s3:pad1:bf16:nhwc:stats", "fwd:n8c64h16w16k2048r1s1:f16:nchw:residual:stats",
        "fwd:n2c64h12w12k64r3s3:pad1:f32:nhwc:math=tf32:stats",
        "fwd:n2c64h12w12k64r3s3:pad1:f16:nhwc:maxpool2:stats"}) {
    const Problem p = parse_problem(text);
    for (const Candidate& c : algorithm.candidates(p, {hopper.info(), 1})) {
      std::vector<std::string> names;
      const Recipe recipe = c.recipe();
      EXPECT_EQ(recipe.workspace_bytes, c.workspace_bytes) << c.kernel();
      for (const Step& step : recipe.steps) names.push_back(step.name);
      if (std::find(names.begin(), names.end(), "sums of channels") != names.end()) {
        ++behind;
        continue;
      }
      ++own;
      EXPECT_EQ(names.back(), "sums of channels' parts") << c.kernel();
      EXPECT_TRUE(p.dtype != DType::f32 && p.epilogue.pool.kind == PoolKind::none) << c.kernel();
      // All tiles of a block have the same channels: those by which the blocks' parts follow each other.
      const Launch& gemm = std::get<Launch>(recipe.steps[names.size() - 2].work);
      sm90::Params params;
      ASSERT_EQ(gemm.arguments.back().bytes.size(), sizeof params) << c.kernel();
      std::memcpy(&params, gemm.arguments.back().bytes.data(), sizeof params);
      EXPECT_EQ(gemm.shape.grid[0] % static_cast<unsigned>(params.k_tiles), 0u) << c.kernel();
    }
    // A kernel that has them as a step behind it is still there by its name.
    EXPECT_NO_THROW(algorithm.candidate(p, algorithm.candidates(p, {hopper.info(), 1}).back().config,
                                        {hopper.info(), 1}));
  }
  EXPECT_GT(own, 100);
  EXPECT_GT(behind, 50);
  EXPECT_THAT(steps_on_hopper("fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:stats"),
              ElementsAre("implicit_gemm", "sums of channels' parts"));
  // What leaves no room for them beside its buffers has them behind it.
  const Problem full = parse_problem("fwd:n2c256h24w24k256r3s3:pad1:f16:nhwc:stats");
  std::vector<std::string> names;
  for (const Step& step :
       algorithm.candidate(full, "im2col_bt128x256_k64_co_px_st3", {hopper.info(), 1}).recipe().steps)
    names.push_back(step.name);
  EXPECT_EQ(names.front(), "implicit_gemm");
}

// x goes through its scale and shift where the kernel has it in shared memory: no step, and no workspace.
TEST(ImplicitGemmSm90Steps, ScaleAndShiftAreTheKernelsOwnOfSixteenBitsInNhwc) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Algorithm& algorithm = find_algorithm("implicit_gemm_sm90");
  for (const char* text : {"fwd:n8c64h13w11k200r3s3:pad1:f16:nhwc:affine_relu:bias:relu",
                           "fwd:n8c64h13w11k64r3s3:pad1:bf16:nhwc:affine_relu:stats",
                           "fwd:n2c512h9w7k256r3s3:st2:pad1:bf16:nhwc:affine",
                           "fwd:n8c64h16w16k256r1s1:xpitch72:f16:nhwc:affine_relu:residual",
                           "fwd:n2c96h15w13k192r3s3:pad1:g6:f16:nhwc:affine_relu",
                           "fwd:n2c64h12w12k64r3s3:pad1:f16:nhwc:affine_relu:maxpool2"}) {
    const Problem p = parse_problem(text);
    for (const Candidate& c : algorithm.candidates(p, {hopper.info(), 1})) {
      const Recipe recipe = c.recipe();
      EXPECT_EQ(recipe.workspace_bytes, c.workspace_bytes) << c.kernel();
      EXPECT_EQ(c.workspace_bytes,
                algorithm.candidate(without_affine(p), c.config, {hopper.info(), 1}).workspace_bytes)
          << c.kernel();
      for (const Step& step : recipe.steps) EXPECT_NE(step.name, "scale and shift") << c.kernel();
      const Launch& gemm = std::get<Launch>(recipe.steps.front().work);
      const auto& members = gemm.arguments.back().addresses;
      for (const Place place : {Place::scale, Place::shift}) {
        EXPECT_EQ(std::count_if(members.begin(), members.end(),
                                [&](const StepArgument::Member& m) { return m.address.slot.place == place; }),
                  1)
            << c.kernel();
      }
    }
  }
  for (const char* text :
       {"fwd:n2c64h12w12k64r3s3:pad1:f32:nhwc:affine", "fwd:n2c60h12w12k64r3s3:pad1:f16:nhwc:affine",
        "fwd:n2c64h12w12k64r3s3:pad1:f16:nchw:affine", "fwd:n2c8h12w12k64r3s3:pad1:f16:nhwc:affine",
        "fwd:n2c64h12w12k64r3s3:pad1:xpitch68:f16:nhwc:affine",
        "fwd:n2c64d3h12w12k64t3r3s3:pad1:f16:nhwc:affine"})
    EXPECT_EQ(steps_on_hopper(text).front(), "scale and shift") << text;
}

// Of a 1x1 filter with strides the pixels that it takes are computed alone, and stored with the zeros between
// where strides are 2, else spread; a filter that has to be turned comes with the gradient.
TEST(ImplicitGemmSm90Steps, StridesInPlanes) {
  for (const char* type : {":f16", ":bf16"}) {
    EXPECT_THAT(steps_on_hopper("bwd_d:n32c256h56w56k512r1s1:st2:nchw" + std::string(type)),
                ElementsAre("implicit_gemm"));
    EXPECT_THAT(steps_on_hopper("bwd_d:n32c1024h14w14k2048r1s1:st2:nchw" + std::string(type)),
                ElementsAre("input to NHWC", "implicit_gemm"));
    EXPECT_THAT(steps_on_hopper("bwd_d:n32c256h64w64k512r1s1:st4:nchw" + std::string(type)),
                ElementsAre("implicit_gemm", "x's gradient spread"));
    EXPECT_THAT(steps_on_hopper("bwd_d:n32c128h56w56k128r3s3:st2:pad1:nchw" + std::string(type)),
                ElementsAre("input and weights to NHWC", "implicit_gemm", "x's gradient to NCHW"));
  }
  // What a bias is added to is not zero between.
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Problem p = parse_problem("fwd:n2c64h13w11k64r1s1:transposed:st2:f16:nhwc:bias");
  for (const Candidate& c : find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1}))
    EXPECT_FALSE(c.config.starts_with("thin")) << c.config;
}

// Few channels and a stride: blocks of pixels are the channels of one, of the filter and behind the kernel.
TEST(ImplicitGemmSm90Steps, AStemsGradientIsOfBlocksOfPixels) {
  for (const char* type : {":f16", ":bf16", ":f32", ":f32:math=tf32"}) {
    const std::string stem = "bwd_d:n32c3h224w224k64r7s7:st2:pad3" + std::string(type);
    EXPECT_THAT(steps_on_hopper(stem + ":nhwc"),
                ElementsAre("implicit_gemm", "depth to space of x's gradient"));
    EXPECT_THAT(steps_on_hopper(stem + ":nchw"),
                ElementsAre("y's gradient to NHWC", "implicit_gemm", "depth to space of x's gradient"));
  }
  // What turns planes stores pixels of whole chunks of 16 bytes; of 33 channels the portable copy makes them.
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Target target{hopper.info(), 1};
  const Algorithm& algorithm = find_algorithm("implicit_gemm_sm90");
  const Problem odd = parse_problem("bwd_d:n2c3h16w18k33r3s3:st2:pad1:f16:nchw");
  const Recipe recipe = algorithm.candidates(odd, target).front().recipe();
  EXPECT_EQ(std::get<Launch>(recipe.steps.front().work).source.entry, "copy_by_map");
  // Its sums of a tap's channels are too short for fp32, whatever the form.
  EXPECT_THAT(algorithm.supports(parse_problem("bwd_d:n2c3h24w24k40r7s7:st2:pad3:f32:nhwc"), target).why,
              testing::HasSubstr("terms"));
  // Neither groups nor a filter with gaps fall into such blocks.
  for (const char* text :
       {"bwd_d:n2c6h24w24k64r7s7:st2:pad3:g2:f16:nhwc", "bwd_d:n2c3h24w24k64r3s3:st2:pad3:dil2:f16:nhwc"}) {
    EXPECT_FALSE(algorithm.supports(parse_problem(text), target).yes) << text;
  }
}

// Of one row of NCHW the columns of a stride are one pixel of as many more channels: as pixels they lie so in
// memory, and so does the filter. What padding has of the first and the last one is left out.
TEST(ImplicitGemmSm90Steps, AStridesColumnsAreOfOnePixel) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  EXPECT_THAT(steps_on_hopper("fwd:n1c512w200k256s16:st8:pad4:transposed:f16:nchw"),
              ElementsAre("y's gradient to NHWC", "implicit_gemm", "x's gradient to NCHW"));
  for (const char* text :
       {"bwd_d:n3c24w101k48s6:st3:pad2:f16:nchw", "bwd_d:n2c16w90k64s8:st4:pad1.3:bf16:nchw",
        "bwd_d:n1c32w64k64s2:st2:f32:nchw:math=tf32", "bwd_d:n2c16w90k64s6:st3:pad1.2:f32:nchw"}) {
    Problem p = parse_problem(text);
    p.dimensions = 2;
    ASSERT_TRUE(sm90::joins_columns(p)) << text;
    const Rewrite rewrite = sm90::deepened_gradient(p);
    Problem pixels = p;
    pixels.layout = Layout::nhwc;
    const TensorCopy filter = gather_of(pixels, rewrite, Operand::w);
    EXPECT_TRUE(filter.map.is_in_place(filter.inner, filter.outer)) << text;
    // Where each image's part begins that the steps take, by the map of x's gradient.
    const Problem& inner = rewrite.inner;
    std::vector<std::size_t> begins;
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto of_image = [&](std::int64_t i) {
        return rewrite.x({n, i % inner.c, 0, i / inner.c}).value_or(Index{-1, -1, -1, -1});
      };
      std::int64_t begin = 0;
      while (of_image(begin) != Index{n, 0, 0, 0}) ++begin;
      for (std::int64_t i = 0; i < p.w * p.c; ++i)
        ASSERT_EQ(of_image(begin + i), (Index{n, i % p.c, 0, i / p.c})) << text;
      begins.push_back(static_cast<std::size_t>((n * inner.w * inner.c + begin) * size_of(p.dtype)));
    }
    int joined = 0;
    for (const Candidate& c : find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1})) {
      if (!c.config.starts_with("s2d_")) continue;
      std::vector<std::size_t> taken;
      std::size_t all = 0;
      for (const Step& step : c.recipe().steps) {
        for (const Address& use : step.uses()) {
          const bool reads = use.slot.place == Place::workspace && use.access == Access::read;
          if (step.name == "implicit_gemm" && use.access == Access::write) all = use.slot.offset;
          if (step.name == "x's gradient to NCHW" && reads) taken.push_back(use.slot.offset);
        }
      }
      for (std::size_t& begin : taken) begin -= all;
      EXPECT_EQ(taken, begins) << c.config;
      ++joined;
    }
    EXPECT_GT(joined, 2) << text;
  }
  // Not where a filter has no whole blocks, nor where the last one does not reach the end.
  for (const char* text : {"bwd_d:n1c32w64k64s5:st2:pad2:f16:nchw", "bwd_d:n1c32w65k64s4:st2:pad1.0:f16:nhwc",
                           "bwd_d:n1c32w66k64s4:st4:pad0:f16:nchw", "bwd_d:n2c32h8w64k64r2s4:st2:f16:nchw"}) {
    Problem p = parse_problem(text);
    p.dimensions = 2;
    EXPECT_FALSE(sm90::joins_columns(p)) << text;
  }
}

// Steps do not share what lies in the workspace: each reads what one before it wrote, whole.
TEST(ImplicitGemmSm90Steps, TheWorkspaceHasRoomForAll) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  for (const char* text :
       {"bwd_d:n3c72h14w14k40r1s1:st2:f16:nchw", "bwd_d:n3c72h13w14k40r3s3:st2:pad1:f16:nchw",
        "bwd_d:n3c72h14w14k72r1s1:st2:f32:nchw", "bwd_d:n3c72h15w13k40r1s1:st2:f16:nhwc",
        "bwd_d:n3c3h23w22k64r7s7:st2:pad3:f16:nhwc", "bwd_d:n3c3h23w22k64r7s7:st2:pad3:f32:nchw",
        "bwd_d:n3c72w46k40s4:st2:pad1:f16:nchw"}) {
    const Problem p = parse_problem(text);
    const Problem taken = rewrites::thin.applies(p) ? rewrites::thin(p).inner : p;
    for (const Candidate& c : find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1})) {
      const Recipe recipe = c.recipe();
      EXPECT_EQ(recipe.workspace_bytes, c.workspace_bytes) << c.config;
      EXPECT_EQ(recipe.packed_bytes, c.packed_bytes) << c.config;
      std::set<std::size_t> begins;
      bool writes_x = false;
      for (const Step& step : recipe.steps) {
        for (const Address& address : step.uses()) {
          writes_x = writes_x || (address.slot.place == Place::x && address.access == Access::write);
          if (address.slot.place != Place::workspace) continue;
          EXPECT_LT(address.slot.offset, recipe.workspace_bytes) << c.config;
          if (address.access == Access::write) begins.insert(address.slot.offset);
        }
      }
      EXPECT_TRUE(writes_x) << c.config;
      // What is spread by a step lies last.
      if (c.config.starts_with("thin_") && !c.config.ends_with("_ap2")) {
        EXPECT_EQ(recipe.workspace_bytes - *begins.rbegin(),
                  static_cast<std::size_t>(bytes_of(taken, x_shape(taken))))
            << c.config;
      }
      EXPECT_EQ(find_algorithm("implicit_gemm_sm90").candidate(p, c.config, {hopper.info(), 1}).cost.ms,
                c.cost.ms);
    }
  }
}

// It reads what the ReLU gave, and no residual.
TEST(ImplicitGemmSm90Steps, TheReluIsRead) {
  static const FakeDevice hopper("fake:hopper", "sm_90a");
  const Problem p = parse_problem("bwd_d:n2c64h13w11k64r3s3:pad1:f16:nhwc:drelu");
  for (const Candidate& c : find_algorithm("implicit_gemm_sm90").candidates(p, {hopper.info(), 1})) {
    std::vector<Place> used;
    for (const Step& step : c.recipe().steps) {
      for (const Address& address : step.uses()) used.push_back(address.slot.place);
    }
    EXPECT_THAT(used, testing::Contains(Place::relu)) << c.config;
    EXPECT_THAT(used, testing::Not(testing::Contains(Place::residual))) << c.config;
  }
}

// Groups of few channels in planes, as measured on an H200: by mma.sync where that is faster than groups
// merged for wgmma.
TEST(ImplicitGemmSm90Choice, GroupsInPlanesGoWhereTheyAreFaster) {
  const FakeDevice hopper("fake:0", "sm_90a");
  const auto first = [&](const char* algorithm, const char* problem) {
    const Problem p = parse_problem(std::string(problem) + ":pad1:g32:f16:nchw");
    return find_algorithm(algorithm).candidates(p, {hopper.info(), 1}).front();
  };
  const struct {
    const char *problem, *tile;  // none: wgmma
  } rows[] = {{"bwd_d:n32c256h56w56k256r3s3:st2", "tp7x32x1"},
              {"bwd_d:n32c256h28w28k256r3s3", "tp14x32x1"},
              {"bwd_d:n32c512h28w28k512r3s3:st2", "tp7x16x1"},
              {"bwd_d:n32c1024h14w14k1024r3s3:st2", "whole_tp7x8x2"},
              {"bwd_d:n32c128h56w56k128r3s3", nullptr},
              {"bwd_d:n32c512h14w14k512r3s3", "whole_tp14x16x1"},
              {"bwd_d:n32c1024h7w7k1024r3s3", "whole_tp7x8x4"},
              {"fwd:n32c256h28w28k256r3s3", "tp14x32x1"},
              {"fwd:n32c128h56w56k128r3s3", nullptr},
              {"fwd:n32c512h28w28k512r3s3:st2", nullptr},
              {"fwd:n32c512h14w14k512r3s3", "whole_tp14x16x1"},
              {"fwd:n32c1024h14w14k1024r3s3:st2", nullptr},
              {"fwd:n32c1024h7w7k1024r3s3", nullptr}};
  for (const auto& row : rows) {
    const Candidate groups = first("grouped_mma_gpu", row.problem),
                    merged = first("implicit_gemm_sm90", row.problem);
    EXPECT_EQ(groups.cost.ms < merged.cost.ms, row.tile != nullptr) << row.problem;
    if (row.tile != nullptr) {
      EXPECT_EQ(groups.config, row.tile) << row.problem;
    }
  }
}

// Measured on an H200: what was chosen before took 1.1 to 1.9 times as long.
TEST(ImplicitGemmSm90Choice, IsWhatIsFastest) {
  const FakeDevice hopper("fake:0", "sm_90a");
  const auto first = [&](const std::string& problem) {
    return find_algorithm("implicit_gemm_sm90")
        .candidates(parse_problem(problem), {hopper.info(), 1})
        .front()
        .kernel();
  };
  const auto holds = [](const std::string& kernel, const char* part) {
    return kernel.find(part) != std::string::npos;
  };
  // Of few channels a stage of streamed weights holds few products.
  for (const char* layout : {"nhwc", "nchw"}) {
    const std::string stem = first(std::string("n32c3h224w224k64r7s7:st2:pad3:f32:") + layout + ":math=tf32");
    EXPECT_TRUE(holds(stem, "_wres")) << stem;
  }
  // Half a row of channels a stage asks for twice as many.
  const std::string few = first("n8c1248h7w7k208r1s1:f16:nhwc");
  EXPECT_FALSE(holds(few, "_k32")) << few;
  // Five and six stages hide what three do not.
  const std::string deep = first("n32c512h28w28k256r1s1:f32:nhwc:math=tf32");
  EXPECT_TRUE(holds(deep, "im2col_bt128x128_k32_co_st5")) << deep;
}

}  // namespace
}  // namespace faltung
