// What training has around a convolution: the sums of stats and dbias, the ReLU's gradient of drelu. Behind
// every CPU algorithm, and behind a GPU's on the OpenCL drivers there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>

#include "src/finder/sums.hpp"
#include "src/problem/dtype.hpp"
#include "src/problem/parse.hpp"
#include "src/problem/text.hpp"
#include "tests/builder.hpp"
#include "tests/sampling.hpp"
#include "tests/tested_devices.hpp"
#include "tests/verify_first.hpp"

namespace faltung {
namespace {

// Odd sizes, groups, each number of dimensions, a pool before the sums.
const char* const kTrainingProblems[] = {
    "fwd:n2c8h9w7k24r3s3:pad1:f32:nhwc:stats",
    "fwd:n3c6h9w23k10r3s3:pad1:f16:nchw:bias:relu:stats",
    "fwd:n2c16h8w8k40r1s1:bf16:nhwc:residual:maxpool2:stats",
    "fwd:n2c8h9w7k24r3s3:pad1:xpitch24:f16:nhwc:bias:residual:relu:stats",
    "fwd:n2c8w50k12s3:pad1:f32:nchw:stats",
    "fwd:n1c6d4h5w6k7t3r3s3:pad1:bf16:nhwc:stats",
    "bwd_d:n2c12h9w7k8r3s3:pad1:f32:nchw:drelu",
    "bwd_d:n2c20h8w9k16r1s1:f16:nhwc:drelu",
    "bwd_d:n1c8h11w12k8r3s3:st2:pad1:g8:bf16:nhwc:drelu",
    "bwd_d:n1c5w40k6s5:transposed:st2:pad1:f32:nhwc:drelu",
    "bwd_w:n2c8h9w7k19r3s3:pad1:f32:nhwc:dbias",
    "bwd_w:n3c16h6w10k24r1s1:f16:nchw:dbias",
    "bwd_w:n2c8h11w12k8r3s3:st2:pad1:g8:f32:nchw:dbias",
    "bwd_w:n2c6h7w5k9r3s3:transposed:st2:pad1:bf16:nhwc:dbias"};

TEST(Training, IsPartOfTheProblem) {
  for (const char* text : kTrainingProblems) {
    const Problem p = parse_problem(text);
    EXPECT_NE(p.training, Training::none);
    EXPECT_EQ(to_string(p), text);
    EXPECT_EQ(parse_problem(to_string(p)), p);
  }
  const Problem stats = parse_problem("n2c8h9w7k24r3s3:stats"),
                dbias = parse_problem("bwd_w:n2c8h9w7k24r3s3:f16:dbias");
  EXPECT_EQ(bytes(stats, Tensor::sums), 2 * 24 * sizeof(float));
  EXPECT_EQ(bytes(dbias, Tensor::sums), 24 * sizeof(float));
  EXPECT_EQ(bytes(parse_problem("n2c8h9w7k24r3s3"), Tensor::sums), 0u);
  EXPECT_EQ(sizes(stats, Tensor::sums), (std::array<std::int64_t, 5>{2, 24, 1, 1, 1}));
  EXPECT_EQ(sizes(dbias, Tensor::relu), sizes(dbias, Tensor::x));
}

TEST(Training, OfAnotherDirectionIsRefusedWithTheRightOne) {
  EXPECT_THAT(refusal("fwd:n1c8h9w7k4r3s3:dbias"),
              testing::HasSubstr("dbias goes with bwd_w, not with fwd, which has stats"));
  EXPECT_THAT(refusal("bwd_w:n1c8h9w7k4r3s3:drelu"),
              testing::HasSubstr("drelu goes with bwd_d, not with bwd_w, which has dbias"));
  EXPECT_THAT(refusal("bwd_d:n1c8h9w7k4r3s3:stats"),
              testing::HasSubstr("stats goes with fwd, not with bwd_d"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:ypitch8:nhwc:stats"),
              testing::HasSubstr("stats are of a whole tensor: leave ypitch out"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:stats:stats"), testing::HasSubstr("given twice"));
  EXPECT_THAT(refusal("n1c8h9w7k4r3s3:stat"), testing::HasSubstr("the nearest is stats"));
}

TEST(Training, IsRightBehindEveryAlgorithm) {
  const auto parallel = std::make_shared<const Parallel>(2);
  Builder builder{find_device("cpu"), parallel};
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "cpu") continue;
    int verified = 0;
    for (const char* text : kTrainingProblems)
      verify_first(*algorithm, parse_problem(text), builder, parallel, verified);
    const bool serves_few = algorithm->name() == "implicit_gemm_amx" || algorithm->name() == "fft_cpu" ||
                            algorithm->name() == "depthwise_cpu";
    EXPECT_TRUE(verified > 0 || serves_few) << algorithm->name();
  }
}

TEST(Training, IsRightOnEveryGpu) {
  const auto parallel = std::make_shared<const Parallel>(2);
  bool any = false;
  for (const auto& device : tested_gpus()) {
    any = true;
    Builder builder{device};
    int verified = 0;
    // By default one of each kind and layout: each compiles kernels of its own.
    const std::size_t step = sampling::full() ? 1 : 3;
    for (std::size_t i = 0; i < std::size(kTrainingProblems); i += step)
      verify_first(find_algorithm("direct_gpu"), parse_problem(kTrainingProblems[i]), builder, parallel,
                   verified);
    // More than one part of the sums.
    for (const char* text : {"fwd:n2c2h60w61k5r1s1:f32:nchw:stats", "bwd_w:n2c2h60w61k33r1s1:f16:nhwc:dbias"})
      verify_first(find_algorithm("direct_gpu"), parse_problem(text), builder, parallel, verified);
    EXPECT_GE(verified, 6) << device->info().id;
  }
  if (!any) GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
}

TEST(Training, BitsDoNotDependOnTheThreads) {
  const Problem p = parse_problem("fwd:n3c6h9w23k10r3s3:pad1:f32:nchw:stats");
  const Oracle oracle(p, Data::random, 1);
  std::vector<std::vector<float>> sums;
  for (const int threads : {1, 3}) {
    const auto parallel = std::make_shared<const Parallel>(threads);
    Builder builder{find_device("cpu"), parallel};
    const Candidate candidate = find_candidate("direct_cpu/rows", p, builder.target());
    const auto plan =
        make_plan(p, candidate, builder.device(), jit::Session(*builder.device(), builder.store()), parallel);
    std::vector<float> y(static_cast<std::size_t>(y_shape(p).elements()));
    Tensors tensors = oracle.tensors();
    tensors.y = y.data();
    EXPECT_THROW(plan->run(tensors, {}), Error) << "without sums";
    tensors.sums = y.data();
    EXPECT_THROW(plan->run(tensors, {}), Error) << "sums in the result";
    sums.emplace_back(static_cast<std::size_t>(2 * p.k));
    tensors.sums = sums.back().data();
    std::vector<std::byte> workspace(plan->workspace_bytes(false));
    RunOptions options;
    options.workspace = workspace.data();
    plan->run(tensors, options);
    EXPECT_LE(check_sums(p, y.data(), sums.back().data()).error_over_bound, 1);
  }
  EXPECT_EQ(std::memcmp(sums[0].data(), sums[1].data(), sums[0].size() * sizeof(float)), 0);
}

TEST(Training, WrongSumsAreFound) {
  const Problem p = parse_problem("fwd:n1c2h4w4k3r1s1:f32:nhwc:stats");
  std::vector<float> y(static_cast<std::size_t>(y_shape(p).elements())), sums(6);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<float>(i % 5) - 1;
    sums[i % 3] += y[i], sums[3 + i % 3] += y[i] * y[i];
  }
  EXPECT_TRUE(check_sums(p, y.data(), sums.data()).right());
  for (const std::size_t at : {std::size_t{0}, std::size_t{5}}) {
    std::vector<float> wrong = sums;
    wrong[at] = std::nextafter(wrong[at], 100.0f);
    EXPECT_FALSE(check_sums(p, y.data(), wrong.data()).right());
    wrong[at] = NAN;
    EXPECT_FALSE(check_sums(p, y.data(), wrong.data()).right());
  }
  y[4] += 0.25f;  // no integer any more: within a chain's rounding
  sums[1] += 0.25f, sums[4] += y[4] * y[4] - (y[4] - 0.25f) * (y[4] - 0.25f);
  sums[1] = std::nextafter(sums[1], 100.0f);
  EXPECT_TRUE(check_sums(p, y.data(), sums.data()).right());
  sums[1] *= 1.001f;
  EXPECT_THAT(check_sums(p, y.data(), sums.data()).worst,
              testing::HasSubstr("the sum of elements of channel 1 is"));
}

}  // namespace
}  // namespace faltung
