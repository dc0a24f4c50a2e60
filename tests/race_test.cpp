// Timing in turn on a machine that others slow down.
#include "tools/race.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace faltung::tools {
namespace {

// A contestant whose blocks take these milliseconds, one after the other.
Contestant taking(std::vector<double> ms, int* called) {
  return [ms = std::move(ms), called](double) {
    const double now = ms[static_cast<std::size_t>((*called)++)];
    return Block{now, now, now, 1};
  };
}

// Shows these rates, one after the other; the last stays.
Gauge gauge(std::vector<double> rates) {
  std::size_t next = 0;
  return {[rates = std::move(rates), next]() mutable { return rates[std::min(next++, rates.size() - 1)]; },
          100};
}

Pace with_rates(std::vector<double> rates, double patience_ms) {
  return Pace({gauge(std::move(rates))}, patience_ms);
}

RacePolicy blocks(int count) {
  RacePolicy policy;
  policy.blocks = count, policy.least_ms = 1;
  return policy;
}

TEST(Race, ABlockThatWasSlowedIsRunAgain) {
  int called = 0;
  // The first block ends with two threads on one core, in three tries; the next look finds them apart.
  Pace pace = with_rates({50, 50, 50, 99}, 1e6);
  const Standing s = race({taking({9, 5, 6, 7}, &called)}, blocks(3), &pace).front();
  EXPECT_EQ(called, 4);
  EXPECT_EQ(s.ms, 6);
  EXPECT_EQ(s.ms_max, 7);
  EXPECT_EQ(s.runs, 3);
  EXPECT_EQ(s.disturbed, 0);
}

TEST(Race, WithoutPatienceASlowedBlockCountsAndIsTold) {
  int called = 0;
  Pace pace = with_rates({50, 50, 50, 99}, 0);
  const Standing s = race({taking({9, 5, 6}, &called)}, blocks(3), &pace).front();
  EXPECT_EQ(called, 3);
  EXPECT_EQ(s.ms_max, 9);
  EXPECT_EQ(s.disturbed, 1);
}

TEST(Race, PatienceEndsWhereTheMachineStaysSlow) {
  int called = 0;
  Pace pace = with_rates({50}, 50);
  const Standing s = race({taking({9, 9, 9, 9}, &called)}, blocks(3), &pace).front();
  EXPECT_EQ(called, 3);
  EXPECT_EQ(s.disturbed, 3);
}

TEST(Race, AnInterruptOrALowerClockIsNoDisturbance) {
  Pace pace = with_rates({50, 98}, 0);
  EXPECT_TRUE(pace.is_kept());
  Pace lower = with_rates({75}, 0);
  EXPECT_TRUE(lower.is_kept());
}

TEST(Race, SlowedMemoryIsADisturbance) {
  Pace pace({gauge({100}), gauge({50, 50, 50, 95})}, 0);
  EXPECT_FALSE(pace.is_kept());
  EXPECT_TRUE(pace.is_kept());
}

// Memory stays slow; what processors do after it is still waited for.
TEST(Race, PatienceWithOneThingIsNotTheOthers) {
  Pace pace({gauge({100, 50, 50, 50, 99}), gauge({50})}, 30);
  EXPECT_FALSE(pace.is_kept());
  EXPECT_FALSE(pace.regain());
  EXPECT_FALSE(pace.is_kept());
  EXPECT_TRUE(pace.regain());
}

TEST(Race, TheFastestThatWasSeenIsTheMeasure) {
  Pace pace = with_rates({100, 150, 100}, 0);
  EXPECT_TRUE(pace.is_kept());
  EXPECT_TRUE(pace.is_kept());
  EXPECT_FALSE(pace.is_kept());
}

}  // namespace
}  // namespace faltung::tools
