// Where threads run: one leaves a processor, and a worker leaves its caller's.
#include "src/backend/processor.hpp"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sched.h>

#include <atomic>
#include <thread>

#include "src/backend/parallel.hpp"

namespace faltung {
namespace {

cpu_set_t only(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(processor), &set);
  return set;
}

cpu_set_t allowed() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

void allow(const cpu_set_t& set) { EXPECT_EQ(sched_setaffinity(0, sizeof set, &set), 0); }

TEST(Processor, TheOnlyOneIsNotLeft) {
  std::thread([] {
    const int here = this_processor();
    allow(only(here));
    leave_processor(here);
    EXPECT_EQ(this_processor(), here);
    EXPECT_EQ(allowed_processors(), 1);
  }).join();
}

TEST(Processor, IsLeftForAnother) {
  if (allowed_processors() < 2) GTEST_SKIP() << "there is one";
  std::thread([] {
    const cpu_set_t before = allowed();
    constexpr int kRounds = 20;
    int left = 0;  // the system may put the thread back at once, but not each time
    for (int round = 0; round < kRounds; ++round) {
      const int here = this_processor();
      leave_processor(here);
      left += this_processor() != here;
    }
    EXPECT_GE(left, kRounds / 2);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }).join();
}

// A worker that begins where its caller runs, as the system may have it, does not stay there.
TEST(Processor, OfTheCallerIsLeftByWorkers) {
  if (available_processors() < 2) GTEST_SKIP() << "there is one";
  const Parallel parallel(2);
  constexpr int kRounds = 40;
  int together = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> callers{-1}, workers{-1}, arrived{0};
    parallel.run([&](int worker) {
      const auto meet = [&](int both) {  // or one thread might do both parts
        for (++arrived; arrived < both;) std::this_thread::yield();
      };
      meet(2);
      (worker == 0 ? callers : workers) = this_processor();
      meet(4);
      if (worker == 0) return;
      const cpu_set_t before = allowed();
      allow(only(callers));
      allow(before);
    });
    together += callers == workers;
  }
  EXPECT_LT(together, kRounds / 2);
}

}  // namespace
}  // namespace faltung
#endif
