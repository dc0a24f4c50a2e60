// faltung prepare: what ends or warns one of its threads is said once, as the command says what is wrong.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "src/backend/nvrtc.hpp"
#include "tests/command_fixture.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class PrepareCommand : public CommandFixture {
 protected:
  // A line of the shell's in the folder, in which `prepare` is the command on the CPU; the exit code as the
  // shell has it.
  Result shell(const std::string& line) {
    const std::string whole = "cd " + scratch_.path() + " && export FALTUNG_STORE=" + store_ +
                              " && prepare() { " + FALTUNG_COMMAND + " prepare \"$@\"; } && { " + line +
                              "; } >" + path("out") + " 2>" + path("err");
    const int status = ::system(whole.c_str());
    return {WEXITSTATUS(status), read(path("out")), read(path("err"))};
  }
};

TEST_F(PrepareCommand, AFileThatIsFullIsTold) {
  fs::create_directory(store_);  // which is not written to: only the rows are
  const Result result = shell(
      "FALTUNG_STORE=$FALTUNG_STORE:readonly; ulimit -f 1; prepare --suite resnet50 --jobs 4 --csv rows.csv");
  EXPECT_EQ(result.exit, 2);
  EXPECT_EQ(result.err, "faltung: rows.csv: could not be written to the end: File too large\n");
}

// Of address spaces down to what the command itself needs, none has room for as many threads' stacks.
TEST_F(PrepareCommand, ThreadsThatCannotStartAreNoAbort) {
  for (const int kilobytes : {60000, 150000, 400000}) {
    const Result result = shell("ulimit -v " + std::to_string(kilobytes) +
                                "; prepare --suite resnet50 --threads 1 --jobs 1024");
    EXPECT_TRUE(result.exit == 0 || result.exit == 2 || result.exit == 127) << result.exit << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("terminate called"))) << kilobytes;
  }
}

TEST_F(PrepareCommand, AnEngineThatCannotBeMadeIsTold) {
  environment_["FALTUNG_KNOWN_DEVICES"] = path("nothing");
  expect_refused({"prepare", kSmall, kSmall, "--jobs", "2", "--device", "nvrtc:sm_90a"},
                 Nvrtc::get() == nullptr ? "NVRTC" : "which is no file");
}

TEST_F(PrepareCommand, AWarningOfAllThreadsIsSaidOnce) {
  write(path("cut.pack"), "faltung-pack 3\n");
  const Result result = shell("FALTUNG_KNOWN_DEVICES=cut.pack prepare --suite resnet50 --jobs 4");
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.err, HasSubstr("cut.pack: is no pack of this version"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(PrepareCommand, AnArchitectureThatIsNoneIsSaidOnce) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  for (const std::string none : {"sm_77", "sm_80a", "sm_"}) {
    for (const Words& words : {Words{"prepare", kSmall, "--device", "nvrtc:" + none},
                               Words{"compilers", kSmall, "--with", "nvrtc:" + none}})
      expect_refused(words, "does not compile for " + none + "; it does for ");
  }
}

TEST_F(PrepareCommand, AListOfAnyNamesIsAList) {
  write(path("my,list.csv"), "name,problem\n\"a,b \"\"c\"\"\"," + kSmall + "\n");
  const Result result = shell("prepare --suite ./my,list.csv --problems");
  EXPECT_EQ(result.out, "name,problem\n\"my,list_a,b \"\"c\"\"\",\"fwd:" + kSmall + ":f32:nchw\"\n");
}

TEST_F(PrepareCommand, AnInterruptEndsItInGoodOrder) {
  const std::string pocl = "/etc/OpenCL/vendors/pocl.icd";
  if (!fs::exists(pocl)) GTEST_SKIP() << "PoCL is not here";
  environment_ = {
      {"OCL_ICD_VENDORS", pocl}, {"FALTUNG_KNOWN_DEVICES", "none"}, {"FALTUNG_ONLY", "direct_gpu*"}};
  const pid_t pid =
      start({"prepare", "--suite", "gfx1010", "--device", "opencl:0", "--jobs", "1"}, "prepare");
  std::error_code ignored;
  for (int i = 0; i < 1200 && !fs::exists(store_ + "/verified", ignored); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(pid, SIGINT);
  const Result result = wait(pid, "prepare");
  EXPECT_EQ(result.exit, 130) << result.err;
  EXPECT_THAT(result.out, EndsWith(" failed, interrupted\n"));
}

}  // namespace
}  // namespace faltung
