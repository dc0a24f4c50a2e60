// Every algorithm for GPUs, each of its configs, on every GPU there is (OpenCL drivers for the CPU count):
// exact on small integers, then within the bound. Each shape of tests/shapes runs in every direction, the
// layouts and dtypes in turn; FALTUNG_TEST_ALL=1 runs them all. FALTUNG_TEST_ONLY=<kernel-name pattern>
// narrows it.
//
// FALTUNG_TEST_REQUIRE_GPU=1 makes a machine without any a failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "src/finder/verify.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

std::vector<Problem> read_shapes(const std::string& file) {
  std::ifstream in(std::string(FALTUNG_SOURCE_DIR) + "/tests/shapes/" + file);
  EXPECT_TRUE(in.good()) << file;
  std::vector<Problem> problems;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const std::vector<std::string> f = split(line, ',');
    const auto number = [&](int i) { return std::stoll(f.at(static_cast<std::size_t>(i))); };
    Problem p;
    p.n = number(1), p.c = number(2), p.h = number(3), p.w = number(4), p.k = number(5), p.r = number(6);
    p.s = number(7), p.stride_h = number(8), p.stride_w = number(9), p.pad_top = number(10);
    p.pad_bottom = number(11), p.pad_left = number(12), p.pad_right = number(13), p.dilation_h = number(14);
    p.dilation_w = number(15), p.groups = number(16);
    problems.push_back(p);
  }
  return problems;
}

std::vector<std::shared_ptr<Device>> gpus() {
  std::vector<std::shared_ptr<Device>> found;
  for (const auto& device : list_devices()) {
    if (device->info().kind == "gpu") found.push_back(device);
  }
  return found;
}

TEST(RegistryGpu, ThereIsADevice) {
  if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") == nullptr) GTEST_SKIP() << "not required";
  EXPECT_FALSE(gpus().empty());
}

class RegistryGpu : public testing::TestWithParam<const Algorithm*> {
 protected:
  void SetUp() override {
    if (devices_.empty()) GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
  }

  // Verifies every config of the algorithm on every device; a problem that it declines must come with a
  // reason.
  void verify_all(const Problem& problem) {
    validate(problem);
    const Algorithm& algorithm = *GetParam();
    for (const std::shared_ptr<Device>& device : devices_) {
      const Target target{*device, 1};
      const Support support = algorithm.supports(problem, target);
      if (!support.yes) {
        EXPECT_FALSE(support.why.empty()) << to_string(problem);
        continue;
      }
      const std::vector<Config> configs = algorithm.configs(problem, target);
      ASSERT_FALSE(configs.empty()) << to_string(problem);
      const char* only = std::getenv("FALTUNG_TEST_ONLY");
      for (const Config& config : configs) {
        const std::string kernel = kernel_name(algorithm, config.name);
        if (only != nullptr && !matches(only, kernel)) continue;
        const Verification v = verify_kernel(algorithm, config.name, problem, device, parallel_, 1);
        EXPECT_TRUE(v.passed()) << "faltung verify '" << to_string(problem) << "' --device "
                                << device->info().id << " --kernel " << kernel << " --seed 1: " << v.verdict
                                << ", " << v.what;
        ++verified_;
      }
    }
  }

  static bool thorough() { return std::getenv("FALTUNG_TEST_ALL") != nullptr; }

  std::vector<std::shared_ptr<Device>> devices_ = gpus();
  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  int verified_ = 0;
};

TEST_P(RegistryGpu, ShapesInEveryDirection) {
  int turn = 0;
  for (const Problem& row : read_shapes("small.csv")) {
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      const int chosen = turn++ % 6;
      for (int variant = 0; variant < 6; ++variant) {
        if (!thorough() && variant != chosen) continue;
        Problem p = row;
        p.direction = direction;
        p.layout = variant % 2 == 0 ? Layout::nchw : Layout::nhwc;
        p.dtype = static_cast<DType>(variant / 2);
        p.math = default_math(p.dtype);
        verify_all(p);
        if (GetParam()->supports(p, {*devices_.front(), 1}).yes) continue;
        p.math = Math::fast;  // what an algorithm declines for its error it may do here
        verify_all(p);
      }
    }
    ++turn;  // so that a direction meets every variant
  }
}

TEST_P(RegistryGpu, EveryEpilogue) {
  const char* const epilogues[] = {"bias",
                                   "residual",
                                   "bias:residual:relu",
                                   "relu6",
                                   "leaky_relu(0.1)",
                                   "bias:sigmoid",
                                   "silu",
                                   "bias:gelu",
                                   "gelu_tanh",
                                   "hardswish",
                                   "bias:relu:maxpool2",
                                   "maxpool3s2p1",
                                   "residual:avgpool2",
                                   "silu:avgpool3s2p1",
                                   "bias:relu:maxpool2x3s1x2p0.1.0.2"};
  const char* const shapes[] = {"n2c16h14w15k32r3s3:pad1", "n1c24h9w12k24r3s3:pad1:g24", "n1c33h8w8k40r1s1",
                                "n1c3h21w19k20r5s5:st2:pad0.1.2.1"};
  int turn = 0;
  for (const char* shape : shapes) {
    for (const char* epilogue : epilogues) {
      const int chosen = turn++ % 6;
      int variant = 0;
      for (const char* type : {"f32", "f16", "bf16"}) {
        for (const char* layout : {"nchw", "nhwc"}) {
          if (!thorough() && variant++ != chosen) continue;
          verify_all(parse_problem(std::string("fwd:") + shape + ":" + type + ":" + layout + ":" + epilogue));
        }
      }
    }
  }
}

// Twice, with another batch and image: the second compiles nothing.
TEST_P(RegistryGpu, ANewImageSizeCompilesNothing) {
  for (const std::shared_ptr<Device>& device : devices_) {
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      Problem p = parse_problem("fwd:n1c16h14w15k32r3s3:pad1:f32:nchw");
      p.direction = direction;
      const Target target{*device, 1};
      if (!GetParam()->supports(p, target).yes) continue;
      const std::string config = GetParam()->configs(p, target).front().name;
      make_recipe(*GetParam(), p, config, target);
      p.n = 2, p.h = 17, p.w = 13;
      EXPECT_EQ(make_recipe(*GetParam(), p, config, target).compile_ms, 0) << name(direction);
    }
  }
}

std::vector<const Algorithm*> all() {
  std::vector<const Algorithm*> algorithms;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() == "gpu") algorithms.push_back(algorithm.get());
  }
  return algorithms;
}

INSTANTIATE_TEST_SUITE_P(All, RegistryGpu, testing::ValuesIn(all()),
                         [](const auto& param) { return std::string(param.param->name()); });

}  // namespace
}  // namespace faltung
