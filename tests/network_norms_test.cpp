// Norms on the CPU with what follows them: one step, as good as two.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/network_fixture.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Shape;

struct NormCase {
  std::string name;
  Shape shape;
  std::int64_t groups, axis;  // of channels; 0: rows from `axis` on
  std::string activation;     // behind it, or none
  bool residual, is_one_step;
};

std::string model(const NormCase& c, const std::vector<float>& scale, const std::vector<float>& shift) {
  onnx::ModelText text;
  text.add_input("x", c.shape);
  text.opset = 21;
  const Shape of = c.groups > 0 ? Shape{c.shape[1]} : Shape(c.shape.begin() + c.axis, c.shape.end());
  text.add_constant(onnx::tensor("scale", of, scale));
  text.add_constant(onnx::tensor("shift", of, shift));
  if (c.groups > 0)
    text.add({"GroupNormalization", {"x", "scale", "shift"}, {"norm"}, {{"num_groups", c.groups}}, ""});
  else
    text.add({"LayerNormalization", {"x", "scale", "shift"}, {"norm"}, {{"axis", c.axis}}, ""});
  std::string last = "norm";
  if (!c.activation.empty()) text.add({c.activation, {last}, {"active"}, {}, ""}), last = "active";
  if (c.residual) text.add({"Add", {last, "x"}, {"sum"}, {}, ""}), last = "sum";
  text.add_output(last);
  return text.bytes();
}

TEST(NetworkNorms, AreOneStepWithWhatFollows) {
  const NormCase cases[] = {
      {"short rows", {3, 5, 19}, 0, 2, "", false, true},
      {"rows of several strips", {2, 7, 700}, 0, 2, "", true, true},
      {"long rows", {2, 40000}, 0, 1, "Sigmoid", false, true},
      {"rows of rows", {4, 6, 5, 33}, 0, 2, "Relu", true, true},
      {"one row", {1, 8, 9, 10}, 0, 1, "", false, true},
      {"channels", {2, 6, 9, 11}, 6, 0, "Relu", false, true},
      {"large channels", {1, 3, 130, 140}, 3, 0, "Sigmoid", true, true},
      {"groups", {2, 6, 9, 11}, 2, 0, "", false, true},
      {"large groups", {2, 8, 50, 60}, 2, 0, "Sigmoid", true, true},
      {"rows of one element", {4, 1}, 0, 1, "", false, false},
  };
  NetworkRunner runner;
  std::mt19937_64 random(5);
  const auto numbers = [&](std::int64_t count, float from, float to) {
    std::uniform_real_distribution<float> drawn(from, to);
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& v : all) v = drawn(random);
    return all;
  };
  for (const NormCase& c : cases) {
    SCOPED_TRACE(c.name);
    const std::int64_t parameters =
        c.groups > 0 ? c.shape[1] : network::elements(Shape(c.shape.begin() + c.axis, c.shape.end()));
    const std::string bytes = model(c, numbers(parameters, -2, 2), numbers(parameters, -2, 2));
    const network::Graph graph = onnx::read(bytes);
    const std::vector<float> drawn = numbers(network::elements(c.shape), 3, 5);  // far from their mean
    const Array x{network::Type::f32, c.shape, {drawn.begin(), drawn.end()}};
    const Array expected = network::interpret(graph, {x}).back();
    for (const bool fuses : {true, false}) {
      NetworkRunner::Ways ways;
      ways.fuse_chains = fuses;
      const network::Schedule schedule = runner.schedule(graph, {c.shape}, ways);
      int joined = 0;
      for (const network::NetworkStep& step : schedule.steps()) {
        const auto* const rows = std::get_if<RowsCall>(&step.work);
        joined += rows != nullptr && rows->then != nullptr ? 1 : 0;
      }
      EXPECT_EQ(joined, fuses && c.is_one_step ? 1 : 0);
      if (joined == 1) {
        EXPECT_EQ(schedule.steps().size(), 1u);
      }
      // A mean of up to 40000 roundings apart by some units of 2^-24 of 4, over a deviation of 0.58.
      EXPECT_LT(worst_error(expected, NetworkRunner::run(schedule, {x}).back()), 1e-5);
    }
  }
}

// Rows that do not begin where their buffer does: behind a split, and in a concatenation's part.
TEST(NetworkNorms, ArePartsOfLargerTensors) {
  NetworkRunner runner;
  for (const std::string kind : {"rows", "channels", "joined"}) {
    SCOPED_TRACE(kind);
    const Shape shape = kind == "rows" ? Shape{6, 4, 19} : Shape{1, 6, 9, 11};
    onnx::ModelText text;
    text.opset = 21;
    text.add_input("x", shape);
    text.add_constant(
        onnx::tensor("scale", {kind == "rows" ? 19 : 3}, std::vector<float>(kind == "rows" ? 19 : 3, 1.5f)));
    text.add_constant(
        onnx::tensor("shift", {kind == "rows" ? 19 : 3}, std::vector<float>(kind == "rows" ? 19 : 3, 0.5f)));
    text.add({"Sigmoid", {"x"}, {"s"}, {}, ""});
    const std::int64_t axis = kind == "rows" ? 0 : 1;
    text.add({"Split", {"s"}, {"a", "b"}, {{"axis", axis}, {"num_outputs", std::int64_t{2}}}, ""});
    std::string part = "b";
    if (kind == "joined") {
      text.add({"Exp", {"b"}, {"e"}, {}, ""});
      text.add({"Concat", {"a", "e"}, {"both"}, {{"axis", axis}}, ""});
      text.add_output("both");
      part = "e";
    }
    if (kind == "rows")
      text.add({"LayerNormalization", {part, "scale", "shift"}, {"norm"}, {{"axis", std::int64_t{2}}}, ""});
    else
      text.add({"InstanceNormalization", {part, "scale", "shift"}, {"norm"}, {}, ""});
    text.add({"Relu", {"norm"}, {"y"}, {}, ""});
    text.add_output("y");
    const std::string bytes = text.bytes();
    const network::Graph graph = onnx::read(bytes);
    Array x{network::Type::f32, shape, {}};
    for (std::int64_t i = 0; i < network::elements(shape); ++i)
      x.data.push_back(static_cast<double>(i * 37 % 101 - 50) / 25 + static_cast<double>(i) / 400);
    const Array expected = network::interpret(graph, {x}).back();
    const network::Schedule schedule = runner.schedule(graph, {shape}, {});
    EXPECT_LT(worst_error(expected, NetworkRunner::run(schedule, {x}).back()), 1e-5);
  }
}

// A result that could lie where x does, but for a row of x that every row reads.
TEST(NetworkNorms, DoNotOverwriteWhatOtherRowsRead) {
  NetworkRunner runner;
  for (const std::string kind : {"Relu", "Softmax", "LayerNormalization"}) {
    SCOPED_TRACE(kind);
    const Shape shape{4, 60, 60};
    onnx::ModelText text;
    text.opset = 21;
    text.add_input("x", shape);
    text.add_constant(onnx::tensor("scale", {60}, std::vector<float>(60, 1.5f)));
    text.add_constant(onnx::tensor("begin", onnx::Sizes{0}));
    text.add_constant(onnx::tensor("end", onnx::Sizes{1}));
    text.add_constant(onnx::tensor("axis", onnx::Sizes{0}));
    text.add({"MatMul", {"x", "x"}, {"a"}, {}, ""});
    text.add({"Slice", {"a", "begin", "end", "axis"}, {"first"}, {}, ""});
    if (kind == "LayerNormalization")
      text.add({kind, {"a", "scale"}, {"n"}, {}, ""});
    else
      text.add({kind, {"a"}, {"n"}, {}, ""});
    text.add({"Mul", {"n", "first"}, {"m"}, {}, ""});
    text.add({"MatMul", {"m", "x"}, {"y"}, {}, ""});
    text.add_output("y");
    const std::string bytes = text.bytes();
    const network::Graph graph = onnx::read(bytes);
    Array x{network::Type::f32, shape, {}};
    for (std::int64_t i = 0; i < network::elements(shape); ++i)
      x.data.push_back(static_cast<double>(i * 37 % 101 - 50) / 100);
    const Array expected = network::interpret(graph, {x}).back();
    const network::Schedule schedule = runner.schedule(graph, {shape}, {});
    EXPECT_LT(worst_error(expected, NetworkRunner::run(schedule, {x}).back()), 1e-4);
  }
}

}  // namespace
}  // namespace faltung
