// The problems on which every kernel of the registry is tested.
#ifndef FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_
#define FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "src/problem/problem.hpp"
#include "src/problem/text.hpp"

namespace faltung {

// The rows of tests/shapes/small.csv in every direction, layout and dtype.
inline std::vector<Problem> shape_problems() {
  std::ifstream in(std::string(FALTUNG_SOURCE_DIR) + "/tests/shapes/small.csv");
  EXPECT_TRUE(in.good()) << "tests/shapes/small.csv";
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
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights}) {
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          p.direction = direction;
          p.layout = layout;
          p.dtype = dtype;
          p.math = default_math(dtype);
          problems.push_back(p);
        }
      }
    }
  }
  return problems;
}

// Every operation of the epilogue, pools among them, behind a dense, a depthwise, a 1x1 and a strided filter.
inline std::vector<Problem> epilogue_problems() {
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
  std::vector<Problem> problems;
  for (const char* epilogue : epilogues) {
    for (const char* shape : shapes) {
      for (const char* layout : {"nchw", "nhwc"}) {
        for (const char* type : {"f32", "f16", "bf16"}) {
          problems.push_back(
              parse_problem(std::string("fwd:") + shape + ":" + type + ":" + layout + ":" + epilogue));
        }
      }
    }
    // Planes of a multiple of 8 pixels and channels, which Hopper's kernels take as they are.
    problems.push_back(parse_problem(std::string("fwd:n1c40h8w9k168r1s1:f16:nchw:") + epilogue));
  }
  return problems;
}

// How far apart are those of `count` problems that a test runs: 1 unless FALTUNG_TEST_PROBLEMS gives their
// number. The variants come in twos and threes: a step with such a factor would miss some of them.
inline std::size_t problem_step(std::size_t count) {
  const char* given = std::getenv("FALTUNG_TEST_PROBLEMS");
  const std::size_t wanted = given == nullptr ? 0 : static_cast<std::size_t>(std::atoll(given));
  std::size_t step = wanted == 0 ? 1 : std::max<std::size_t>(1, count / wanted);
  while (step > 1 && (step % 2 == 0 || step % 3 == 0)) --step;
  return step;
}

// A part that meets everything: of problems without an epilogue one for each direction, layout and dtype, of
// the others one for each epilogue, their layouts and dtypes in turn. Shapes come in turn, too. step 2: every
// other one of these, which still meets every direction, every layout and every dtype.
inline std::vector<Problem> sample(const std::vector<Problem>& problems, std::size_t step = 1) {
  const auto variant = [](const Problem& p) {
    return std::string(name(p.direction)) + name(p.layout) + name(p.dtype);
  };
  std::vector<std::string> kinds;
  std::map<std::string, std::vector<Problem>> of_kind;
  std::vector<std::string> variants;
  for (const Problem& p : problems) {
    Problem only_epilogue;
    only_epilogue.epilogue = p.epilogue;
    const std::string kind = p.epilogue.empty() ? variant(p) : to_string(only_epilogue);
    if (of_kind[kind].empty()) kinds.push_back(kind);
    of_kind[kind].push_back(p);
    if (std::find(variants.begin(), variants.end(), variant(p)) == variants.end())
      variants.push_back(variant(p));
  }
  std::vector<Problem> chosen;
  for (std::size_t i = 0; i < kinds.size(); i += step) {
    std::vector<Problem> shapes;
    const std::string& wanted = variants[i % variants.size()];
    for (const Problem& p : of_kind[kinds[i]]) {
      if (p.epilogue.empty() || variant(p) == wanted) shapes.push_back(p);
    }
    if (shapes.empty()) shapes = of_kind[kinds[i]];
    constexpr std::size_t kStride = 7;  // no factor of the number of shapes
    chosen.push_back(shapes[i * kStride % shapes.size()]);
  }
  return chosen;
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_REGISTRY_PROBLEMS_HPP_
