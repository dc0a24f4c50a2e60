// Memory plans: boxes that live at the same time never meet, and the arena is close to the least possible.
#include <gtest/gtest.h>

#include <random>

#include "src/network/memory_plan.hpp"
#include "src/network/network.hpp"
#include "tests/sampling.hpp"

namespace faltung::network {
namespace {

TEST(NetworkMemory, BoxesOfTheSameTimeLieApart) {
  std::mt19937_64 random(sampling::seed());
  double total = 0, bound = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Box> boxes;
    const int steps = static_cast<int>(2 + random() % 40);
    for (int i = 0; i < steps; ++i) {
      const int last = std::min(steps - 1, i + 1 + static_cast<int>(random() % 4 == 0 ? random() % 10 : 0));
      boxes.push_back({64 * (1 + random() % 100) - random() % 64, i, last});
      if (random() % 3 == 0) boxes.push_back({1 + random() % 5000, i, i});  // a workspace
    }
    const MemoryPlan plan = plan_memory(boxes);
    std::size_t end = 0;
    for (std::size_t a = 0; a < boxes.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % 64, 0u);
      end = std::max(end, plan.offsets[a] + boxes[a].bytes);
      for (std::size_t b = 0; b < a; ++b) {
        if (boxes[a].first > boxes[b].last || boxes[b].first > boxes[a].last) continue;
        const bool apart = plan.offsets[a] + boxes[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + boxes[b].bytes <= plan.offsets[a];
        ASSERT_TRUE(apart) << "round " << round << ", boxes " << a << " and " << b;
      }
    }
    EXPECT_LE(end, plan.bytes);
    EXPECT_GE(plan.bytes, plan.bound);
    total += static_cast<double>(plan.bytes), bound += static_cast<double>(plan.bound);
  }
  EXPECT_LE(total / bound, 1.005);
}

TEST(NetworkMemory, ALadderTakesTwoRungs) {
  const MemoryPlan plan = plan_memory({{640, 0, 1}, {640, 1, 2}, {640, 2, 3}, {640, 3, 4}});
  EXPECT_EQ(plan.bytes, 1280u);
  EXPECT_EQ(plan.bound, 1280u);
}

TEST(NetworkMemory, NothingTakesNothing) { EXPECT_EQ(plan_memory({}).bytes, 0u); }

// Plans of all sizes share them: there are as many as threads ran at the same time, and what was large once
// serves the small.
TEST(NetworkArenas, AreTakenInTurn) {
  Arenas arenas;
  Arenas::Arena small = arenas.take(1000), large = arenas.take(5000);
  const std::byte *const first = small.memory.get(), *const second = large.memory.get();
  EXPECT_NE(first, second);
  EXPECT_GE(large.bytes, 5000u);
  arenas.give_back(std::move(large));
  arenas.give_back(std::move(small));
  small = arenas.take(900), large = arenas.take(1001);
  EXPECT_EQ(small.memory.get(), first);
  EXPECT_EQ(large.memory.get(), second);
  arenas.give_back(std::move(small));
  arenas.give_back(std::move(large));
  Arenas::Arena larger = arenas.take(9000);  // in the place of the largest
  EXPECT_GE(larger.bytes, 9000u);
  EXPECT_EQ(arenas.take(1).memory.get(), first);
}

}  // namespace
}  // namespace faltung::network
