// What may lie where the store looks for a file, and what a process may lack: the store says so and goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "src/store/files.hpp"
#include "src/store/store.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string bad_file_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_file);
    return error.what();
  }
  return "";
}

// In the child of a fork: its exit code, or minus the signal that ended it.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

class StoreFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  Store open(const std::string& name) {
    return Store(path(name), [this](const std::string& line) { warnings_.push_back(line); });
  }
  const Scratch scratch_;
  std::vector<std::string> warnings_;
};

TEST_F(StoreFiles, WhatIsReadOnlyOrALockMustBeThere) {
  for (const char* name : {"none:readonly", "typo.lock", "typo.lock:readonly"}) {
    EXPECT_THAT(bad_file_of([&] { open(name); }), HasSubstr("there is no such store")) << name;
  }
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
  EXPECT_TRUE(
      open("new").put("choice", "key", "1"));  // another name is a directory's, made when it is needed
  open("new").export_to(path("team.lock"));
  EXPECT_EQ(open("team.lock").get("choice", "key"), "1");
  EXPECT_EQ(open("new:readonly").get("choice", "key"), "1");
  std::ofstream(path("team.lock"), std::ios::app) << "x";
  EXPECT_THAT(bad_file_of([&] { open("team.lock"); }), HasSubstr("no export of a store"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(bad_file_of([&] { open("pipe:readonly"); }), HasSubstr("neither a directory nor a file"));
}

TEST_F(StoreFiles, APipeIsNotWaitedFor) {
  ::alarm(60);
  open("s").put("choice", "key", "1");
  const std::string record = path("s/choice/" + record_file("choice", "key"));
  fs::remove(record);
  ASSERT_EQ(::mkfifo(record.c_str(), 0600), 0);
  Store store = open("s");
  EXPECT_EQ(store.get("choice", "key"), std::nullopt);
  EXPECT_EQ(store.list().size(), 0u);
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("is not a file")));
  EXPECT_THAT(bad_file_of([&] { store.import_from(record); }), HasSubstr("is not a file"));
  EXPECT_TRUE(store.put("choice", "key", "2"));  // takes its place
  EXPECT_EQ(store.get("choice", "key"), "2");
  ::alarm(0);
}

TEST_F(StoreFiles, AnExportLeavesWhatIsNoFile) {
  Store store = open("s");
  store.put("choice", "key", "1");
  fs::create_symlink("target", path("link"));  // to what is not there yet
  for (const char* expected : {"1", "2"}) {
    store.put("choice", "key", expected);
    EXPECT_EQ(store.export_to(path("link")), 1);
    EXPECT_TRUE(fs::is_symlink(path("link")));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path("target"))));
    EXPECT_EQ(open("target").get("choice", "key"), expected);
  }
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  store.export_to(path("pipe"));
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  char text[4096];
  EXPECT_GT(::read(reader, text, sizeof text), 100);
  ::close(reader);
  fs::create_directory(path("folder"));
  EXPECT_THAT(bad_file_of([&] { store.export_to(path("folder")); }), HasSubstr("folder: cannot be written"));
  fs::create_symlink("loop", path("loop"));
  EXPECT_THAT(bad_file_of([&] { store.export_to(path("loop")); }), HasSubstr("loop: cannot be written"));
}

TEST_F(StoreFiles, TimesOfAnyClockAreExported) {
  Store store = open("s");
  const auto set = [&](const std::string& key, std::int64_t seconds) {
    store.put("choice", key, "1");
    const timespec times[2] = {{seconds, 999999999}, {seconds, 999999999}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path("s/choice/" + record_file("choice", key)).c_str(), times, 0), 0);
  };
  set("old", -300000000);
  set("first", -1);
  set("late", std::int64_t{1} << 33);
  store.export_to(path("all"));
  const Store::Imported done = open("t").import_from(path("all"));
  EXPECT_EQ(done.damaged, 0);
  EXPECT_EQ(done.added, 3);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(StoreFiles, WhatCannotBeReadIsSaid) {
  open("s").put("choice", "key", "1");
  fs::rename(path("s/choice"), path("away"));
  fs::create_symlink("choice", path("s/choice"));  // to itself: root may not read it either
  Store store = open("s");
  EXPECT_EQ(store.list().size(), 0u);
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("s/choice: cannot be read")));
  EXPECT_THAT(bad_file_of([&] { open("s:readonly").holds("choice"); }), HasSubstr("cannot be read"));
  EXPECT_FALSE(open("s").holds("lock"));
}

// A file that may grow no further is an answer, and not the end of the process.
TEST_F(StoreFiles, ALimitOfFilesSizesIsNoSignal) {
  EXPECT_EQ(in_child([&] {
              const rlimit limit{64, 64};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              Store store = open("s");
              if (store.put("choice", "key", std::string(1000, '1'))) return 1;
              if (warnings_.size() != 1 || store.get("choice", "key")) return 2;
              sigset_t pending;
              ::sigpending(&pending);
              return ::sigismember(&pending, SIGXFSZ) == 0 ? 0 : 3;
            }),
            0);
}

// Whose own output then does not land in a record.
TEST_F(StoreFiles, ClosedStandardStreamsAreNotTaken) {
  open("s").put("choice", "key", "1");
  EXPECT_EQ(in_child([&] {
              for (const int standard : {0, 1, 2}) ::close(standard);
              Store store = open("s");
              bool taken = false;
              for (int i = 0; i < 3; ++i) {
                store.put("choice", "key", "2");
                taken = taken || store.get("choice", "key") != "2";
                taken = taken || ::write(1, "x", 1) == 1;
              }
              const int pipe_end = above_standard(::open("/dev/null", O_RDONLY));
              return taken || pipe_end <= 2 || ::fcntl(0, F_GETFD) >= 0 ? 1 : 0;
            }),
            0);
}

}  // namespace
}  // namespace faltung
