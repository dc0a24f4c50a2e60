// x read through a scale and a shift, with a ReLU: what a convolution takes of batch normalization in
// training. By every CPU algorithm, by a GPU's on the OpenCL drivers there are, and to the same bits as of a
// stored one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "faltung/faltung.h"
#include "src/algorithms/cpu_rates.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/parse.hpp"
#include "tests/builder.hpp"
#include "tests/run_once.hpp"
#include "tests/sampling.hpp"
#include "tests/scratch.hpp"
#include "tests/tested_devices.hpp"
#include "tests/verify_first.hpp"

namespace faltung {
namespace {

// Odd sizes, groups, each number of dimensions, strides whose columns are sorted, slices, and all that may
// follow.
const char* const kAffineProblems[] = {
    "fwd:n2c8h9w7k24r3s3:pad1:f32:nhwc:affine_relu",
    "fwd:n3c6h9w23k10r3s3:pad1:f16:nchw:affine_relu:bias:relu:stats",
    "fwd:n2c16h8w8k40r1s1:bf16:nhwc:affine:residual:maxpool2",
    "fwd:n2c8h9w7k24r3s3:pad1:xpitch24:ypitch40:f16:nhwc:affine_relu:bias:residual:relu",
    "fwd:n2c16h8w12k32r3s3:pad1:xpitch23:f32:nchw:affine",
    "fwd:n2c8w50k12s3:pad1:f32:nchw:affine_relu",
    "fwd:n1c6d4h5w6k7t3r3s3:pad1:bf16:nhwc:affine_relu",
    "fwd:n2c6h7w5k9r3s3:transposed:st2:pad1:outpad1:bf16:nchw:affine:silu",
    "fwd:n2c24h12w19k24r3s3:pad1:g24:f32:nchw:affine_relu:bias:relu6",
    "fwd:n1c17h22w37k34r5s5:st2:pad2:g17:f16:nchw:affine_relu",
    "fwd:n2c37h7w6k37r3s3:pad1:g37:f32:nchw:affine_relu:prelu",
    "fwd:n3c40h7w7k40r5s5:st2:pad2:g40:bf16:nchw:affine:bias:residual",
    "fwd:n1c9h20w31k9r3s3:st3:pad1:dil2:g9:bf16:nchw:affine",
    "fwd:n2c19h9w11k19r3s3:pad1:g19:f32:nhwc:affine_relu",
    "bwd_w:n2c8h9w7k19r3s3:pad1:f32:nhwc:affine_relu:dbias",
    "bwd_w:n3c16h6w10k24r1s1:f16:nchw:affine_relu",
    "bwd_w:n2c8h11w12k8r3s3:st2:pad1:g8:f32:nchw:affine",
    "bwd_w:n2c6h21w33k6r5s5:pad2:g6:bf16:nchw:affine_relu",
    "bwd_w:n2c6h7w5k9r3s3:transposed:st2:pad1:bf16:nhwc:affine_relu"};

TEST(Affine, IsPartOfTheProblem) {
  for (const char* text : kAffineProblems) {
    const Problem p = parse_problem(text);
    EXPECT_NE(p.affine, Affine::none);
    EXPECT_EQ(to_string(p), text);
    EXPECT_EQ(parse_problem(to_string(p)), p);
    EXPECT_EQ(bytes(p, Tensor::scale), static_cast<std::size_t>(p.c) * sizeof(float));
    EXPECT_EQ(bytes(p, Tensor::shift), bytes(p, Tensor::scale));
    EXPECT_EQ(sizes(p, Tensor::shift), (std::array<std::int64_t, 5>{1, p.c, 1, 1, 1}));
    EXPECT_EQ(min_bytes(p), min_bytes(without_affine(p)) + 2 * static_cast<double>(bytes(p, Tensor::scale)));
  }
  EXPECT_EQ(bytes(parse_problem("n2c8h9w7k24r3s3"), Tensor::scale), 0u);
}

TEST(Affine, WhatIsNotComputedIsRefusedInWords) {
  EXPECT_THAT(
      refusal("bwd_d:n1c8h9w7k4r3s3:affine_relu"),
      testing::HasSubstr("affine_relu goes with fwd and bwd_w, which read x; without it bwd_d gives"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:affine_silu"),
              testing::HasSubstr("an activation that x is not read through; write affine_relu"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:afine"), testing::HasSubstr("the nearest is affine"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:affine:affine_relu"), testing::HasSubstr("given twice"));
}

TEST(Affine, IsRightByEveryAlgorithm) {
  const auto parallel = std::make_shared<const Parallel>(2);
  Builder builder{find_device("cpu"), parallel};
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu") continue;
    int verified = 0;
    for (const char* text : kAffineProblems)
      verify_first(*algorithm, parse_problem(text), builder, parallel, verified);
    EXPECT_TRUE(verified > 0 || algorithm->name() == "fft_cpu") << algorithm->name();
  }
}

TEST(Affine, IsRightOnEveryGpu) {
  const auto parallel = std::make_shared<const Parallel>(2);
  bool any = false;
  for (const auto& device : tested_gpus()) {
    any = true;
    Builder builder{device};
    int verified = 0;
    // By default one of each kind and layout: each compiles kernels of its own.
    const std::size_t step = sampling::full() ? 1 : 3;
    for (std::size_t i = 0; i < std::size(kAffineProblems); i += step)
      verify_first(find_algorithm("direct_gpu"), parse_problem(kAffineProblems[i]), builder, parallel,
                   verified);
    // Vectors of four and eight; and of a slice that does not begin where they do.
    for (const char* text :
         {"fwd:n2c4h6w10k5r1s1:f32:nchw:affine_relu", "fwd:n2c16h6w5k3r1s1:f16:nhwc:affine",
          "bwd_w:n2c3h8w8k4r1s1:bf16:nchw:affine_relu", "fwd:n2c8h5w3k4r1s1:xpitch24:bf16:nhwc:affine_relu"})
      verify_first(find_algorithm("direct_gpu"), parse_problem(text), builder, parallel, verified);
    EXPECT_GE(verified, 9) << device->info().id;
  }
  if (!any) GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
}

std::vector<std::byte> result_of(const Problem& p, const Tensors& tensors, const Candidate& candidate,
                                 Builder& builder, const std::shared_ptr<const Parallel>& parallel) {
  return run_once(
      *make_plan(p, candidate, builder.device(), jit::Session(*builder.device(), builder.store()), parallel),
      tensors);
}

// Whatever reads it, and however: one rounding, and one to the dtype.
TEST(Affine, HasTheBitsOfAStoredOne) {
  const auto parallel = std::make_shared<const Parallel>(3);
  Builder builder{find_device("cpu"), parallel};
  for (const char* text : {"fwd:n3c11h19w37k11r3s3:pad1:g11:%s:nchw:affine_relu",
                           "fwd:n2c37h9w7k37r3s3:st2:pad1:g37:%s:nchw:affine_relu",
                           "fwd:n2c6h20w33k12r3s3:st2:pad1:g6:%s:nchw:affine",
                           "bwd_w:n2c7h18w19k7r3s3:st3:pad1:g7:%s:nchw:affine_relu",
                           "fwd:n2c13h9w17k8r3s3:pad1:%s:nhwc:affine_relu"}) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      const std::string before = std::string(text).substr(0, std::string(text).find("%s"));
      const Problem p = parse_problem(before + dtype + (text + before.size() + 2));
      const Problem stored = without_affine(p);
      const Algorithm& algorithm = find_algorithm(is_depthwise(p) ? "depthwise_cpu" : "direct_cpu");
      const Oracle oracle(p, Data::random, 3);
      const std::unique_ptr<std::byte[]> x = x_as_read(p, oracle.tensors());
      Tensors of_stored = oracle.tensors();
      of_stored.x = x.get(), of_stored.scale = of_stored.shift = nullptr;
      for (const Candidate& one : algorithm.candidates(p, builder.target())) {
        const Candidate other = algorithm.candidate(stored, one.config, builder.target());
        EXPECT_EQ(result_of(p, oracle.tensors(), one, builder, parallel),
                  result_of(stored, of_stored, other, builder, parallel))
            << to_string(p) << " by " << one.config;
      }
    }
  }
}

// Where a kernel brings x through registers there is no pass: no step, and no workspace for what comes of x.
TEST(Affine, CostsNoPassWherePlanesAreStaged) {
  Builder builder{find_device("cpu"), std::make_shared<const Parallel>(2)};
  const auto steps = [&](const std::string& text, const char* algorithm) {
    const Problem p = parse_problem(text);
    const std::vector<Candidate> all = find_algorithm(algorithm).candidates(p, builder.target());
    const auto turns = [](const Candidate& one) { return one.config.starts_with("nhwc"); };
    const Candidate& c = *std::find_if_not(all.begin(), all.end(), turns);
    const Candidate plain =
        find_algorithm(algorithm).candidate(without_affine(p), c.config, builder.target());
    std::vector<std::string> names;
    for (const Step& step : c.recipe().steps) names.push_back(step.name);
    const bool has_pass = names.front() == "scale and shift";
    EXPECT_EQ(has_pass, c.workspace_bytes >= plain.workspace_bytes + bytes(p, Tensor::x)) << text;
    // The pass is in the price: no less than reading and writing what the caches hold.
    const double pass = 2e-6 * far_byte_ns() * static_cast<double>(bytes(p, Tensor::x)) / 2;
    if (has_pass) {
      EXPECT_GT(c.cost.ms, plain.cost.ms + pass) << text;
    }
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(steps("n2c24h12w19k24r3s3:pad1:g24:nchw:affine_relu", "depthwise_cpu"),
              ElementsAre("depthwise"));
  EXPECT_THAT(steps("bwd_w:n2c24h12w19k24r3s3:pad1:g24:nchw:affine", "depthwise_cpu"),
              ElementsAre("depthwise"));
  EXPECT_THAT(steps("n2c24h12w19k24r3s3:pad1:g24:nhwc:affine_relu", "depthwise_cpu"),
              ElementsAre("scale and shift", "depthwise"));
  EXPECT_THAT(steps("n2c64h28w28k8r1s1:nhwc:affine_relu", "direct_cpu"),
              ElementsAre("scale and shift", "direct"));
  // Of so many images that what two workers stage is less than x.
  for (const char* layout : {":nhwc", ":nchw"}) {
    for (const char* type : {":f32", ":f16"}) {
      const std::string what = std::string(layout) + type + ":affine_relu";
      EXPECT_THAT(steps("n32c32h14w14k48r3s3:pad1" + what, "implicit_gemm_cpu"),
                  ElementsAre("implicit_gemm"));
      EXPECT_THAT(steps("n32c32h14w14k48r1s1" + what, "implicit_gemm_cpu"), ElementsAre("implicit_gemm"));
      EXPECT_THAT(steps("bwd_w:n2c64h28w28k48r1s1" + what, "implicit_gemm_cpu").front(), "implicit_gemm");
    }
  }
}

// Beyond the image there are zeros, not shifts; a NaN stays one through the ReLU, and -Inf becomes zero.
TEST(Affine, PaddingIsZeroAfterIt) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder{find_device("cpu"), parallel};
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  for (const char* text : {"n1c1h1w5k1r1s3:pad0.0.1.1:affine_relu", "n1c1w5k1s3:pad1:nhwc:affine_relu"}) {
    const Problem p = parse_problem(text);
    std::vector<float> x{1, -3, kNaN, -kInf, 2}, w{1, 10, 100};
    const float scale = 2, shift = 1;  // 3, 0, NaN, 0, 5
    Tensors tensors = Tensors::forward(x.data(), w.data(), nullptr);
    tensors.scale = &scale, tensors.shift = &shift;
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "cpu" || !algorithm->supports(p, builder.target()).yes) continue;
      const Candidate candidate = algorithm->candidates(p, builder.target()).front();
      if (candidate.accuracy.on_tiles()) continue;
      const std::vector<std::byte> y = result_of(p, tensors, candidate, builder, parallel);
      float values[5];
      std::memcpy(values, y.data(), sizeof values);
      EXPECT_EQ(values[0], 30) << candidate.kernel();
      EXPECT_TRUE(std::isnan(values[1]) && std::isnan(values[2]) && std::isnan(values[3]))
          << candidate.kernel();
      EXPECT_EQ(values[4], 50) << candidate.kernel();
    }
  }
}

TEST(Affine, ItsVectorsAreNeededAndAreNotWrittenTo) {
  const auto parallel = std::make_shared<const Parallel>(1);
  Builder builder{find_device("cpu"), parallel};
  const Problem p = parse_problem("n1c2h4w4k3r1s1:affine");
  const Candidate candidate = find_candidate("direct_cpu/rows", p, builder.target());
  const Oracle oracle(p, Data::random, 1);
  const auto message = [&](Tensors tensors) -> std::string {
    const auto plan =
        make_plan(p, candidate, builder.device(), jit::Session(*builder.device(), builder.store()), parallel);
    std::vector<float> y(48 + 2);
    tensors.y = y.data();
    if (tensors.shift == tensors.x) tensors.shift = y.data() + 46;
    std::vector<std::byte> workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    try {
      plan->run(tensors, options);
      return "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      return error.what();
    }
  };
  Tensors tensors = oracle.tensors();
  EXPECT_EQ(message(tensors), "ran");
  tensors.scale = nullptr;
  EXPECT_THAT(message(tensors), testing::HasSubstr("tensor scale is null, but fwd of"));
  tensors = oracle.tensors(), tensors.shift = nullptr;
  EXPECT_THAT(message(tensors), testing::HasSubstr("tensor shift is null"));
  tensors.shift = tensors.x;  // replaced by a place in the result
  EXPECT_THAT(message(tensors), testing::HasSubstr("y is written to and overlaps shift"));
}

TEST(Affine, IsComputedThroughTheCInterface) {
  const Scratch scratch;
  faltung_engine* engine = nullptr;
  ASSERT_EQ(faltung_engine_create(scratch.path().c_str(), &engine), FALTUNG_OK);
  faltung_problem* problem = nullptr;
  ASSERT_EQ(faltung_problem_create("fwd:n1c2h4w4k2r3s3:pad1:affine_relu", &problem), FALTUNG_OK);
  EXPECT_EQ(faltung_problem_bytes(problem, FALTUNG_SCALE), 2 * sizeof(float));
  int64_t sizes[4];
  EXPECT_EQ(faltung_problem_sizes(problem, FALTUNG_SHIFT, sizes), FALTUNG_OK);
  EXPECT_EQ(sizes[1], 2);
  faltung_plan* plan = nullptr;
  ASSERT_EQ(faltung_plan_create(engine, problem, nullptr, &plan), FALTUNG_OK) << faltung_last_error();
  std::vector<float> x(32, 3), w(36, 1), y(32, -1), scale{2, -2}, shift{1, 4};  // 7 and 0
  std::vector<char> workspace(faltung_plan_workspace_bytes(plan, 0) + 1);
  faltung_run_options options{};
  options.size = sizeof options;
  options.workspace = workspace.data();
  faltung_tensors tensors{};
  tensors.size = sizeof tensors;
  tensors.x = x.data(), tensors.w = w.data(), tensors.y = y.data(), tensors.scale = scale.data();
  EXPECT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_BAD_PROBLEM);
  EXPECT_THAT(faltung_last_error(), testing::HasSubstr("tensor shift is null"));
  tensors.shift = shift.data();
  ASSERT_EQ(faltung_run(plan, &tensors, &options), FALTUNG_OK) << faltung_last_error();
  EXPECT_EQ(y[0], 4 * 7);
  EXPECT_EQ(y[5], 9 * 7);
  faltung_plan_destroy(plan);
  faltung_problem_destroy(problem);
  faltung_engine_destroy(engine);
  EXPECT_EQ(faltung_problem_create("bwd_d:n1c2h4w4k2r3s3:affine", &problem), FALTUNG_BAD_PROBLEM);
}

}  // namespace
}  // namespace faltung
