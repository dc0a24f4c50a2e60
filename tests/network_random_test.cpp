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

}  // namespace
}  // namespace faltung
