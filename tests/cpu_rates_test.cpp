// The CPU's rates: one measurement serves every process on a machine.
#include "src/algorithms/cpu_rates.hpp"

#include <gtest/gtest.h>

#include "kernels/cpu/brgemm_dot.hpp"
#include "src/finder/records.hpp"
#include "src/store/store.hpp"
#include "tests/made_up_rates.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

TEST(CpuRates, ArePlausible) {
  EXPECT_GT(vector_multiply_add_ns(), 0.01);
  EXPECT_LT(vector_multiply_add_ns(), 50);
  EXPECT_GT(far_byte_ns(), 0);
  EXPECT_GT(near_byte_ns(), 0);
  EXPECT_GE(memory_byte_ns(), far_byte_ns());
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    for (const DepthwiseTaps taps : {DepthwiseTaps::known, DepthwiseTaps::any}) {
      const TileTime time = depthwise_time(layout, taps);
      EXPECT_GT(time.step, 0.25 * vector_multiply_add_ns());  // noise moves both
      EXPECT_GE(time.once, 0);
    }
  }
  for (const Staging way : {Staging::runs, Staging::rows}) {
    for (const TileTime time : {staging_time(way), fetch_time(way)}) {
      EXPECT_GT(time.step, 0);
      EXPECT_GE(time.once, 0);
    }
    EXPECT_LT(staging_time(way).of(1024), 1e5);
    EXPECT_LT(fetch_time(way).of(64), 1e5);
  }
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    for (const int m : {2, 4}) {
      const TransformTime time = winograd_transform_time(layout, m);
      EXPECT_GT(time.input, 0);
      EXPECT_LT(time.input, 1e4);
      EXPECT_GT(time.output, 0);
      EXPECT_LT(time.output, 1e4);
    }
  }
  const TileTime tile = tile_time(TileReads::strided, 2, 2);
  EXPECT_GE(tile.step, 4 * vector_multiply_add_ns());  // none is better than the best
  EXPECT_GT(tile.of(100), tile.of(10));
}

TEST(CpuRates, AreKeptInTheStoreAndNotMeasuredAgain) {
  const Scratch scratch;
  Store store(scratch.path());
  DeviceInfo cpu;
  cpu.key = "some processor";
  share_cpu_rates(store, cpu);
  ASSERT_EQ(store.list("rates").size(), 1u);
  const std::vector<double> kept = cpu_rates();
  // Whole ones, too, are taken only where none are known.
  std::vector<double> others = kept;
  others[1] *= 2;
  EXPECT_EQ(adopt_cpu_rates(others), KeptRates::whole);
  EXPECT_EQ(cpu_rates(), kept);
  EXPECT_EQ(adopt_cpu_rates({}), KeptRates::damaged);
  EXPECT_EQ(adopt_cpu_rates({kept.begin(), kept.end() - 1}), KeptRates::damaged);
  EXPECT_EQ(cpu_rates(), kept);
}

// Else every process would measure its own.
TEST(CpuRates, ADamagedRecordIsReplaced) {
  const Scratch scratch;
  Store store(scratch.path());
  DeviceInfo cpu;
  cpu.key = "some processor";
  share_cpu_rates(store, cpu);
  const std::vector<Record> records = store.list("rates");
  ASSERT_EQ(records.size(), 1u);
  for (const char* damaged : {"[1.0,2.0]", "[]", "{}", "no JSON", "[\"a\"]"}) {
    store.put("rates", records[0].key, damaged);
    share_cpu_rates(store, cpu);
    EXPECT_EQ(store.get("rates", records[0].key), records[0].payload) << damaged;
  }
}

// In a process of its own, which has measured nothing yet.
TEST(CpuRatesDeathTest, AreTakenInPlaceOfMeasuring) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins anew, with this test alone
  const std::vector<double> others = made_up_rates([](int rows, int vectors, int reads) {
    return TileTime{1.0 * rows * vectors, 3.0 + reads};
  });
  EXPECT_EXIT(
      {
        adopt_cpu_rates(others);
        std::exit(cpu_rates() == others && vector_multiply_add_ns() == 1 &&
                          tile_time(TileReads::contiguous, 2, 1).once == 6 &&
                          (!dot_usable() || dot_tile_time().once == 12) &&
                          winograd_transform_time(Layout::nhwc, 2).input == 3.5 && memory_byte_ns() == 0.75 &&
                          depthwise_time(Layout::nhwc, DepthwiseTaps::known).step == 5 &&
                          depthwise_turn_time().step == 7 && staging_time(Staging::rows).step == 2.5 &&
                          fetch_time(Staging::runs).step == 1.5
                      ? 0
                      : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace faltung
