// The CPU's workers: each part of the work is done once, whatever is thrown and whoever calls.
#include "src/backend/parallel.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace faltung {
namespace {

TEST(Parallel, CallsEachWorkerOnce) {
  for (int workers = 1; workers <= 5; ++workers) {
    const Parallel parallel(workers);
    EXPECT_EQ(parallel.workers(), workers);
    for (int round = 0; round < 500; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(workers));
      parallel.run([&](int worker) { ++calls.at(static_cast<std::size_t>(worker)); });
      for (const auto& count : calls) ASSERT_EQ(count, 1);
    }
  }
  EXPECT_EQ(Parallel(0).workers(), 1);
  EXPECT_EQ(Parallel(-3).workers(), 1);
  EXPECT_GE(available_processors(), 1);
}

TEST(Parallel, WorkersRunAtTheSameTime) {
  const Parallel parallel(3);
  // Each waits for all: this would not return if they ran one after the other.
  std::atomic<int> arrived{0};
  parallel.run([&](int) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

TEST(Parallel, WakesAfterASleep) {
  const Parallel parallel(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> calls{0};
    parallel.run([&](int worker) {
      if (worker == 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ++calls;
    });
    EXPECT_EQ(calls, 3);
  }
}

#if defined(__linux__)
// All threads on one processor: a helper that was just woken does not run yet.
TEST(Parallel, TheCallerDoesTheWorkOfThreadsThatAreLate) {
  cpu_set_t usual, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof usual, &usual), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &usual)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Parallel parallel(2);  // its thread inherits that
  int by_the_caller = 0;
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> calls{0};
    parallel.run([&, caller = std::this_thread::get_id()](int worker) {
      ++calls;
      if (worker == 1 && std::this_thread::get_id() == caller) ++by_the_caller;
    });
    ASSERT_EQ(calls, 2);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof usual, &usual), 0);
  EXPECT_GT(by_the_caller, 0);
}
#endif

// Whose threads ask for more address space than there is.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t attributes = usual_;
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{1} << 56), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual_); }

 private:
  pthread_attr_t usual_;
};

TEST(Parallel, WhereNoThreadStartsTheCallerDoesTheWork) {
  const NoThreads none;
  const Parallel parallel(5);
  EXPECT_EQ(parallel.workers(), 5);
  EXPECT_EQ(parallel.threads(), 1);
  for (int round = 0; round < 3; ++round) {
    std::vector<int> order;
    parallel.run([&](int worker) { order.push_back(worker); });
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));
  }
  EXPECT_THROW(parallel.run([](int worker) {
    if (worker == 3) throw 1;
  }),
               int);
}

// The threads of ten workers in a process with room for three of their stacks; 0 if each worker was called.
int threads_in_little_room() {
  pthread_attr_t attributes;
  pthread_getattr_default_np(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 30);
  pthread_setattr_default_np(&attributes);
  const rlimit limit{std::size_t{4} << 30, std::size_t{4} << 30};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  const Parallel parallel(10);
  std::vector<std::atomic<int>> calls(10);
  parallel.run([&](int worker) { ++calls.at(static_cast<std::size_t>(worker)); });
  for (const auto& count : calls) {
    if (count != 1) return 3;
  }
  return parallel.threads() > 1 && parallel.threads() < 10 ? 0 : 4;
}

TEST(Parallel, WhereFewThreadsStartTheyTakeTurns) {
  EXPECT_EXIT(_exit(threads_in_little_room()), testing::ExitedWithCode(0), "");
}

// In the child of a fork; what it returns is the child's exit code.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // it must not hang
    _exit(work());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Parallel, WorksInTheChildOfAFork) {
  auto parallel = std::make_unique<const Parallel>(3);
  const auto works = [&] {
    for (int round = 0; round < 100; ++round) {
      std::atomic<int> sum{0};
      parallel->run([&](int worker) { sum += worker + 1; });
      if (sum != 6) return false;
    }
    return true;
  };
  // Each waits for the others: were they computed one after the other, the child's alarm would end it.
  const auto are_threads = [&] {
    std::atomic<int> there{0};
    parallel->run([&](int) {
      ++there;
      while (there < 3) std::this_thread::yield();
    });
    return true;
  };
  EXPECT_TRUE(works());
  EXPECT_EQ(in_child([&] { return works() && in_child([&] { return works() ? 0 : 1; }) == 0 ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return are_threads() ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return parallel.reset(), 0; }), 0);
  EXPECT_TRUE(works());
  // Another thread uses it at the fork, and does not exist in the child.
  std::atomic<bool> busy{false}, done{false};
  std::thread other([&] {
    parallel->run([&](int) {
      busy = true;
      while (!done) std::this_thread::yield();
    });
  });
  while (!busy) std::this_thread::yield();
  EXPECT_EQ(in_child([&] { return works() && are_threads() ? 0 : 1; }), 0);
  done = true;
  other.join();
  EXPECT_TRUE(works());
}

TEST(Parallel, TheFirstExceptionComesBack) {
  const Parallel parallel(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    std::atomic<int> finished{0};
    try {
      parallel.run([&](int worker) {
        if (worker == thrower) throw std::runtime_error(std::to_string(worker));
        ++finished;
      });
      ADD_FAILURE() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(thrower));
    }
    EXPECT_EQ(finished, 2);
  }
  EXPECT_THROW(parallel.run([](int) { throw 1; }), int);  // all of them
  std::atomic<int> calls{0};
  parallel.run([&](int) { ++calls; });  // and it works on
  EXPECT_EQ(calls, 3);
}

TEST(Parallel, NestedRunsAreInline) {
  const Parallel parallel(3);
  std::atomic<int> calls{0};
  parallel.run([&](int) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel.run([&](int) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 9);
  EXPECT_THROW(parallel.run([&](int) { parallel.run([](int) { throw 1; }); }), int);
  parallel.run([&](int) { ++calls; });
  EXPECT_EQ(calls, 12);
}

TEST(Parallel, ASecondCallersRunIsInline) {
  const Parallel parallel(2);
  std::atomic<bool> busy{false}, done{false};
  std::thread first([&] {
    parallel.run([&](int) {
      busy = true;
      while (!done) std::this_thread::yield();
    });
  });
  while (!busy) std::this_thread::yield();
  std::vector<int> order;
  const std::thread::id self = std::this_thread::get_id();
  parallel.run([&](int worker) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(worker);
  });
  EXPECT_EQ(order, (std::vector{0, 1}));
  done = true;
  first.join();
}

TEST(Parallel, ManyCallersAtOnce) {
  const Parallel parallel(3);
  std::vector<std::thread> callers;
  std::atomic<long> sum{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) parallel.run([&](int worker) { sum += worker + 1; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 2000 * 6);
}

TEST(Parallel, TheCallersOwnThreads) {
  int asked = 0;
  const Parallel parallel(4, [&](int count, const std::function<void(int)>& body) {
    ++asked;
    EXPECT_EQ(count, 4);
    for (int i = count - 1; i >= 0; --i) body(i);  // any order will do
  });
  std::vector<int> order;
  const std::thread::id self = std::this_thread::get_id();
  parallel.run([&](int worker) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(worker);
  });
  EXPECT_EQ(order, (std::vector{3, 2, 1, 0}));
  EXPECT_EQ(asked, 1);
  EXPECT_THROW(parallel.run([](int) { throw 1; }), int);
}

TEST(Each, CoversEveryIndexOnce) {
  for (const int workers : {1, 3}) {
    const Parallel parallel(workers);
    for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 2, 7, 5000}) {
        std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
        parallel.each(
            count,
            [&](std::int64_t i, int worker) {
              ++calls.at(static_cast<std::size_t>(i));
              EXPECT_TRUE(worker >= 0 && worker < workers);
            },
            grain);
        for (const auto& c : calls) ASSERT_EQ(c, 1) << count << " " << grain;
      }
    }
  }
}

// What neighbouring steps of a network write and read stays with one core.
TEST(Each, WorkersBeginWithTheirOwnPart) {
  std::vector<std::pair<std::int64_t, int>> calls;
  const Parallel parallel(3, [&](int count, const std::function<void(int)>& body) {
    for (int i = count - 1; i >= 0; --i) body(i);
  });
  parallel.each(30, [&](std::int64_t i, int worker) { calls.emplace_back(i, worker); });
  ASSERT_EQ(calls.size(), 30u);  // the first that is called helps the others
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].first, static_cast<std::int64_t>((i + 20) % 30));
    EXPECT_EQ(calls[i].second, 2);
  }
}

TEST(Each, MoreWorkersThanParts) {
  const Parallel parallel(70, [](int count, const std::function<void(int)>& body) {
    for (int i = 0; i < count; ++i) body(i);
  });
  std::vector<int> calls(1000);
  parallel.each(
      1000, [&](std::int64_t i, int) { ++calls[static_cast<std::size_t>(i)]; }, 3);
  for (const int c : calls) EXPECT_EQ(c, 1);
}

TEST(Share, IsAPartition) {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{5}, std::int64_t{97}, std::int64_t{1} << 50}) {
    for (int workers = 1; workers <= 9; ++workers) {
      std::int64_t next = 0, least = count, most = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const Range range = share(count, worker, workers);
        EXPECT_EQ(range.begin, next);
        next = range.end;
        least = std::min(least, range.end - range.begin);
        most = std::max(most, range.end - range.begin);
      }
      EXPECT_EQ(next, count);
      EXPECT_LE(most - least, 1);
    }
  }
}

}  // namespace
}  // namespace faltung
