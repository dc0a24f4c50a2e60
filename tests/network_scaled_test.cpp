// 1x1 convolutions that scale their filters instead of the images that they read: as with scaled images.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/network_fixture.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::ScaledWork;
using network::Shape;

struct ScaledCase {
  std::int64_t images, channels, height, width, outputs;
  bool residual, is_workers_own, is_scaled;
  bool scales_first = false;  // of the product's inputs
};

// x times its scales, 1x1, and the residual or relu.
std::string model(const ScaledCase& c, const std::vector<float>& w, const std::vector<float>& b) {
  onnx::ModelText text;
  text.add_input("x", {c.images, c.channels, c.height, c.width});
  text.add_input("scales", {c.images, c.channels, 1, 1});
  text.add_constant(onnx::tensor("w", {c.outputs, c.channels, 1, 1}, w));
  text.add_constant(onnx::tensor("b", {c.outputs}, b));
  if (c.scales_first)
    text.add({"Mul", {"scales", "x"}, {"scaled"}, {}, ""});
  else
    text.add({"Mul", {"x", "scales"}, {"scaled"}, {}, ""});
  text.add({"Conv", {"scaled", "w", "b"}, {"sum"}, {}, ""});
  if (c.residual) {
    text.add_input("shortcut", {c.images, c.outputs, c.height, c.width});
    text.add({"Add", {"sum", "shortcut"}, {"y"}, {}, ""});
  } else {
    text.add({"Relu", {"sum"}, {"y"}, {}, ""});
  }
  text.add_output("y");
  return text.bytes();
}

TEST(NetworkScaled, GivesWhatScaledImagesGive) {
  // Two workers: images are one worker's where they divide evenly, or are many.
  const ScaledCase cases[] = {
      {1, 24, 20, 21, 16, false, false, true}, {2, 40, 16, 17, 24, true, true, true},
      {3, 17, 13, 14, 19, true, false, true},  {9, 33, 9, 10, 12, false, true, true, true},
      {4, 8, 12, 12, 1, false, true, true},    {2, 24, 5, 5, 40, true, true, false}};
  NetworkRunner runner;
  std::mt19937_64 random(7);
  // Small whole numbers, so that results are exact.
  const auto numbers = [&](std::int64_t count) {
    std::uniform_int_distribution<int> whole(-4, 4);
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& v : all) v = static_cast<float>(whole(random));
    return all;
  };
  const auto drawn = [&](const Shape& shape) {
    const std::vector<float> all = numbers(network::elements(shape));
    return Array{network::Type::f32, shape, {all.begin(), all.end()}};
  };
  for (const ScaledCase& c : cases) {
    SCOPED_TRACE(std::to_string(c.images) + " of " + std::to_string(c.channels) + " channels");
    const std::string bytes = model(c, numbers(c.outputs * c.channels), numbers(c.outputs));
    const network::Graph graph = onnx::read(bytes);
    std::vector<Array> inputs{drawn({c.images, c.channels, c.height, c.width}),
                              drawn({c.images, c.channels, 1, 1})};
    if (c.residual) inputs.push_back(drawn({c.images, c.outputs, c.height, c.width}));
    std::vector<Shape> shapes;
    for (const Array& input : inputs) shapes.push_back(input.shape);
    const Array expected = network::interpret(graph, inputs).back();
    for (const bool layouts : {true, false}) {
      for (const bool scales : {true, false}) {
        NetworkRunner::Ways ways;
        ways.choose_layouts = layouts, ways.scale_filters = scales;
        const network::Schedule schedule = runner.schedule(graph, shapes, ways);
        int scaled = 0;
        for (const network::NetworkStep& step : schedule.steps()) {
          const auto* const work = std::get_if<ScaledWork>(&step.work);
          if (work == nullptr) continue;
          ++scaled;
          EXPECT_EQ(work->is_workers_own, c.is_workers_own);
        }
        EXPECT_EQ(scaled, scales && c.is_scaled ? 1 : 0);
        const Array y = NetworkRunner::run(schedule, inputs).back();
        EXPECT_EQ(worst_error(expected, y), 0);
      }
    }
  }
}

}  // namespace
}  // namespace faltung
