// Scheduled networks, held to ONNX's node tests (Debian: libonnx-testdata) and to results that are written
// down.
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
