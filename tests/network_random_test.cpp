// Random networks (seeded): whatever passes are switched off, and however they lie, the result is that of the
// file's own graph in doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/network_fixture.hpp"
#include "tests/random_network.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Shape;

// How far each output comes by rounding every value to f32, when all else is computed in doubles. A
// normalization of numbers that are nearly the same magnifies even that.
std::vector<double> errors_of_rounding(const network::Graph& graph, const Array& input,
                                       const std::vector<Array>& exact) {
  const std::vector<Array> rounded = network::interpret(graph, {input}, [](network::ValueId, Array& value) {
    for (double& element : value.data) element = static_cast<float>(element);
  });
  std::vector<double> errors;
  for (std::size_t o = 0; o < exact.size(); ++o) errors.push_back(worst_error(exact[o], rounded[o]));
  return errors;
}

TEST(NetworkRandom, EveryWayGivesTheSame) {
  FALTUNG_TRACE_SAMPLE();
  NetworkRunner runner;
  std::map<std::string, NetworkRunner::Ways> ways;
  ways["all"] = {};
  for (const auto passes : {network::unsized_passes(), network::sized_passes()}) {
    for (const network::Pass& pass : passes) {
      // Without these there is nothing that could be scheduled.
      const std::string name = pass.name;
      if (name != "norms" && name != "fold" && name != "recurrences")
        ways["no " + name] = {{pass.name}, true, true};
    }
  }
  ways["no layouts"] = {{}, false, true};
  ways["no chains"] = {{}, true, false};
  ways["no slices"] = {{}, true, true, false};
  ways["no scaled filters"].scale_filters = false;
  ways["no slices, no layouts"] = {{}, false, true, false};
  const int count = sampling::full() ? 2000 : sampling::count(60);
  std::map<std::string, int> kinds;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = sampling::seed() * 1000003 + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("network " + std::to_string(seed));
    const RandomNetwork made(seed);
    for (const auto& [op, number] : made.kinds()) kinds[op] += number;
    const std::string bytes = made.bytes();
    const network::Graph graph = onnx::read(bytes);
    Array input{network::Type::f32, made.input(), {}};
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t e = 0; e < network::elements(input.shape); ++e) input.data.push_back(normal(random));
    const std::vector<Array> expected = network::interpret(graph, {input});
    const std::vector<double> magnified = errors_of_rounding(graph, input, expected);
    for (const auto& [name, way] : ways) {
      SCOPED_TRACE(name);
      const network::Schedule schedule = runner.schedule(graph, {made.input()}, way);
      const std::vector<Array> actual = NetworkRunner::run(schedule, {input});
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t o = 0; o < actual.size(); ++o) {
        const double error = worst_error(expected[o], actual[o]);
        worst = std::max(worst, error);
        // Some twenty roundings in a row, of sums of up to a hundred products; normalizations magnify both.
        EXPECT_LE(error, std::max(2e-4, 20 * magnified[o])) << "output " << o;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  std::cout << count << " networks in " << ways.size() << " ways, worst error " << worst << ":";
  for (const auto& [op, number] : kinds) std::cout << " " << number << " " << op;
  std::cout << "\n";
}

// Into the folder $FALTUNG_RANDOM_NETWORKS as files, for tests/random_networks.py, which holds them to ONNX
// Runtime; other ones than those above.
TEST(NetworkRandom, Files) {
  const char* const folder = std::getenv("FALTUNG_RANDOM_NETWORKS");
  if (folder == nullptr) GTEST_SKIP() << "FALTUNG_RANDOM_NETWORKS names no folder";
  const int count = sampling::full() ? 2000 : sampling::count(60);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = 1000000007 + sampling::seed() * 1000003 + static_cast<std::uint64_t>(i);
    const RandomNetwork made(seed);
    std::string name = std::to_string(seed) + "_" + std::to_string(made.input()[0]);
    for (std::size_t d = 1; d < made.input().size(); ++d) name += "x" + std::to_string(made.input()[d]);
    std::ofstream file(std::string(folder) + "/" + name + ".onnx", std::ios::binary);
    file << made.bytes();
    ASSERT_TRUE(file.flush()) << folder;
  }
}

// A dense block: every convolution reads what is there of the last concatenation and writes its own part.
// What comes before it is an image that is written there, too, or a pool of a convolution, which writes no
// slices.
enum class Before { image, pool };
void expect_few_copies(Before before, int expected_copies) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count, float spread) {
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& v : all) v = normal(random) * spread;
    return all;
  };
  onnx::ModelText text;
  const Shape shape = before == Before::pool ? Shape{2, 16, 18, 16} : Shape{2, 16, 9, 8};
  text.add_input("in", shape);
  if (before == Before::image) {
    text.add({"Relu", {"in"}, {"x0"}, {}, ""});
  } else {
    const Shape two{2, 2};
    text.add_constant(onnx::tensor("w0", {16, 16, 1, 1}, numbers(256, 0.2f)));
    text.add({"Conv", {"in", "w0"}, {"large"}, {}, ""});
    text.add({"MaxPool", {"large"}, {"x0"}, {{"kernel_shape", two}, {"strides", two}}, ""});
  }
  std::vector<std::string> parts{"x0"};
  for (int i = 1; i <= 3; ++i) {
    const std::string n = std::to_string(i), from = i == 1 ? "x0" : "all" + std::to_string(i - 1);
    const std::int64_t c = 16 + 8 * (i - 1);
    text.add_constant(onnx::tensor("w" + n, {8, c, 1, 1}, numbers(8 * c, 0.2f)));
    text.add({"Conv", {from, "w" + n}, {"y" + n}, {}, ""});
    text.add({"Relu", {"y" + n}, {"x" + n}, {}, ""});
    parts.push_back("x" + n);
    text.add({"Concat", parts, {"all" + n}, {{"axis", std::int64_t{1}}}, ""});
  }
  text.add_constant(onnx::tensor("w", {16, 40, 1, 1}, numbers(16 * 40, 0.2f)));
  text.add({"Conv", {"all3", "w"}, {"back"}, {}, ""});
  text.add({"Sigmoid", {"back"}, {"active"}, {}, ""});
  text.add({"Add", {"active", "x0"}, {"out"}, {}, ""});
  text.add_output("out");
  const std::string bytes = text.bytes();
  const network::Graph graph = onnx::read(bytes);
  const std::vector<float> values = numbers(network::elements(shape), 1);
  const Array input{network::Type::f32, shape, {values.begin(), values.end()}};
  const std::vector<Array> expected = network::interpret(graph, {input});
  NetworkRunner runner;
  for (const bool slices : {true, false}) {
    const network::Schedule schedule = runner.schedule(graph, {input.shape}, {{}, true, true, slices});
    const std::vector<Array> actual = NetworkRunner::run(schedule, {input});
    EXPECT_LE(worst_error(expected[0], actual[0]), 1e-5);
    int copies = 0, sliced = 0, after = 0;
    for (const network::NetworkStep& step : schedule.steps()) {
      copies += step.name.starts_with("Concat");
      const auto* const work = std::get_if<network::ConvolutionWork>(&step.work);
      if (work == nullptr) continue;
      sliced += has_pitch(work->plan->problem());
      after += work->plan->problem().epilogue.residual_order == ResidualOrder::after_activation;
    }
    EXPECT_EQ(copies, slices ? expected_copies : 9);
    EXPECT_EQ(sliced, slices ? 3 : 0);  // the last one reads a whole concatenation
    EXPECT_EQ(after, 1);
  }
}

TEST(NetworkRandom, ADenseBlockCopiesNothing) { expect_few_copies(Before::image, 0); }
TEST(NetworkRandom, ADenseBlockCopiesWhatCannotBeWrittenThereOnce) { expect_few_copies(Before::pool, 1); }

// Weights and biases far below the others, of which training leaves many, are zero for a kernel; where there
// are no others they stay.
TEST(NetworkRandom, TinyWeightsAndBiasesAreZero) {
  for (const float tiny : {1e-39f, 1e-37f, 1e-31f}) {
    for (const float largest : {1.0f, 1e-30f}) {
      onnx::ModelText text;
      text.add_input("x", {1, 2, 3, 3});
      text.add_constant(onnx::tensor("w", {2, 2, 1, 1}, {largest, tiny, 0, 0}));
      text.add_constant(onnx::tensor("b", {2}, {largest, tiny}));
      text.add({"Conv", {"x", "w", "b"}, {"y"}, {}, ""});
      text.add_output("y");
      const std::string bytes = text.bytes();
      const Array input{
          network::Type::f32, {1, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
      NetworkRunner runner;
      const network::Schedule schedule = runner.schedule(onnx::read(bytes), {input.shape}, {});
      const std::vector<Array> y = NetworkRunner::run(schedule, {input});
      const float kept = largest == 1 ? 0 : tiny;
      for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(y[0].data[i], static_cast<double>(largest + kept));
        EXPECT_EQ(y[0].data[9 + i], static_cast<double>(kept));
      }
    }
  }
}

// Two images that are computed to be joined are written where they belong, the bias of a transposed
// convolution among them; one that something else reads is copied.
TEST(NetworkRandom, WhatIsOnlyJoinedIsWrittenThere) {
  const auto numbers = [](std::size_t count) {
    std::vector<float> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i % 7) * 0.25f - 0.5f);
    return all;
  };
  onnx::ModelText text;
  text.add_input("x", {2, 3, 5, 4});
  text.add_input("other", {2, 5, 10, 8});
  text.add_constant(onnx::tensor("w", {3, 4, 2, 2}, numbers(48)));
  text.add_constant(onnx::tensor("b", {4}, numbers(4)));
  text.add({"ConvTranspose", {"x", "w", "b"}, {"up"}, {{"strides", network::Shape{2, 2}}}, ""});
  text.add({"Tanh", {"other"}, {"bent"}, {}, ""});
  text.add({"Abs", {"other"}, {"kept"}, {}, ""});
  text.add({"Concat", {"up", "bent", "kept"}, {"y"}, {{"axis", std::int64_t{1}}}, ""});
  text.add({"Softmax", {"kept"}, {"z"}, {{"axis", std::int64_t{-1}}}, ""});
  text.add_output("y");
  text.add_output("z");
  const std::string bytes = text.bytes();
  const network::Graph graph = onnx::read(bytes);
  std::vector<Array> inputs;
  for (const network::Shape& shape : {network::Shape{2, 3, 5, 4}, network::Shape{2, 5, 10, 8}}) {
    const std::vector<float> values = numbers(static_cast<std::size_t>(network::elements(shape)));
    inputs.push_back({network::Type::f32, shape, {values.begin(), values.end()}});
  }
  const std::vector<Array> expected = network::interpret(graph, inputs);
  NetworkRunner runner;
  std::map<bool, std::size_t> steps;
  for (const bool fuse : {true, false}) {
    for (const bool layouts : {true, false}) {
      const network::Schedule schedule =
          runner.schedule(graph, {inputs[0].shape, inputs[1].shape}, {{}, layouts, fuse, fuse});
      steps[fuse] = schedule.steps().size();
      const std::vector<Array> actual = NetworkRunner::run(schedule, inputs);
      for (std::size_t o = 0; o < expected.size(); ++o) EXPECT_LE(worst_error(expected[o], actual[o]), 1e-5);
    }
  }
  // The transposed convolution, its bias, two maps and Softmax; a copy of each part, but of two where it
  // joins.
  EXPECT_EQ(steps[true], 6u);
  EXPECT_EQ(steps[false], 8u);
}

// Transposed convolutions whose windows lie side by side are products and copies where their channels are
// few, with what is behind them in the product; others stay what they are.
TEST(NetworkRandom, SquaresOfFewChannelsAreProducts) {
  struct Case {
    std::int64_t channels, block, stride, groups, pad;
    bool is_product;
  };
  for (const Case& c : {Case{1, 2, 2, 1, 0, true}, Case{3, 3, 3, 1, 0, true}, Case{24, 2, 2, 1, 0, true},
                        Case{32, 2, 2, 1, 0, false}, Case{4, 2, 2, 2, 0, false}, Case{4, 3, 2, 1, 0, false},
                        Case{4, 3, 3, 1, 1, false}}) {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    const auto numbers = [&](std::int64_t count) {
      std::vector<float> all(static_cast<std::size_t>(count));
      for (float& v : all) v = normal(random) * 0.3f;
      return all;
    };
    onnx::ModelText text;
    const Shape shape{2, 6, 5, 4};
    text.add_input("x", shape);
    const std::int64_t k = c.channels, b = c.block;
    text.add_constant(onnx::tensor("w1", {6, k / c.groups, b, b}, numbers(6 * k / c.groups * b * b)));
    text.add_constant(onnx::tensor("b1", {k}, numbers(k)));
    text.add_constant(onnx::tensor("w2", {k, 2, 2, 2}, numbers(k * 8)));
    text.add({"ConvTranspose",
              {"x", "w1", "b1"},
              {"up"},
              {{"strides", Shape{c.stride, c.stride}},
               {"group", c.groups},
               {"pads", Shape{c.pad, c.pad, c.pad, c.pad}}},
              ""});
    text.add({"Relu", {"up"}, {"active"}, {}, ""});
    text.add({"ConvTranspose", {"active", "w2"}, {"y"}, {{"strides", Shape{2, 2}}}, ""});  // read twice
    text.add({"Sigmoid", {"y"}, {"z"}, {}, ""});
    text.add_output("y");
    text.add_output("z");
    const std::string bytes = text.bytes();
    const network::Graph graph = onnx::read(bytes);
    const std::vector<float> values = numbers(network::elements(shape));
    const Array input{network::Type::f32, shape, {values.begin(), values.end()}};
    const std::vector<Array> expected = network::interpret(graph, {input});
    NetworkRunner runner;
    for (const bool on : {true, false}) {
      for (const bool layouts : {true, false}) {
        std::set<std::string> off;
        if (!on) off.insert("upsampling");
        const network::Schedule schedule = runner.schedule(graph, {shape}, {off, layouts});
        const std::vector<Array> actual = NetworkRunner::run(schedule, {input});
        for (std::size_t o = 0; o < expected.size(); ++o)
          EXPECT_LE(worst_error(expected[o], actual[o]), 1e-5);
        int copies = 0, transposed = 0, activated = 0;
        for (const network::NetworkStep& step : schedule.steps()) {
          copies += step.name.starts_with("DepthToSpace");
          const auto* const work = std::get_if<network::ConvolutionWork>(&step.work);
          if (work == nullptr) continue;
          transposed += work->plan->problem().direction == Direction::backward_data;
          activated += work->plan->problem().epilogue.activation != Activation::none;
        }
        EXPECT_EQ(copies, on ? 1 + c.is_product : 0);
        EXPECT_EQ(transposed, on ? 1 - c.is_product : 2);
        EXPECT_EQ(activated, on && c.is_product ? 1 : 0);
      }
    }
  }
}

// Images in nhwc that are made larger pixel by pixel: one copy, which writes into the concatenation.
TEST(NetworkRandom, RepeatedPixelsAreOneCopy) {
  struct Case {
    std::int64_t channels, down, across;
    bool copied;
  };
  for (const Case& c :
       {Case{24, 2, 3, true}, Case{8, 1, 2, true}, Case{8, 4, 1, true}, Case{5, 2, 2, false}}) {
    onnx::ModelText text;
    const Shape small{2, 5, 4, c.channels}, beside{2, 5 * c.down, 4 * c.across, 8};
    const Shape to_nchw{0, 3, 1, 2}, to_nhwc{0, 2, 3, 1};
    text.add_input("x", small);
    text.add_input("z", beside);
    text.add_constant(
        onnx::tensor("scales", {4}, {1, 1, static_cast<float>(c.down), static_cast<float>(c.across)}));
    text.add({"Transpose", {"x"}, {"image"}, {{"perm", to_nchw}}, ""});
    text.add({"Transpose", {"z"}, {"other"}, {{"perm", to_nchw}}, ""});
    text.add({"Resize",
              {"image", "", "scales"},
              {"large"},
              {{"mode", std::string("nearest")},
               {"nearest_mode", std::string("floor")},
               {"coordinate_transformation_mode", std::string("asymmetric")}},
              ""});
    text.add({"Concat", {"large", "other"}, {"both"}, {{"axis", std::int64_t{1}}}, ""});
    text.add({"Transpose", {"both"}, {"y"}, {{"perm", to_nhwc}}, ""});
    text.add_output("y");
    const std::string bytes = text.bytes();
    const network::Graph graph = onnx::read(bytes);
    std::vector<Array> inputs;
    for (const Shape& shape : {small, beside}) {
      inputs.push_back({network::Type::f32, shape, {}});
      for (std::int64_t i = 0; i < network::elements(shape); ++i)
        inputs.back().data.push_back(static_cast<double>(inputs.size()) * 10000 + static_cast<double>(i));
    }
    const std::vector<Array> expected = network::interpret(graph, inputs);
    NetworkRunner runner;
    for (const bool layouts : {true, false}) {
      const network::Schedule schedule = runner.schedule(graph, {small, beside}, {{}, layouts, true, true});
      const std::vector<Array> actual = NetworkRunner::run(schedule, inputs);
      EXPECT_EQ(actual[0].data, expected[0].data);
      int copies = 0, picks = 0;
      for (const network::NetworkStep& step : schedule.steps()) {
        if (!step.name.starts_with("Resize")) continue;
        copies += std::holds_alternative<MapCall>(step.work) ? 1 : 0;
        picks += std::holds_alternative<PickCall>(step.work) ? 1 : 0;
      }
      EXPECT_EQ(copies, layouts && c.copied ? 1 : 0) << c.channels << " channels";
      EXPECT_EQ(picks, 1 - copies) << c.channels << " channels";
      const auto joins = std::ranges::count_if(
          schedule.steps(), [](const network::NetworkStep& step) { return step.name.starts_with("Concat"); });
      if (layouts) {
        EXPECT_EQ(joins, c.copied ? 1 : 2) << c.channels << " channels";
      }
    }
  }
}

}  // namespace
}  // namespace faltung
