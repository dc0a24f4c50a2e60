// Scheduled networks, held to ONNX's node tests (Debian: libonnx-testdata) and to the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <optional>

#include "src/network/epilogue.hpp"
#include "src/network/interpreter.hpp"
#include "tests/network_fixture.hpp"
#include "tests/node_cases.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

TEST(NetworkEpilogue, ABiasStaysInF32BesideSixteenBits) {
  const network::Node node;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_EQ(network::epilogue_of(node, dtype, {true, false}).bias_element, BiasElement::f32);
    EXPECT_EQ(network::epilogue_of(node, dtype, {false, true}).bias_element, BiasElement::as_tensors);
  }
  EXPECT_EQ(network::epilogue_of(node, DType::f32, {true, false}).bias_element, BiasElement::as_tensors);
}

class NetworkSchedule : public testing::Test {
 protected:
  std::vector<Array> run(const node_cases::Case& c, bool all_but_first) {
    Graph graph = network::read_onnx(c.model);
    std::vector<Array> inputs = node_cases::inputs(c, graph);
    graph = node_cases::with_constants(std::move(graph), inputs, all_but_first);
    std::vector<Shape> shapes;
    for (const Array& input : inputs) shapes.push_back(input.shape);
    const network::Schedule schedule = runner_.schedule(std::move(graph), shapes, {});
    return NetworkRunner::run(schedule, inputs);
  }

  NetworkRunner runner_;
};

// An InstanceNormalization by ones and zeros stands for groups: its own scale and shift are no step, and the
// chain after it is computed with it.
TEST_F(NetworkSchedule, GroupNormalizationIsOneStep) {
  const auto steps_of = [&](float scale, float shift) {
    onnx::ModelText model;
    model.add_input("x", {1, 8, 4, 6});
    model.add_constant(onnx::tensor("in groups", onnx::Sizes{1, 2, -1}));
    model.add_constant(onnx::tensor("in channels", onnx::Sizes{1, 8, 4, 6}));
    model.add_constant(onnx::tensor("scale", {2}, std::vector<float>{1, scale}));
    model.add_constant(onnx::tensor("shift", {2}, std::vector<float>{shift, 0}));
    const std::vector<float> own{1, 2, 3, 4, -1, -2, -3, -4};
    model.add_constant(onnx::tensor("own", {8, 1, 1}, own));
    model.add({"Reshape", {"x", "in groups"}, {"groups"}, {}, ""});
    model.add({"InstanceNormalization", {"groups", "scale", "shift"}, {"even"}, {}, ""});
    model.add({"Reshape", {"even", "in channels"}, {"channels"}, {}, ""});
    model.add({"Mul", {"channels", "own"}, {"scaled"}, {}, ""});
    model.add({"Add", {"scaled", "own"}, {"shifted"}, {}, ""});
    model.add({"Relu", {"shifted"}, {"y"}, {}, ""});
    model.add_output("y");
    const std::string bytes = model.bytes();
    const Graph graph = onnx::read(bytes);
    Array x{network::Type::f32, {1, 8, 4, 6}, {}};
    for (int i = 0; i < 192; ++i) x.data.push_back(i * 37 % 101);
    const network::Schedule schedule = runner_.schedule(graph, {x.shape}, {});
    EXPECT_LE(worst_error(network::interpret(graph, {x})[0], NetworkRunner::run(schedule, {x})[0]), 1e-6);
    return schedule.steps().size();
  };
  EXPECT_EQ(steps_of(1, 0), 1u);
  EXPECT_EQ(steps_of(3, 0), 2u);
  EXPECT_EQ(steps_of(1, 5), 2u);
}

TEST_F(NetworkSchedule, Onnx) {
  if (!std::filesystem::exists(node_cases::kFolder))
    GTEST_SKIP() << node_cases::kFolder << " is missing; Debian has it in libonnx-testdata";
  std::map<std::string, std::string> declined;
  int run_count = 0;
  for (const node_cases::Case& c : node_cases::all()) {
    SCOPED_TRACE(c.name);
    std::optional<std::vector<Array>> results;
    for (const bool all_but_first : {false, true}) {
      try {
        if (!results) results = run(c, all_but_first);
      } catch (const Error& error) {
        EXPECT_TRUE(error.status() == Status::unsupported || error.status() == Status::bad_problem)
            << c.name << ": " << error.what();
        declined[c.name] = error.what();
      }
    }
    if (!results) continue;
    declined.erase(c.name);
    const std::vector<Array> expected = node_cases::outputs(c, *results);
    ASSERT_EQ(results->size(), expected.size()) << c.name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      node_cases::expect_same(c.name, expected[i], (*results)[i]);
    ++run_count;
  }
  std::cout << run_count << " cases; " << declined.size() << " declined\n";
  node_cases::print_declined(declined);
  EXPECT_GE(run_count, node_cases::folders().size() > 1 ? 1330 : 420);  // as of ONNX 1.23, and 1.12
}

// Remainders of either sign, products, and logarithms of sums, of images and with and without the dimensions
// that they run over; numbers whose powers of e no float holds.
TEST_F(NetworkSchedule, RemaindersProductsAndLogarithmsOfSums) {
  onnx::ModelText model;
  const Shape shape{2, 5, 4, 6};
  model.add_input("x", shape);
  model.add_constant(onnx::tensor("by", {5, 1, 1}, std::vector<float>{3, -0.75f, 1e-3f, -7, 250}));
  model.add_constant(onnx::tensor("most", {1}, std::vector<float>{300}));
  model.add({"Mod", {"x", "by"}, {"as by"}, {{"fmod", std::int64_t{0}}}, ""});
  model.add({"Mod", {"x", "by"}, {"as x"}, {{"fmod", std::int64_t{1}}}, ""});
  model.add({"ReduceProd", {"x"}, {"of channels"}, {{"axes", onnx::Sizes{1}}}, ""});
  model.add(
      {"ReduceProd", {"x"}, {"of pixels"}, {{"axes", onnx::Sizes{3, 1}}, {"keepdims", std::int64_t{0}}}, ""});
  model.add({"Abs", {"x"}, {"size"}, {}, ""});
  model.add({"ReduceLogSum", {"size"}, {"log"}, {{"axes", onnx::Sizes{2, 3}}}, ""});
  model.add({"Mul", {"x", "most"}, {"large"}, {}, ""});
  for (const std::int64_t keeps : {0, 1}) {
    for (const onnx::Sizes& axes : {onnx::Sizes{2, 3}, onnx::Sizes{0, -1}})
      model.add({"ReduceLogSumExp",
                 {"large"},
                 {"e" + std::to_string(keeps) + std::to_string(axes[0])},
                 {{"axes", axes}, {"keepdims", keeps}},
                 ""});
  }
  for (const char* output : {"as by", "as x", "of channels", "of pixels", "log", "e02", "e00", "e12", "e10"})
    model.add_output(output);
  const std::string bytes = model.bytes();
  const Graph graph = onnx::read(bytes);
  Array x{network::Type::f32, shape, {}};
  for (int i = 0; i < 240; ++i) x.data.push_back((i * 37 % 101 - 50) / 16.0);
  const std::vector<Array> expected = network::interpret(graph, {x});
  const std::vector<Array> actual = NetworkRunner::run(runner_.schedule(graph, {shape}, {}), {x});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].shape, actual[i].shape);
    EXPECT_LE(worst_error(expected[i], actual[i]), 2e-6) << i;
  }
  EXPECT_EQ(worst_error(expected[1], actual[1]), 0) << "C's remainder is exact";
}

TEST_F(NetworkSchedule, LogarithmsOfSumsOfInfinities) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  onnx::ModelText model;
  model.add_input("x", {4, 3});
  model.add({"ReduceLogSumExp", {"x"}, {"y"}, {{"axes", onnx::Sizes{1}}, {"keepdims", std::int64_t{0}}}, ""});
  model.add_output("y");
  const std::string bytes = model.bytes();
  const Graph graph = onnx::read(bytes);
  const Array x{
      network::Type::f32,
      {4, 3},
      {-kInfinity, -kInfinity, -kInfinity, 5, kInfinity, -kInfinity, -kInfinity, 7, -kInfinity, 1, NAN, 2}};
  for (const Array& y : {network::interpret(graph, {x})[0],
                         NetworkRunner::run(runner_.schedule(graph, {{4, 3}}, {}), {x})[0]}) {
    EXPECT_EQ(y.data[0], -kInfinity);
    EXPECT_EQ(y.data[1], kInfinity);
    EXPECT_EQ(y.data[2], 7);
    EXPECT_TRUE(std::isnan(y.data[3]));
  }
}

// A part of no elements is no step, and writes nothing over what lies there.
TEST_F(NetworkSchedule, EmptyPartsAreNoSteps) {
  onnx::ModelText model;
  model.add_input("x", {2, 3, 8});
  model.add_constant(onnx::tensor("parts", onnx::Sizes{8, 0}));
  model.add_constant(onnx::tensor("one", {1}, std::vector<float>{1}));
  model.add({"Transpose", {"x"}, {"t"}, {{"perm", onnx::Sizes{1, 0, 2}}}, ""});
  model.add({"Split", {"t", "parts"}, {"all", "none"}, {{"axis", std::int64_t{2}}}, ""});
  model.add({"Sin", {"none"}, {"sine"}, {}, ""});
  model.add({"Add", {"all", "one"}, {"more"}, {}, ""});
  model.add({"Concat", {"more", "sine", "none"}, {"y"}, {{"axis", std::int64_t{2}}}, ""});
  model.add_output("y");
  const std::string bytes = model.bytes();
  const Graph graph = onnx::read(bytes);
  Array x{network::Type::f32, {2, 3, 8}, {}};
  for (int i = 0; i < 48; ++i) x.data.push_back(i);
  const network::Schedule schedule = runner_.schedule(graph, {x.shape}, {});
  for (const network::NetworkStep& step : schedule.steps())
    EXPECT_EQ(step.name.find("none"), std::string::npos);
  EXPECT_EQ(worst_error(network::interpret(graph, {x})[0], NetworkRunner::run(schedule, {x})[0]), 0);
}

// Nor an empty chain before all others, where there is no step yet that could be told of it.
TEST_F(NetworkSchedule, AnEmptyChainIsNoStep) {
  onnx::ModelText model;
  model.add_input("x", {2, 4});
  model.add_constant(onnx::tensor("parts", onnx::Sizes{0, 2}));
  model.add({"Split", {"x", "parts"}, {"none", "all"}, {{"axis", std::int64_t{0}}}, ""});
  model.add({"Sin", {"none"}, {"sine"}, {}, ""});
  model.add({"Sin", {"all"}, {"sines"}, {}, ""});
  model.add({"Concat", {"sine", "sines"}, {"y"}, {{"axis", std::int64_t{0}}}, ""});
  model.add_output("y");
  const std::string bytes = model.bytes();
  const Graph graph = onnx::read(bytes);
  const Array x{network::Type::f32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const network::Schedule schedule = runner_.schedule(graph, {x.shape}, {});
  EXPECT_EQ(schedule.steps().size(), 1u);
  EXPECT_LT(worst_error(network::interpret(graph, {x})[0], NetworkRunner::run(schedule, {x})[0]), 1e-6);
}

}  // namespace
}  // namespace faltung
