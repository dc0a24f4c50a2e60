// Every algorithm of the registry, each of its configs, over every direction, layout, dtype and epilogue and
// the lists in tests/shapes: exact on small integers, then within the bound.
//
// FALTUNG_TEST_ONLY=<kernel-name pattern> narrows it while one algorithm is being written.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "src/finder/verify.hpp"
#include "src/problem/text.hpp"

namespace faltung {
namespace {

struct Row {
  std::string name;
  Problem problem;
};

std::vector<Row> read_shapes(const std::string& file) {
  std::ifstream in(std::string(FALTUNG_SOURCE_DIR) + "/tests/shapes/" + file);
  EXPECT_TRUE(in.good()) << file;
  std::vector<Row> rows;
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
    rows.push_back({f[0], p});
  }
  return rows;
}

class Registry : public testing::TestWithParam<const Algorithm*> {
 protected:
  // Verifies every config of the algorithm; a problem that it declines must come with a reason.
  void verify_all(const Problem& problem) {
    validate(problem);
    const Algorithm& algorithm = *GetParam();
    const Target target{*device_, parallel_->workers()};
    const Support support = algorithm.supports(problem, target);
    if (!support.yes) {
      EXPECT_FALSE(support.why.empty()) << to_string(problem);
      return;
    }
    const std::vector<Config> configs = algorithm.configs(problem, target);
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const char* only = std::getenv("FALTUNG_TEST_ONLY");
    Verifier verifier(problem, device_, parallel_, 1);
    for (const Config& config : configs) {
      const std::string kernel = kernel_name(algorithm, config.name);
      if (only != nullptr && !matches(only, kernel)) continue;
      const Verification v = verifier.kernel(algorithm, config.name);
      EXPECT_TRUE(v.passed()) << "faltung verify '" << to_string(problem) << "' --kernel " << kernel
                              << " --seed 1: " << v.verdict << ", " << v.what;
      ++verified_;
    }
  }

  std::shared_ptr<Device> device_ = find_device("cpu");
  std::shared_ptr<const Parallel> parallel_ = std::make_shared<Parallel>(2);
  int verified_ = 0;
};

TEST_P(Registry, ShapesInEveryDirectionLayoutAndDtype) {
  for (const Row& row : read_shapes("small.csv")) {
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          Problem p = row.problem;
          p.direction = direction;
          p.layout = layout;
          p.dtype = dtype;
          p.math = default_math(dtype);
          verify_all(p);
          if (GetParam()->supports(p, {*device_, 2}).yes) continue;
          p.math = Math::fast;  // what an algorithm declines for its error it may do here
          verify_all(p);
        }
      }
    }
  }
}

TEST_P(Registry, EveryEpilogue) {
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
  for (const char* shape : shapes) {
    for (const char* epilogue : epilogues) {
      for (const char* type : {"f32", "f16", "bf16"}) {
        for (const char* layout : {"nchw", "nhwc"}) {
          verify_all(parse_problem(std::string("fwd:") + shape + ":" + type + ":" + layout + ":" + epilogue));
        }
      }
    }
  }
}

std::vector<const Algorithm*> all() {
  std::vector<const Algorithm*> algorithms;
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() == "cpu") algorithms.push_back(algorithm.get());
  }
  return algorithms;
}

INSTANTIATE_TEST_SUITE_P(All, Registry, testing::ValuesIn(all()),
                         [](const auto& param) { return std::string(param.param->name()); });

}  // namespace
}  // namespace faltung
