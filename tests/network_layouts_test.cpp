// The choice of layouts is the exact minimum: every choice of small graphs is tried.
#include <gtest/gtest.h>

#include <random>

#include "src/network/layouts.hpp"
#include "tests/sampling.hpp"

namespace faltung::network {
namespace {

TEST(NetworkLayouts, MinimumOfAllChoices) {
  std::mt19937_64 random(sampling::seed());
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  int mixed = 0;
  for (int round = 0; round < 500; ++round) {
    LayoutChoice choice;
    const int count = static_cast<int>(1 + below(10));
    for (int i = 0; i < count; ++i) choice.add(below(100), below(100));
    for (int v = 0; v < 2 * count; ++v) {
      const auto any = [&] { return static_cast<int>(below(count + 1)) - 1; };  // kNchw among them
      std::vector<int> readers(static_cast<std::size_t>(1 + below(3)));
      for (int& reader : readers) reader = any();
      choice.add_value(any(), readers, below(60));
    }
    std::int64_t least = choice.cost(std::vector<bool>(static_cast<std::size_t>(count)));
    for (int bits = 1; bits < 1 << count; ++bits) {
      std::vector<bool> labels;
      for (int i = 0; i < count; ++i) labels.push_back((bits >> i & 1) != 0);
      least = std::min(least, choice.cost(labels));
    }
    const LayoutChoice::Solution solution = choice.solve();
    ASSERT_EQ(solution.cost, least) << "round " << round;
    ASSERT_EQ(choice.cost(solution.nhwc), least) << "round " << round;
    const auto nhwc = std::count(solution.nhwc.begin(), solution.nhwc.end(), true);
    mixed += nhwc > 0 && nhwc < count;
  }
  EXPECT_GT(mixed, 50);  // else the test asks nothing
}

}  // namespace
}  // namespace faltung::network
