// The faltung command among files of every kind, on a full disk, without its standard streams, with too
// little memory: it ends, says what was wrong, and does not say that all is well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/store/store.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class FilesCommand : public testing::Test {
 protected:
  struct Ended {
    int exit;  // the exit code; 128 and the signal that ended it, 124 if it did not end
    std::string out, err;
  };
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  static std::string read(const std::string& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // A line of the shell's in the folder, in which `faltung` is the command.
  Ended shell(const std::string& line) const {
    const std::string whole =
        "cd " + scratch_.path() + " && export FALTUNG_STORE=$PWD/store && faltung() { " + "timeout 60 " +
        FALTUNG_COMMAND + " \"$@\"; } && { " + line + "; } >" + path("out") + " 2>" + path("err");
    const int status = ::system(whole.c_str());
    return {WEXITSTATUS(status), read(path("out")), read(path("err"))};
  }
  const Scratch scratch_;
  const std::string small_ = "n1c8h9w8k8r3s3:pad1";
};

TEST_F(FilesCommand, AFullDiskIsNoSuccess) {
  for (const std::string& line : {"explain " + small_, std::string("store list"), std::string("--version"),
                                  std::string("--help"), "explain --csv - " + small_}) {
    const Ended ended = shell("faltung " + line + " >/dev/full");
    EXPECT_EQ(ended.exit, 2) << line;
    EXPECT_THAT(ended.err, HasSubstr("No space left")) << line;
  }
}

TEST_F(FilesCommand, AClosedStreamIsNoFile) {
  const Ended ended = shell("faltung explain " + small_ + " --csv table.csv >&-");
  EXPECT_EQ(ended.exit, 2);
  EXPECT_THAT(ended.err, HasSubstr("standard output cannot be written"));
  const std::string table = read(path("table.csv"));
  EXPECT_THAT(table, testing::StartsWith("suite,name,"));
  EXPECT_THAT(table, Not(HasSubstr("verdict       kernel")));
  // Where nothing is to be printed nothing is missed.
  EXPECT_EQ(shell("faltung store import nothing >&-").exit, 2);
  EXPECT_EQ(shell("faltung explain " + small_ + " <&- 2>&-").exit, 0);
}

TEST_F(FilesCommand, ALimitOfFilesSizesIsTold) {
  const Ended ended = shell("ulimit -f 1; faltung find --budget 50ms " + small_ + " --csv big.csv");
  EXPECT_EQ(ended.exit, 2) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("big.csv: could not be written to the end: File too large"));
}

// Of address spaces down to what the command itself needs, none has room for 64 threads' stacks.
TEST_F(FilesCommand, ThreadsThatCannotStartAreNoAbort) {
  bool said = false;
  for (const int kilobytes : {30000, 60000, 150000, 400000}) {
    const Ended ended = shell("ulimit -v " + std::to_string(kilobytes) +
                              "; faltung find --budget 50ms --threads 64 " + small_);
    EXPECT_TRUE(ended.exit == 0 || ended.exit == 2 || ended.exit == 127) << ended.exit << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("terminate called"))) << kilobytes;
    said = said ||
           ended.err.find("of 64 threads could be started; they share the work of all") != std::string::npos;
  }
  EXPECT_TRUE(said);
}

// In namespaces of its own, where the control groups' files are the test's.
TEST_F(FilesCommand, AQuotaOfProcessorsIsKept) {
  const std::string alone = "unshare -rm sh -c 'mount -t tmpfs none /sys/fs/cgroup";
  if (shell(alone + "'").exit != 0) GTEST_SKIP() << "no namespaces here";
  const Ended ended = shell(alone + " && cd /sys/fs/cgroup && mkdir cpu && echo 100000 100000 >cpu.max &&" +
                            " echo 100000 >cpu/cpu.cfs_quota_us && echo 100000 >cpu/cpu.cfs_period_us &&" +
                            " OCL_ICD_VENDORS=/nowhere " + FALTUNG_COMMAND + " devices'");
  EXPECT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\n  1 processors, ")) << ended.err;
}

TEST_F(FilesCommand, WhatHasNoEndIsRefused) {
  const Ended ended = shell("faltung explain --suite /dev/zero");
  EXPECT_EQ(ended.exit, 2);
  EXPECT_THAT(ended.err, HasSubstr("larger than 64 MiB"));
  // A pipe's end is its writer's.
  EXPECT_EQ(shell("printf 'n,c,h,w,k,r,s\\n1,8,9,8,8,3,3\\n' | faltung explain --suite /dev/stdin").exit, 0);
}

TEST_F(FilesCommand, PipesAreNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(shell("faltung store import pipe").exit, 2);
  const Ended list = shell("faltung explain --suite pipe");
  EXPECT_EQ(list.exit, 2);
  EXPECT_THAT(list.err, HasSubstr("pipe: nobody writes to this pipe"));
  // Whom somebody writes to takes its time.
  const std::string rows = "printf 'n,c,h,w,k,r,s\\n1,8,9,8,8,3,3\\n'";
  EXPECT_EQ(shell("{ sleep 1; " + rows + " >pipe; } & faltung explain --suite pipe").exit, 0);
  EXPECT_EQ(shell("{ sleep 4; " + rows + "; } | faltung explain --suite /dev/stdin").exit, 0);
  EXPECT_EQ(shell("faltung run " + small_ + " --x pipe --w pipe --y y.npy").exit, 2);
  EXPECT_EQ(shell("FALTUNG_STORE=pipe:readonly faltung explain " + small_).exit, 2);
  fs::create_directories(path("store/trials"));
  ASSERT_EQ(::mkfifo(path("store/trials/" + record_file("trials", "x")).c_str(), 0600), 0);
  const Ended listed = shell("faltung store list");
  EXPECT_EQ(listed.exit, 1);
  EXPECT_THAT(listed.err, HasSubstr("is not a file"));
}

TEST_F(FilesCommand, WhatCannotBeReadIsNotCalledEmpty) {
  fs::create_symlink("store", path("store"));  // to itself: root may not read it either
  const Ended ended = shell("faltung store list");
  EXPECT_EQ(ended.exit, 1);
  EXPECT_THAT(ended.err, HasSubstr("store: cannot be read"));
}

TEST_F(FilesCommand, ATerminalSeesNoCommandsOfAKeys) {
  Store store(path("store"));
  ASSERT_TRUE(store.put("choice",
                        "\x1b[2J\x07 red \xc2\x9b"
                        "31m \xc3\xa4",
                        "1"));
  const Ended ended = shell("faltung store list");
  EXPECT_THAT(ended.out, HasSubstr("?[2J? red \xc2?31m \xc3\xa4"));
  // Of a store's own name, in a warning: a link to itself cannot be read.
  const std::string name = "\x1b[31m";
  fs::create_symlink(name, path(name));
  for (const std::string command : {"list", "clear", "export all"}) {
    const Ended warned = shell("FALTUNG_STORE='" + name + "' faltung store " + command);
    EXPECT_THAT(warned.err, HasSubstr("warning: store: ?[31m: cannot be read")) << command;
    EXPECT_THAT(warned.err, Not(HasSubstr("\x1b"))) << command;
  }
  EXPECT_THAT(shell("faltung explain \"$(printf '\\033[2J')\"").err, Not(HasSubstr("\x1b")));
}

TEST_F(FilesCommand, ANameOfAnyBytesIsPrintedAndWritten) {
  std::ofstream(path("list.csv")) << "name,n,c,h,w,k,r,s\n\xff\xfe\x1b[2J,1,8,9,8,8,3,3\n";
  const Ended json = shell("faltung explain --suite list.csv --json -");
  EXPECT_EQ(json.exit, 0) << json.err;
  EXPECT_TRUE(nlohmann::json::parse(json.out, nullptr, false).is_array());
  const Ended table = shell("faltung explain --suite list.csv");
  EXPECT_EQ(table.exit, 0) << table.err;
  EXPECT_THAT(table.out, Not(HasSubstr("\x1b")));
}

TEST_F(FilesCommand, AMistypedLockIsAnError) {
  for (const std::string command : {"find --budget 20ms ", "explain ", "bench --min-time 1ms "}) {
    for (const std::string lock : {"typo.lock", "typo.lock:readonly", "typo:readonly"}) {
      const Ended ended = shell("FALTUNG_STORE=" + lock + " faltung " + command + small_);
      EXPECT_EQ(ended.exit, 2) << command << lock;
      EXPECT_THAT(ended.err, HasSubstr("there is no such store")) << command << lock;
      EXPECT_FALSE(fs::exists(path("typo.lock")));
    }
  }
}

}  // namespace
}  // namespace faltung
