// Convolutions by strips, with the one before and the averages behind them: as every image written whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/algorithms/cpu_rates.hpp"
#include "tests/network_fixture.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/random_network.hpp"

namespace faltung {
namespace {

using network::Array;
using network::Shape;
using network::StripsWork;

struct StripsCase {
  std::int64_t images, height, width, channels, window, stride, top, bottom;
  bool large;     // the image between the convolutions
  bool averages;  // of the result
};

// 1x1 to `channels`, relu, by channel, sigmoid; its result and its average.
std::string model(const StripsCase& c, std::int64_t in, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& v : all) v = normal(random);
    return all;
  };
  onnx::ModelText text;
  text.add_input("x", {c.images, c.height, c.width, in});
  text.add_constant(onnx::tensor("w1", {c.channels, in, 1, 1}, numbers(c.channels * in)));
  text.add_constant(onnx::tensor("b1", {c.channels}, numbers(c.channels)));
  text.add_constant(
      onnx::tensor("w2", {c.channels, 1, c.window, c.window}, numbers(c.channels * c.window * c.window)));
  text.add({"Transpose", {"x"}, {"image"}, {{"perm", Shape{0, 3, 1, 2}}}, ""});
  text.add({"Conv", {"image", "w1", "b1"}, {"wide"}, {}, ""});
  text.add({"Relu", {"wide"}, {"active"}, {}, ""});
  text.add({"Conv",
            {"active", "w2"},
            {"deep"},
            {{"group", c.channels},
             {"strides", Shape{c.stride, c.stride}},
             {"pads", Shape{c.top, 1, c.bottom, 0}}},
            ""});
  text.add({"Sigmoid", {"deep"}, {"bent"}, {}, ""});
  if (c.averages) {
    text.add({"GlobalAveragePool", {"bent"}, {"average"}, {}, ""});
    text.add_output("average");
  }
  text.add({"Transpose", {"bent"}, {"y"}, {{"perm", Shape{0, 2, 3, 1}}}, ""});
  text.add_output("y");
  return text.bytes();
}

// Of an image in nhwc, over its pixels.
Array average(const Array& y) {
  const std::int64_t n = y.shape[0], pixels = y.shape[1] * y.shape[2], c = y.shape[3];
  Array to{network::Type::f32, {n, c, 1, 1}, std::vector<double>(static_cast<std::size_t>(n * c))};
  for (std::int64_t i = 0; i < n * pixels * c; ++i)
    to.data[static_cast<std::size_t>(i / (pixels * c) * c + i % c)] +=
        y.data[static_cast<std::size_t>(i)] / static_cast<double>(pixels);
  return to;
}

TEST(NetworkStrips, GiveWhatWholeImagesGive) {
  // Rows of which a worker's part is more than twice its cache.
  const std::int64_t row = 64 * 40 * 4;
  const std::int64_t tall = 2 * 2 * cpu_caches().level2 / row + 3;
  const StripsCase cases[] = {{1, tall, 64, 40, 3, 1, 1, 1, true, true},
                              {1, tall, 64, 40, 3, 2, 0, 2, true, false},
                              {2, tall / 2 + 2, 64, 40, 5, 2, 2, 1, true, true},
                              {1, 9, 7, 35, 3, 1, 1, 1, false, true},
                              {3, 6, 5, 24, 5, 2, 2, 2, false, true},
                              {1, 9, 7, 35, 3, 1, 1, 1, false, false},
                              {2, 3, 3, 16, 3, 1, 0, 0, false, true}};
  constexpr std::int64_t kIn = 3;
  NetworkRunner runner;
  for (const StripsCase& c : cases) {
    SCOPED_TRACE(std::to_string(c.images) + " of " + std::to_string(c.height) + " rows, window " +
                 std::to_string(c.window) + ", stride " + std::to_string(c.stride));
    std::mt19937_64 random(5);
    const std::string bytes = model(c, kIn, random);
    const network::Graph graph = onnx::read(bytes);
    Array x{network::Type::f32, {c.images, c.height, c.width, kIn}, {}};
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < network::elements(x.shape); ++i) x.data.push_back(normal(random));
    std::vector<Array> results[2];
    std::size_t arena[2];
    for (const bool strips : {true, false}) {
      NetworkRunner::Ways ways;
      ways.use_strips = strips;
      const network::Schedule schedule = runner.schedule(graph, {x.shape}, ways);
      results[strips] = NetworkRunner::run(schedule, {x});
      arena[strips] = schedule.memory().bytes;
      int before = 0, averages = 0;
      for (const network::NetworkStep& step : schedule.steps()) {
        const auto* const work = std::get_if<StripsWork>(&step.work);
        if (work == nullptr) continue;
        before += work->kinds.front().first.has_value();
        averages += step.averages.has_value();
        EXPECT_EQ(std::ranges::count_if(work->kinds,
                                        [](const StripsWork::Kind& kind) { return kind.first.has_value(); }),
                  before == 0 ? 0 : static_cast<std::ptrdiff_t>(work->kinds.size()));
        if (c.large) {
          EXPECT_GT(work->strips.size(), work->runs.size() - 1);
          EXPECT_TRUE(std::ranges::any_of(work->kinds,
                                          [](const StripsWork::Kind& kind) { return kind.kept_bytes > 0; }));
        }
      }
      EXPECT_EQ(before, strips && c.large ? 1 : 0);
      EXPECT_EQ(averages, strips && c.averages ? 1 : 0);
    }
    const Array &whole = results[false].back(), &y = results[true].back();
    EXPECT_LE(worst_error(whole, y), 1e-6);
    if (c.averages) {
      EXPECT_LE(worst_error(average(y), results[true].front()), 1e-6);
    }
    if (c.large) {
      EXPECT_LT(arena[true], arena[false] * 2 / 3);  // the image between them is nowhere
    } else {
      EXPECT_LE(worst_error(network::interpret(graph, {x}).back(), y), 1e-6);
    }
  }
}

}  // namespace
}  // namespace faltung
