// Networks of one node, held to results that are written down: by the reference and as they are scheduled.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/network/interpreter.hpp"
#include "tests/network_fixture.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Graph;
using network::Shape;

// One node of an input and constants: what the reference and the schedule make of x.
struct OfOneNode {
  std::vector<double> reference, schedule;
};
OfOneNode of_one_node(onnx::ModelText text, onnx::NodeText node, const Shape& shape,
                      const std::vector<double>& x) {
  node.inputs.insert(node.inputs.begin(), "x"), node.outputs = {"y"};
  text.add_input("x", shape);
  text.add(node);
  text.add_output("y");
  const std::string bytes = text.bytes();
  const Graph graph = onnx::read(bytes);
  const Array input{network::Type::f32, shape, x};
  NetworkRunner runner;
  return {network::interpret(graph, {input}).at(0).data,
          NetworkRunner::run(runner.schedule(graph, {shape}, {}), {input}).at(0).data};
}

// A part of the first axis alone is where it is, but not with a later axis turned around.
TEST(NetworkResults, ASliceTurnsAnAxisAround) {
  onnx::ModelText text;
  for (const auto& [name, values] : std::map<std::string, Shape>{
           {"begin", {1, -1}}, {"end", {2, -9}}, {"axes", {0, 1}}, {"steps", {1, -1}}})
    text.add_constant(onnx::tensor(name, values));
  const auto y =
      of_one_node(text, {"Slice", {"begin", "end", "axes", "steps"}, {}, {}, ""}, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(y.reference, (std::vector<double>{6, 5, 4}));
  EXPECT_EQ(y.schedule, y.reference);
}

// What ceil_mode's last window reaches beyond the padding does not count, whether pads are given or not.
TEST(NetworkResults, AnAverageCountsPaddingAlone) {
  using Given = std::vector<std::pair<std::string, onnx::NodeText::Value>>;
  for (const Given& given :
       {Given{}, Given{{"pads", Shape{0, 0, 0, 0}}}, Given{{"auto_pad", std::string("VALID")}}}) {
    Given attributes{{"kernel_shape", Shape{1, 3}},
                     {"strides", Shape{1, 3}},
                     {"ceil_mode", std::int64_t{1}},
                     {"count_include_pad", std::int64_t{1}}};
    attributes.insert(attributes.end(), given.begin(), given.end());
    const auto y = of_one_node({}, {"AveragePool", {}, {}, attributes, ""}, {1, 1, 1, 4}, {1, 2, 3, 4});
    EXPECT_EQ(y.reference, (std::vector<double>{2, 4}));
    EXPECT_EQ(y.schedule, y.reference);
  }
}

// As with PyTorch's ceil_mode: a window that is larger than the image is one where it begins inside.
TEST(NetworkResults, AWindowMayBeLargerThanTheImage) {
  for (const std::string op : {"MaxPool", "AveragePool"}) {
    for (const std::int64_t counts : {0, 1}) {
      onnx::NodeText node{op, {}, {}, {{"kernel_shape", Shape{3, 3}}, {"strides", Shape{2, 2}}}, ""};
      node.attributes.emplace_back("ceil_mode", std::int64_t{1});
      if (op == "AveragePool") node.attributes.emplace_back("count_include_pad", counts);
      const auto y = of_one_node({}, node, {1, 1, 2, 2}, {1, 2, 3, 4});
      EXPECT_EQ(y.reference, (std::vector<double>{op == "MaxPool" ? 4 : 2.5}));
      EXPECT_EQ(y.schedule, y.reference);
    }
  }
}

// The network with x of some numbers, beside the reference.
void expect_reference(const onnx::ModelText& text, const Shape& shape) {
  const std::string bytes = text.bytes();
  const Graph graph = onnx::read(bytes);
  Array x{network::Type::f32, shape, {}};
  for (std::int64_t i = 0; i < network::elements(shape); ++i)
    x.data.push_back(static_cast<double>(i * 37 % 101) / 50 - 1);
  const std::vector<Array> expected = network::interpret(graph, {x});
  NetworkRunner runner;
  const std::vector<Array> y = NetworkRunner::run(runner.schedule(graph, {shape}, {}), {x});
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i].shape, expected[i].shape);
    EXPECT_LE(worst_error(expected[i], y[i]), 1e-5);
  }
}

// Nothing is written where there is nothing, and nothing is divided by it.
TEST(NetworkResults, SomeTensorsAreEmpty) {
  onnx::ModelText text;
  text.opset = 18;
  text.add_input("x", {-1, 4, 3, 3});
  for (const auto& [name, values] :
       std::map<std::string, Shape>{{"parts", {3, 1, 0}}, {"begin", {9}}, {"end", {10}}, {"over", {0, 2}}})
    text.add_constant(onnx::tensor(name, values));
  text.add_constant(onnx::tensor("two", {2}, std::vector<float>{2, 2}));
  text.add_constant(onnx::tensor("w", {2, 4, 1, 1}, std::vector<float>(8, 1)));
  text.add({"Split", {"x", "parts"}, {"most", "rest", "none"}, {{"axis", std::int64_t{1}}}, ""});
  text.add({"Slice", {"x", "begin", "end"}, {"nobody"}, {}, ""});
  text.add({"GroupNormalization", {"nobody", "two", "two"}, {"n"}, {{"num_groups", std::int64_t{2}}}, ""});
  text.add({"Conv", {"n", "w"}, {"c"}, {}, ""});
  text.add({"Relu", {"c"}, {"r"}, {}, ""});
  text.add({"ReduceSum", {"nobody", "over"}, {"sum"}, {}, ""});
  for (const char* output : {"most", "rest", "none", "nobody", "r", "sum"}) text.add_output(output);
  expect_reference(text, {2, 4, 3, 3});
}

// A number of more dimensions than what stands beside it gives the result its own: that is no GELU of x.
TEST(NetworkResults, NumbersMayHaveMoreDimensions) {
  for (const Shape& rank : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
    for (const std::int64_t open : {2, -1}) {
      onnx::ModelText text;
      text.add_input("x", {open, 4});
      for (const auto& [name, value] :
           std::map<std::string, float>{{"root", 1.41421356f}, {"one", 1}, {"half", 0.5f}})
        text.add_constant(onnx::tensor(name, rank, std::vector<float>{value}));
      text.add({"Div", {"x", "root"}, {"d"}, {}, ""});
      text.add({"Erf", {"d"}, {"e"}, {}, ""});
      text.add({"Add", {"e", "one"}, {"a"}, {}, ""});
      text.add({"Mul", {"x", "a"}, {"m"}, {}, ""});
      text.add({"Mul", {"m", "half"}, {"y"}, {}, ""});
      text.add_output("y");
      expect_reference(text, {2, 4});
    }
  }
}

// A batch norm is of the second dimension, a product's outputs are the last one: also where sizes that are
// open hide how many dimensions there are.
TEST(NetworkResults, ABatchNormOfRowsIsNotOfAProductsOutputs) {
  for (const std::int64_t rows : {3, 8}) {
    onnx::ModelText text;
    text.add_input("x", {-1, rows, 4});
    text.add_constant(onnx::tensor("w", {4, 8}, std::vector<float>(32, 0.5f)));
    for (const char* name : {"scale", "shift", "mean", "variance"}) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < rows; ++i) values.push_back(1 + static_cast<float>(i));
      text.add_constant(onnx::tensor(name, {rows}, values));
    }
    text.add({"Relu", {"x"}, {"a"}, {}, ""});
    text.add({"MatMul", {"a", "w"}, {"p"}, {}, ""});
    text.add({"BatchNormalization", {"p", "scale", "shift", "mean", "variance"}, {"y"}, {}, ""});
    text.add_output("y");
    expect_reference(text, {2, rows, 4});
  }
}

// The scale is 1.2 in floats, a bit more than that, and twelve pixels of the result are ten.
TEST(NetworkResults, NearestPixelsAreFoundInFloats) {
  onnx::ModelText text;
  text.add_constant(onnx::tensor("scales", {3}, {1, 1, 1.2f}));
  std::vector<double> x(15);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const auto y = of_one_node(text,
                             {"Resize",
                              {"", "scales"},
                              {},
                              {{"coordinate_transformation_mode", std::string("asymmetric")},
                               {"nearest_mode", std::string("floor")}},
                              ""},
                             {1, 1, 15}, x);
  EXPECT_EQ(y.reference, (std::vector<double>{0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 11, 12, 13, 14}));
  EXPECT_EQ(y.schedule, y.reference);
}

// Opset 10 has no nearest_mode: an image that becomes smaller has the pixels after.
TEST(NetworkResults, NearestPixelsOfOpsetTen) {
  onnx::ModelText text;
  text.opset = 10;
  text.add_constant(onnx::tensor("scales", {4}, {1, 1, 0.6f, 0.6f}));
  const auto y =
      of_one_node(text, {"Resize", {"scales"}, {}, {}, ""}, {1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(y.reference, (std::vector<double>{1, 3}));
  EXPECT_EQ(y.schedule, y.reference);
}

TEST(NetworkResults, ExponentsMayBeWholeNumbers) {
  for (const Shape& exponents : {Shape{2}, Shape{3}, Shape{-1}, Shape{0, 1, 2, 3}}) {
    onnx::ModelText text;
    text.add_constant(onnx::tensor("e", exponents));
    const auto y = of_one_node(text, {"Pow", {"e"}, {}, {}, ""}, {2, 4}, {1, 2, 4, -2, 0.5, -1, 8, 2});
    EXPECT_EQ(y.schedule.size(), y.reference.size());
    for (std::size_t i = 0; i < y.schedule.size(); ++i)
      EXPECT_NEAR(y.schedule[i], y.reference[i], 1e-5 * std::abs(y.reference[i]));
  }
}

// Every elementwise function where it has a limit or none; x64 and others have vectors of other lengths, so
// that each value is seen at each place of one.
TEST(NetworkResults, FunctionsOfWhatIsLargeOrNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{std::nan(""), kInfinity, -kInfinity, 0x1p127,   -0x1p127,  0x1p66,
                                   -0x1p66,      0x1p40,    0x1p24,     -0x1p20,   0x1.31p15, 0x1p15,
                                   100,          -100,      0x1p-130,   -0x1p-130, 0,         -0.0,
                                   0.5,          -0.5,      1,          -1};
  std::vector<double> x;
  for (std::size_t turn = 0; turn < 17; ++turn) {
    x.insert(x.end(), values.begin(), values.end());
    x.push_back(1);  // one more: the next turn lies elsewhere
  }
  const Shape shape{static_cast<std::int64_t>(x.size())};
  for (const char* op : {"Log",  "Sin",  "Cos",      "Sqrt",     "Exp",  "Reciprocal", "Sigmoid",
                         "Tanh", "Erf",  "Softplus", "Softsign", "Mish", "HardSwish",  "Elu",
                         "Selu", "Celu", "Relu",     "Floor",    "Ceil", "Round",      "Sign"}) {
    onnx::ModelText text;
    text.opset = 20;
    const auto y = of_one_node(text, {op, {}, {}, {}, ""}, shape, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = static_cast<float>(y.reference[i]), actual = y.schedule[i];
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << op << "(" << x[i] << ") is " << actual;
      } else if (!std::isfinite(expected)) {
        EXPECT_EQ(actual, expected) << op << "(" << x[i] << ")";
      } else {
        EXPECT_NEAR(actual, expected, 1e-6 * std::max(1.0, std::abs(expected))) << op << "(" << x[i] << ")";
      }
    }
  }
}

// Whole numbers that floats have not, on their way through types of theirs.
TEST(NetworkResults, CastsAmongWholeNumbersAreExact) {
  const Shape large{(1 << 24) + 1, 123456789, -123456789, 2147483647, -2147483648, -1, 0};
  onnx::ModelText text;
  text.add_input("x", {3});
  text.add_constant(onnx::tensor("large", large));
  text.add({"ArgMax", {"x"}, {"place"}, {}, ""});  // known when the network runs only
  text.add({"Concat", {"place", "large"}, {"all"}, {{"axis", std::int64_t{0}}}, ""});
  text.add({"Cast", {"all"}, {"narrow"}, {{"to", std::int64_t{6}}}, ""});
  text.add({"Cast", {"narrow"}, {"wide"}, {{"to", std::int64_t{7}}}, ""});
  text.add({"Cast", {"wide"}, {"same"}, {{"to", std::int64_t{7}}}, ""});
  for (const char* output : {"narrow", "wide", "same"}) text.add_output(output);
  const std::string bytes = text.bytes();
  const Array x{network::Type::f32, {3}, {1, 2, 3}};
  std::vector<double> expected{2};
  expected.insert(expected.end(), large.begin(), large.end());
  NetworkRunner runner;
  for (const bool fuse : {true, false}) {
    const std::vector<Array> y =
        NetworkRunner::run(runner.schedule(onnx::read(bytes), {{3}}, {{}, true, fuse}), {x});
    for (const Array& one : y) EXPECT_EQ(one.data, expected);
  }
}

// What the file casts to 16 bits is of 16 bits, though f32 is wanted of it at once.
TEST(NetworkResults, CastsToSixteenBitsRound) {
  for (const std::int64_t type : {10, 16}) {
    onnx::ModelText text;
    text.add_input("x", {5});
    text.add({"Cast", {"x"}, {"half"}, {{"to", type}}, ""});
    text.add({"Cast", {"half"}, {"back"}, {{"to", std::int64_t{1}}}, ""});
    text.add({"Sub", {"x", "back"}, {"y"}, {}, ""});
    text.add_output("y");
    const std::string bytes = text.bytes();
    const Graph graph = onnx::read(bytes);
    const Array x{network::Type::f32, {5}, {1 + 0x1p-9, 0x1p-3 + 0x1p-15, 65519, 3, -0.1f}};
    const std::vector<double> expected = network::interpret(graph, {x}).at(0).data;
    EXPECT_NE(expected[1], 0);
    NetworkRunner runner;
    EXPECT_EQ(NetworkRunner::run(runner.schedule(graph, {{5}}, {}), {x}).at(0).data, expected);
  }
}

}  // namespace
}  // namespace faltung
