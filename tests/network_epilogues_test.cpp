// Activations with numbers of their own behind convolutions and products: one step with what they follow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/network_fixture.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Shape;

class NetworkEpilogues : public testing::Test {
 protected:
  std::vector<float> numbers(std::int64_t count, float from = -1, float to = 1) {
    std::uniform_real_distribution<float> drawn(from, to);
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& v : all) v = drawn(random_);
    return all;
  }
  // What follows x in the text, in so many steps, as good as the file's own graph, and with each epilogue's
  // activation.
  void expect_steps(const onnx::ModelText& text, const Shape& shape, std::size_t steps,
                    const std::vector<Activation>& activations) {
    const std::string bytes = text.bytes();  // which the graph reads from
    const network::Graph graph = onnx::read(bytes);
    const std::vector<float> drawn = numbers(network::elements(shape));
    const Array x{network::Type::f32, shape, {drawn.begin(), drawn.end()}};
    const Array expected = network::interpret(graph, {x}).back();
    for (const bool fuses : {true, false}) {
      NetworkRunner::Ways ways;
      if (!fuses) ways.off = {"epilogues"};
      const network::Schedule schedule = runner_.schedule(graph, {shape}, ways);
      EXPECT_LT(worst_error(expected, NetworkRunner::run(schedule, {x}).back()), 1e-5);
      if (!fuses) continue;
      EXPECT_EQ(schedule.steps().size(), steps);
      std::vector<Activation> found;
      for (const network::NetworkStep& step : schedule.steps()) {
        if (const auto* const work = std::get_if<network::ConvolutionWork>(&step.work))
          found.push_back(work->plan->problem().epilogue.activation);
      }
      EXPECT_EQ(found, activations);
    }
  }
  NetworkRunner runner_;

 private:
  std::mt19937_64 random_{7};
};

// A convolution of 9 channels, with a bias, and what is added behind the activation.
onnx::ModelText convolution(const std::vector<float>& weights, const std::vector<float>& bias) {
  onnx::ModelText text;
  text.opset = 17;
  text.add_input("x", {2, 9, 10, 11});
  text.add_constant(onnx::tensor("w", {9, 9, 3, 3}, weights));
  text.add_constant(onnx::tensor("b", {9}, bias));
  text.add({"Conv", {"x", "w", "b"}, {"c"}, {{"pads", onnx::Sizes(4, 1)}}, ""});
  return text;
}

TEST_F(NetworkEpilogues, SlopesOfChannels) {
  for (const Shape& of : {Shape{9, 1, 1}, Shape{1, 9, 1, 1}}) {
    onnx::ModelText text = convolution(numbers(9 * 9 * 9, -0.1f, 0.1f), numbers(9));
    text.add_constant(onnx::tensor("s", of, numbers(9)));
    text.add({"PRelu", {"c", "s"}, {"p"}, {}, ""});
    text.add({"Add", {"p", "x"}, {"y"}, {}, ""});
    text.add_output("y");
    expect_steps(text, {2, 9, 10, 11}, 1, {Activation::prelu});
  }
}

TEST_F(NetworkEpilogues, OneSlopeAndSlopesOfPixels) {
  onnx::ModelText one = convolution(numbers(9 * 9 * 9, -0.1f, 0.1f), numbers(9));
  one.add_constant(onnx::tensor("s", {1}, {0.3f}));
  one.add({"PRelu", {"c", "s"}, {"y"}, {}, ""});
  one.add_output("y");
  expect_steps(one, {2, 9, 10, 11}, 1, {Activation::leaky_relu});
  onnx::ModelText pixels = convolution(numbers(9 * 9 * 9, -0.1f, 0.1f), numbers(9));
  pixels.add_constant(onnx::tensor("s", {11}, numbers(11)));
  pixels.add({"PRelu", {"c", "s"}, {"y"}, {}, ""});
  pixels.add_output("y");
  expect_steps(pixels, {2, 9, 10, 11}, 2, {Activation::none});
}

TEST_F(NetworkEpilogues, Bounds) {
  struct Case {
    std::vector<float> bounds;  // one: the least alone
    Activation is;
    std::size_t steps = 1;
  };
  // Without a bound an infinite value stays so, which no finite one says.
  for (const Case& c : {Case{{-0.5f, 0.25f}, Activation::clip}, Case{{0, 6}, Activation::relu6},
                        Case{{0.1f}, Activation::none, 2}, Case{{0}, Activation::relu},
                        Case{{0.1f, HUGE_VALF}, Activation::none, 2}}) {
    onnx::ModelText text = convolution(numbers(9 * 9 * 9, -0.1f, 0.1f), numbers(9));
    std::vector<std::string> inputs{"c"};
    for (std::size_t i = 0; i < c.bounds.size(); ++i) {
      inputs.push_back(i == 0 ? "least" : "most");
      text.add_constant(onnx::tensor(inputs.back(), {}, {c.bounds[i]}));
    }
    text.add({"Clip", inputs, {"y"}, {}, ""});
    text.add_output("y");
    expect_steps(text, {2, 9, 10, 11}, c.steps, {c.is});
  }
}

// Its columns are its channels.
TEST_F(NetworkEpilogues, SlopesBehindAProduct) {
  onnx::ModelText text;
  text.opset = 17;
  text.add_input("x", {40, 12});
  text.add_constant(onnx::tensor("w", {12, 10}, numbers(120)));
  text.add_constant(onnx::tensor("b", {10}, numbers(10)));
  text.add_constant(onnx::tensor("s", {10}, numbers(10)));
  text.add({"Gemm", {"x", "w", "b"}, {"c"}, {}, ""});
  text.add({"PRelu", {"c", "s"}, {"y"}, {}, ""});
  text.add_output("y");
  expect_steps(text, {40, 12}, 1, {Activation::prelu});
}

// Each pixel becomes a square, whose pixels are the product's channels: they repeat the slopes.
TEST_F(NetworkEpilogues, SlopesBehindSquares) {
  onnx::ModelText text;
  text.opset = 17;
  text.add_input("x", {1, 12, 6, 7});
  text.add_constant(onnx::tensor("w", {12, 5, 2, 2}, numbers(240)));
  text.add_constant(onnx::tensor("b", {5}, numbers(5)));
  text.add_constant(onnx::tensor("s", {5, 1, 1}, numbers(5)));
  text.add({"ConvTranspose", {"x", "w", "b"}, {"c"}, {{"strides", onnx::Sizes(2, 2)}}, ""});
  text.add({"PRelu", {"c", "s"}, {"y"}, {}, ""});
  text.add_output("y");
  expect_steps(text, {1, 12, 6, 7}, 2, {Activation::prelu});
}

}  // namespace
}  // namespace faltung
