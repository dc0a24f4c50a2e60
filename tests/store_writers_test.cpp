// A store with many writers at the same time, threads and processes, which may be killed at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "src/store/files.hpp"
#include "tests/store_fixture.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class StoreWriters : public StoreFixture {};

std::string payload_of(int writer, int i) {
  return R"({"i":)" + std::to_string(i) + R"(,"text":")" +
         std::string(3000, static_cast<char>('a' + writer)) + R"("})";
}

bool is_payload(const std::string& p) {
  const std::size_t quote = p.rfind("\":\"");
  if (quote == std::string::npos) return false;
  const std::string text = p.substr(quote + 3);
  return text.size() == 3002 && text.find_first_not_of(text[0]) == 3000;
}

TEST_F(StoreWriters, FourProcessesWriteTheSameAndOtherKeys) {
  std::vector<pid_t> children;
  for (int writer = 0; writer < 4; ++writer) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    int failures = 0;
    Store store(directory_, [&](const std::string&) { ++failures; });
    for (int i = 0; i < 200; ++i) {
      const std::string key =
          i % 2 == 0 ? "shared" + std::to_string(i % 10) : std::to_string(writer) + "-" + std::to_string(i);
      if (!store.put("choice", key, payload_of(writer, i))) ++failures;
      const auto got = store.get("choice", i % 2 == 0 ? "shared2" : key);
      if (got && !is_payload(*got)) ++failures;
      if (!got && i % 2 == 1) ++failures;
    }
    ::_exit(failures == 0 ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Store store = open();
  const std::vector<Record> all = store.list();
  EXPECT_EQ(all.size(), 5u + 4 * 100);
  for (const Record& r : all) EXPECT_TRUE(is_payload(r.payload)) << r.key;
  EXPECT_EQ(files().size(), all.size());
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(StoreWriters, KilledAtAnyMoment) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Store store(directory_, [](const std::string&) {});
      for (int i = 0;; ++i) store.put("choice", std::to_string(i % 7), payload_of(round % 26, i));
    }
    // The first is let live until it has stored something, however slow the machine.
    for (int wait = 0; round == 0 && wait < 1000 && open().list().empty(); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 6000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const Record& r : open().list()) EXPECT_TRUE(is_payload(r.payload)) << r.key;
  }
  EXPECT_THAT(warnings_, ElementsAre());
  Store store = open();
  EXPECT_FALSE(store.list().empty());
  const std::string young = directory_ + "/choice/.tmp-1";
  write(young, "x");
  store.sweep(std::chrono::hours(1));  // what is young may have a writer
  EXPECT_TRUE(fs::exists(young));
  store.sweep(std::chrono::seconds(0));
  for (const std::string& file : files())
    EXPECT_FALSE(is_temporary(fs::path(file).filename().string())) << file;
  EXPECT_EQ(files().size(), store.list().size());
}

// Writers are killed at random moments and others take their place, until 1,000 records were acknowledged:
// none of those is lost, and none is torn.
TEST_F(StoreWriters, EightProcessesKilledAtRandomMomentsLoseNothing) {
  constexpr int kWriters = 8, kRecords = 1000;
  auto* acknowledged =
      static_cast<std::atomic<int>*>(::mmap(nullptr, sizeof(std::atomic<int>) * kWriters,
                                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(acknowledged), MAP_FAILED);
  const auto start = [&](int writer) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    Store store(directory_, [](const std::string&) { ::_exit(1); });
    while (true) {
      const int i = acknowledged[writer];
      if (!store.put("choice", std::to_string(writer) + "-" + std::to_string(i), payload_of(writer, i)))
        ::_exit(1);
      acknowledged[writer] = i + 1;
    }
  };
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters; ++writer) children.push_back(start(writer));
  std::mt19937 random(5);
  const auto total = [&] {
    int sum = 0;
    for (int writer = 0; writer < kWriters; ++writer) sum += acknowledged[writer];
    return sum;
  };
  int kills = 0;
  const auto end = [&](pid_t child) {
    int status = 0;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "a writer gave up";
    ++kills;
  };
  while (total() < kRecords && kills < 2000) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    const auto writer = random() % kWriters;
    end(children[writer]);
    children[writer] = start(static_cast<int>(writer));
  }
  for (const pid_t child : children) end(child);
  EXPECT_GE(total(), kRecords);
  EXPECT_GT(kills, kWriters);
  Store store = open();
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int i = 0; i < acknowledged[writer]; ++i) {
      ASSERT_EQ(store.get("choice", std::to_string(writer) + "-" + std::to_string(i)), payload_of(writer, i));
    }
  }
  for (const Record& r : store.list()) EXPECT_TRUE(is_payload(r.payload)) << r.key;
  EXPECT_THAT(warnings_, ElementsAre());
  store.sweep(std::chrono::seconds(0));
  EXPECT_EQ(files().size(), store.list().size());
  ::munmap(acknowledged, sizeof(std::atomic<int>) * kWriters);
}

TEST_F(StoreWriters, ThreadsShareOne) {
  Store store = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        store.put("choice", std::to_string(i % 5), payload_of(t, i));
        const auto got = store.get("choice", std::to_string(i % 5));
        EXPECT_TRUE(got && is_payload(*got));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.list().size(), 5u);
  EXPECT_THAT(warnings_, ElementsAre());
}

}  // namespace
}  // namespace faltung
