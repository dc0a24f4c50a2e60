// What is promised of kernels for AWS's Trainium before any of them is run: that they fit the chip, how long
// they are predicted to take, and that this is said quickly. tests/nki/ runs them in a simulator.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <random>

#include "src/algorithms/algorithm.hpp"
#include "src/algorithms/config_name.hpp"
#include "src/emit/nki_source.hpp"

namespace faltung {
namespace {

const Algorithm& algorithm() { return find_algorithm("implicit_gemm_nki"); }

struct Trainium {
  std::shared_ptr<Device> device = find_device("nki:trn2");
  Target target() const { return {device->info(), 1}; }
  double best_ms(const Problem& p) const { return algorithm().candidates(p, target()).front().cost.ms; }
  double ms(const Problem& p, const std::string& config) const {
    return algorithm().candidate(p, config, target()).cost.ms;
  }
};

double mfu(const Problem& p, double ms) { return flops(p) / (ms * 1e9 * 79); }

// The account that this grew from measured a Trainium2: its schedule multiplies two rows of the image at a
// time. What is predicted of that schedule is what was measured, but for 15 %.
TEST(NkiTimeline, PredictsWhatTheAccountMeasured) {
  const Trainium trn2;
  for (const auto& [text, config, measured] :
       {std::tuple{"fwd:n1c256h224w224k256r3s3:f16:bias", "tp2x222x1_kb256", 0.824},
        {"fwd:n1c256h224w224k256r3s3:f16:bias:maxpool2", "tp1x111x1_kb256", 0.824},
        {"fwd:n1c256h224w224k256r3s3:f32:bias", "tp2x222x1_kb256", 3.83},
        {"fwd:n1c256h224w224k256r3s3:f32:bias:maxpool2", "tp1x111x1_kb256", 3.83}}) {
    EXPECT_NEAR(trn2.ms(parse_problem(text), config), measured, 0.15 * measured) << text;
  }
}

TEST(NkiTimeline, OursKeepsTheTensorEngineBusy) {
  const Trainium trn2;
  for (const char* text :
       {"fwd:n1c256h224w224k256r3s3:f16:bias", "fwd:n1c256h224w224k256r3s3:f16:bias:maxpool2",
        "fwd:n1c256h224w224k256r3s3:bf16:bias:relu:maxpool2"}) {
    const Problem p = parse_problem(text);
    EXPECT_GE(mfu(p, trn2.best_ms(p)), 0.95) << text;
    EXPECT_LE(mfu(p, trn2.best_ms(p)), 1) << text;
  }
  for (const char* text : {"n1c256h32w16k256r3s3", "n4c128h32w16k128r3s3", "n4c256h32w16k256r3s3"}) {
    for (const bool pools : {false, true}) {
      const Problem p = parse_problem("fwd:" + std::string(text) + ":f16:bias" + (pools ? ":maxpool2" : ""));
      const std::string theirs = (pools ? "tp1x7x1_kb" : "tp2x14x1_kb") + std::to_string(p.k);
      EXPECT_GE(trn2.ms(p, theirs) / trn2.best_ms(p), 1.2) << to_string(p);
    }
  }
}

// No time is shorter than what the engines must do at least.
TEST(NkiTimeline, IsNoShorterThanItsEngines) {
  const NkiCore& core = nki_core("nki:trn2");
  for (const char* text :
       {"fwd:n8c64h56w56k64r3s3:pad1:f16:nhwc:bias:relu", "fwd:n32c256h14w14k1024r1s1:f16:nchw",
        "fwd:n100c32h28w28k32r3s3:pad1:g32:bf16:nchw:relu", "fwd:n9c512h7w7k512r3s3:pad1:f32:nhwc"}) {
    const Problem p = parse_problem(text);
    for (const nki::Choice& choice : nki::choices(p, core)) {
      const nki::Prediction t = nki::predict(p, nki::schedule(p, choice, core), core);
      for (const nki::Engine e : {nki::Engine::tensor, nki::Engine::dma_in, nki::Engine::dma_out})
        EXPECT_GE(t.ms * 1.02, 1e-3 * t[e].busy_us) << text << " " << name(e);
      EXPECT_LE(t.mfu, 100) << text;
    }
  }
}

// Sizes far beyond those of networks among them: it fits, in blocks where it must, or is declined in words.
TEST(NkiSchedule, NeverExceedsTheChip) {
  std::mt19937_64 dice(19);
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(dice);
  };
  // As many small ones as large ones.
  const auto size = [&](std::int64_t most) {
    return std::max<std::int64_t>(
        1, std::llround(std::pow(static_cast<double>(most), static_cast<double>(between(0, 1000)) / 1000)));
  };
  int computed = 0, declined = 0;
  for (int i = 0; i < 2000; ++i) {
    Problem p;
    p.groups = between(0, 2) == 0 ? size(64) : 1;
    p.n = size(64), p.c = p.groups * size(4096), p.k = p.groups * size(4096);
    if (between(0, 5) == 0) p.groups = p.c = p.k = size(2048);
    p.h = size(1500), p.w = size(3000);
    p.r = between(1, 7), p.s = between(1, 7);
    p.stride_h = between(1, 3), p.stride_w = between(1, 3);
    p.dilation_h = between(1, 2), p.dilation_w = between(1, 2);
    p.pad_top = between(0, 3), p.pad_bottom = between(0, 3), p.pad_left = between(0, 3),
    p.pad_right = between(0, 3);
    p.dtype = static_cast<DType>(between(0, 2));
    p.layout = static_cast<Layout>(between(0, 1));
    p.epilogue.bias = between(0, 1) == 0, p.epilogue.residual = between(0, 3) == 0;
    p.epilogue.activation = kActivations[between(0, std::int64_t(std::size(kActivations)) - 1)];
    if (between(0, 1) == 0) {
      p.epilogue.pool.kind = static_cast<PoolKind>(between(1, 2));
      p.epilogue.pool.size_h = between(1, 7), p.epilogue.pool.size_w = between(1, 7);
      p.epilogue.pool.stride_h = between(1, 3), p.epilogue.pool.stride_w = between(1, 3);
    }
    p.math = default_math(p.dtype);
    try {
      validate(p);
    } catch (const Error&) {
      --i;
      continue;
    }
    const NkiCore& core = nki_cores()[i % 2];
    const std::string why = nki::declined(p, core);
    if (!why.empty()) {
      EXPECT_NE(why.find("nearest"), std::string::npos) << why;
      // It has no instruction there, whatever the sizes.
      const Activation a = p.epilogue.activation;
      if (a != Activation::hardsigmoid && a != Activation::clip && a != Activation::prelu) ++declined;
      continue;
    }
    ++computed;
    const std::vector<nki::Choice> choices = nki::choices(p, core);
    ASSERT_FALSE(choices.empty()) << to_string(p);
    for (const nki::Choice& choice : choices) {
      const nki::Schedule s = nki::schedule(p, choice, core);
      EXPECT_LE(s.sbuf_bytes, core.sbuf_bytes) << to_string(p);
      EXPECT_LE(choice.images * s.group_rows * s.conv_cols, NkiCore::kMoving) << to_string(p);
      EXPECT_LE(s.kBanks + 2, NkiCore::kBanks);
    }
  }
  std::printf("%d computed, %d declined\n", computed, declined);
  EXPECT_GT(computed, 10 * declined);
}

TEST(NkiSource, IsWrittenQuickly) {
  const Trainium trn2;
  double slowest = 0;
  for (const char* text :
       {"fwd:n1c256h224w224k256r3s3:f16:bias:maxpool2", "fwd:n128c64h256w256k64r3s3:pad1:f16:nhwc:relu",
        "fwd:n2c1280h128w128k640r3s3:pad1:f16:nchw:bias", "fwd:n8c1024h56w56k1024r3s3:g1024:pad1:bf16:nhwc",
        "fwd:n1c3h1080w1920k64r7s7:st2:pad3:f32:nchw:bias:relu:maxpool3s2p1"}) {
    const std::clock_t begin = std::clock();  // of this process: others may have the processor
    const Recipe recipe = algorithm().candidates(parse_problem(text), trn2.target()).front().recipe();
    EXPECT_NE(std::get<Launch>(recipe.steps.front().work).source.text.find("Predicted"), std::string::npos);
    slowest = std::max(slowest, 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("the slowest took %.1f ms\n", slowest);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_LT(slowest, 2000);
#else
  EXPECT_LT(slowest, 100);
#endif
}

TEST(NkiSource, SelectsLines) {
  const std::string text = "a\nb  #? x\nc  #? !x & y\nd  #? x | y\nfor i in r:  #: x\n    e\nf\n";
  EXPECT_EQ(nki::selected(text, {"x"}), "a\nb\nd\ne\nf\n");
  EXPECT_EQ(nki::selected(text, {"y"}), "a\nc\nd\nfor i in r:\n    e\nf\n");
  EXPECT_EQ(nki::selected("def f(\n    a,\n    b,  #? x\n):\n", {}), "def f(a):\n");
  EXPECT_EQ(nki::selected("def f(\n    a,\n    b,  #? x\n):\n", {"x"}), "def f(a, b):\n");
}

TEST(NkiDevice, RunsNothingAndSaysSo) {
  const Trainium trn2;
  EXPECT_EQ(trn2.device->info().kind, "nki");
  try {
    trn2.device->allocate(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_NE(std::string(error.what()).find("faltung emit nki"), std::string::npos);
  }
  EXPECT_THROW(find_device("nki:trn9"), Error);
}

}  // namespace
}  // namespace faltung
