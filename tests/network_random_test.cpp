// Random networks (seeded): whatever passes are switched off, and however they lie, the result is that of the
// file's own graph in doubles.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/network_fixture.hpp"
#include "tests/random_network.hpp"
#include "tests/sampling.hpp"

namespace faltung {
namespace {

using network::Array;

TEST(NetworkRandom, EveryWayGivesTheSame) {
  FALTUNG_TRACE_SAMPLE();
  NetworkRunner runner;
  std::map<std::string, NetworkRunner::Ways> ways;
  ways["all"] = {};
  for (const auto passes : {network::unsized_passes(), network::sized_passes()}) {
    for (const network::Pass& pass : passes) {
      // Without these there is nothing that could be scheduled.
      if (std::string(pass.name) != "norms" && std::string(pass.name) != "fold")
        ways[std::string("no ") + pass.name] = {{pass.name}, true, true};
    }
  }
  ways["no layouts"] = {{}, false, true};
  ways["no chains"] = {{}, true, false};
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
    for (const auto& [name, way] : ways) {
      SCOPED_TRACE(name);
      const network::Schedule schedule = runner.schedule(graph, {made.input()}, way);
      const std::vector<Array> actual = NetworkRunner::run(schedule, {input});
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t o = 0; o < actual.size(); ++o) {
        const double error = worst_error(expected[o], actual[o]);
        worst = std::max(worst, error);
        // Some twenty roundings in a row, of sums of up to a hundred products; normalizations magnify.
        EXPECT_LE(error, 2e-4) << "output " << o;
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  std::cout << count << " networks in " << ways.size() << " ways, worst error " << worst << ":";
  for (const auto& [op, number] : kinds) std::cout << " " << number << " " << op;
  std::cout << "\n";
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
          runner.schedule(graph, {inputs[0].shape, inputs[1].shape}, {{}, layouts, fuse});
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

}  // namespace
}  // namespace faltung
