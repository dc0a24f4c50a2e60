// Scheduled networks, held to ONNX's node tests (Debian: libonnx-testdata).
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

#include "src/network/epilogue.hpp"
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
// chain after it is one.
TEST_F(NetworkSchedule, GroupNormalizationIsTwoSteps) {
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
  EXPECT_EQ(steps_of(1, 0), 2u);
  EXPECT_EQ(steps_of(3, 0), 3u);
  EXPECT_EQ(steps_of(1, 5), 3u);
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
  for (const auto& [name, why] : declined) {
    if (why.find("operators that are not known") == std::string::npos &&
        why.find("the oldest that is known") == std::string::npos)
      std::cout << "  " << name << ": " << why << "\n";
  }
  EXPECT_GE(run_count, 420);  // as of ONNX 1.12
}

}  // namespace
}  // namespace faltung
