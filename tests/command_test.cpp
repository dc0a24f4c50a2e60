// The faltung command from outside: what it prints, writes and returns, and what it says to bad input.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "src/problem/npy.hpp"
#include "tests/command_fixture.hpp"
#include "tests/onnx_writer.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

class Command : public CommandFixture {};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(Command, VerifyPassesAndNamesEveryKernel) {
  const Result result =
      run({"verify", kSmall, kSmall + ":f16:nhwc:bias:relu", "--seed", "5", "--csv", path("out.csv")});
  EXPECT_EQ(result.exit, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr(", 0 do not"));
  int passed = 0;
  for (const auto& row : rows(read(path("out.csv")))) {
    if (row.at("verdict") == "declined" || row.at("verdict") == "skipped") continue;
    EXPECT_EQ(row.at("verdict"), "pass") << row.at("kernel");
    EXPECT_LE(std::stod(row.at("error_over_bound")), 1);
    EXPECT_EQ(row.at("seed"), "5");
    ++passed;
  }
  EXPECT_GE(passed, 4);  // two problems, the reference and at least one more for each
}

TEST_F(Command, FindThenExplainThenTheStore) {
  Result result = run({"find", kSmall, "--budget", "300ms"});
  ASSERT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("chosen"));
  EXPECT_THAT(result.out, HasSubstr("workspace: "));
  EXPECT_THAT(result.out, Not(HasSubstr("\r")));  // no live line where there is no terminal
  EXPECT_THAT(result.err, Not(HasSubstr("\r")));

  result = run({"explain", kSmall, "--json", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at(0).at("verdict"), "chosen");
  EXPECT_EQ(json.at(0).at("source"), "store");
  EXPECT_GT(json.at(0).at("ms"), 0);
  const std::string kernel = json.at(0).at("kernel");

  // The file brings the choice into another store.
  ASSERT_EQ(run({"store", "export", path("all.json")}).exit, 0);
  EXPECT_THAT(run({"store", "list"}).out, HasSubstr("trials"));
  EXPECT_THAT(run({"store", "clear"}).out, HasSubstr("records removed"));
  EXPECT_THAT(run({"store", "list"}).out, HasSubstr(": 0 records"));
  EXPECT_EQ(nlohmann::json::parse(run({"explain", kSmall, "--json", "-"}).out).at(0).at("source"), "model");
  result = run({"store", "import", path("all.json")});
  EXPECT_EQ(result.exit, 0) << result.err;
  environment_["FALTUNG_STORE"] = store_ + ":readonly";
  expect_refused({"store", "clear"}, "is read-only, as asked");
  environment_.clear();
  const auto again = nlohmann::json::parse(run({"explain", kSmall, "--json", "-"}).out).at(0);
  EXPECT_EQ(again.at("source"), "store");
  EXPECT_EQ(again.at("kernel"), kernel);
}

TEST_F(Command, ANetworksConvolutionsAreFoundInEitherLayout) {
  onnx::ModelText text;
  text.add_input("x", {1, 8, 12, 12});
  text.add_constant(onnx::tensor("w", {16, 8, 3, 3}, std::vector<float>(1152, 0.01f)));
  text.add({"Conv", {"x", "w"}, {"y"}, {{"pads", onnx::Sizes{1, 1, 1, 1}}}, ""});
  text.add_output("y");
  write(path("model.onnx"), text.bytes());
  const Result result = run({"network", "explain", path("model.onnx"), "--find", "20ms", "--threads", "1"});
  ASSERT_EQ(result.exit, 0) << result.err;
  for (const std::string layout : {"nchw", "nhwc"}) {
    const std::string problem = "n1c8h12w12k16r3s3:pad1:" + layout;
    const Result explained = run({"explain", problem, "--threads", "1", "--json", "-"});
    EXPECT_EQ(nlohmann::json::parse(explained.out).at(0).at("source"), "store") << layout;
  }
}

TEST_F(Command, ExplainSaysWhyNotInWords) {
  const Result result = run({"explain", kSmall, "--skip", "winograd*"});
  ASSERT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("depthwise_cpu"));
  EXPECT_THAT(result.out, HasSubstr("not depthwise"));
  EXPECT_THAT(result.out, testing::ContainsRegex("skipped +winograd_cpu"));
}

TEST_F(Command, TwoProcessesFindTheSameProblemAtOnce) {
  const pid_t a = start({"find", kSmall, "--budget", "300ms"}, "a"),
              b = start({"find", kSmall, "--budget", "300ms"}, "b");
  const Result first = wait(a, "a"), second = wait(b, "b");
  EXPECT_EQ(first.exit, 0) << first.err;
  EXPECT_EQ(second.exit, 0) << second.err;
  EXPECT_EQ(first.err + second.err, "");
  EXPECT_EQ(nlohmann::json::parse(run({"explain", kSmall, "--json", "-"}).out).at(0).at("source"), "store");
}

TEST_F(Command, AStoreThatCannotBeUsedCostsNothing) {
  write(path("file"), "no directory");
  store_ = path("file");
  Result result = run({"find", kSmall, "--budget", "100ms"});
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.out, HasSubstr("chosen"));
  EXPECT_THAT(result.err, HasSubstr("warning: store: "));

  store_ = path("damaged");
  ASSERT_EQ(run({"find", kSmall, "--budget", "100ms"}).exit, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store_)) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
  }
  result = run({"explain", kSmall});
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.out, HasSubstr("from the model"));
  EXPECT_THAT(result.err, HasSubstr("taken as missing"));
}

TEST_F(Command, InterruptedFindKeepsWhatItLearned) {
  const pid_t pid =
      start({"find", "--suite", FALTUNG_SOURCE_DIR "/workloads/gfx1010.csv", "--budget", "20s"}, "find");
  const auto trials = [&] {
    std::error_code ignored;
    return !std::filesystem::is_empty(store_ + "/trials", ignored) && !ignored;
  };
  for (int i = 0; i < 600 && !trials(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(pid, SIGINT);
  const Result result = wait(pid, "find");
  EXPECT_EQ(result.exit, 130) << result.out;
  EXPECT_THAT(result.err, HasSubstr("what was measured is stored"));
  EXPECT_TRUE(trials());
}

TEST_F(Command, InterruptedCompilersLeaveNoFolder) {
  const std::string pocl = "/etc/OpenCL/vendors/pocl.icd";
  if (!std::filesystem::exists(pocl)) GTEST_SKIP() << "PoCL is not here";
  std::filesystem::create_directory(path("tmp"));
  environment_ = {{"OCL_ICD_VENDORS", pocl}, {"TMPDIR", path("tmp")}};
  const pid_t pid =
      start({"compilers", "--suite", "gfx1010", "--with", "opencl:0", "--csv", path("out.csv")}, "compilers");
  const auto lines = [&] {
    const std::string text = read(path("out.csv"));
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 1200 && lines() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(std::filesystem::is_empty(path("tmp")));
  kill(pid, SIGINT);
  EXPECT_EQ(wait(pid, "compilers").exit, 130);
  EXPECT_TRUE(std::filesystem::is_empty(path("tmp")));
}

TEST_F(Command, RunOnNpyFiles) {
  save("x.npy", {2, 16, 14, 15});
  save("w.npy", {32, 16, 3, 3});
  save("b.npy", {32});
  save("r.npy", {2, 32, 14, 15});
  Result result =
      run({"run", kSmall + ":bias:residual:relu:maxpool2", "--x", path("x.npy"), "--w", path("w.npy"),
           "--bias", path("b.npy"), "--residual", path("r.npy"), "--y", path("y.npy"), "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("check: pass: 3136 of 3136 elements"));
  EXPECT_EQ(read_npy(path("y.npy")).shape, (std::vector<std::int64_t>{2, 32, 7, 7}));

  result = run({"run", "bwd_w:" + kSmall, "--x", path("x.npy"), "--y", path("r.npy"), "--w", path("dw.npy"),
                "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("check: pass: 4608 of 4608"));

  save("x.npy", {2, 14, 15, 16});
  save("w.npy", {32, 3, 3, 16});
  result = run({"run", kSmall, "--layout", "nhwc", "--x", path("x.npy"), "--w", path("w.npy"), "--y",
                path("y.npy"), "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(read_npy(path("y.npy")).shape, (std::vector<std::int64_t>{2, 14, 15, 32}));
}

TEST_F(Command, RunThroughAScaleAndAShift) {
  save("x.npy", {2, 16, 14, 15});
  save("w.npy", {32, 16, 3, 3});
  save("a.npy", {16});
  save("b.npy", {16});
  const std::string problem = kSmall + ":affine_relu";
  Result result = run({"run", problem, "--x", path("x.npy"), "--w", path("w.npy"), "--scale", path("a.npy"),
                       "--shift", path("b.npy"), "--y", path("y.npy"), "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("check: pass: 13440 of 13440 elements"));
  expect_refused({"run", problem, "--x", path("x.npy"), "--w", path("w.npy"), "--scale", path("a.npy"), "--y",
                  path("y.npy")},
                 "needs the tensor shift; give --shift FILE.npy");
  expect_refused({"run", kSmall, "--x", path("x.npy"), "--w", path("w.npy"), "--shift", path("b.npy"), "--y",
                  path("y.npy")},
                 "--shift is given, but fwd:n2c16h14w15k32r3s3:pad1:f32:nchw has no shift; add ':affine'");
  result = run({"explain", problem, "--kernel", "direct_cpu/*"});
  EXPECT_THAT(result.out, HasSubstr("steps: scale and shift, direct"));
}

TEST_F(Command, RunOfOneAndThreeDimensions) {
  save("x.npy", {2, 5, 4, 3, 6});
  save("w.npy", {7, 3, 2, 1, 6});
  Result result = run({"run", "n2c6d5h4w3k7t3r2s1:pad1x0x0:nhwc", "--x", path("x.npy"), "--w", path("w.npy"),
                       "--y", path("y.npy"), "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(read_npy(path("y.npy")).shape, (std::vector<std::int64_t>{2, 5, 3, 3, 7}));

  save("x.npy", {2, 6, 9});
  save("w.npy", {6, 4, 3});  // c k s
  result = run({"run", "n2c6w9k4s3:transposed:st2:outpad1", "--x", path("x.npy"), "--w", path("w.npy"), "--y",
                path("y.npy"), "--check"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(read_npy(path("y.npy")).shape, (std::vector<std::int64_t>{2, 4, 20}));
}

// A driver's line without quotes, a list by its name, a table that bench wrote.
TEST_F(Command, ProblemsAsPeopleHaveThem) {
  Result result = run({"explain", "--csv", path("out.csv"), "MIOpenDriver", "conv", "-n", "2", "-c", "8",
                       "-k", "8", "-p", "1", "-q", "1", "-F", "1"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(rows(read(path("out.csv"))).at(0).at("problem"), "fwd:n2c8h32w32k8r3s3:pad1:f32:nchw");
  result = run({"explain", "--suite", path("out.csv")});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("fwd:n2c8h32w32k8r3s3:pad1:f32:nchw"));
  result = run({"explain", "--suite", "lux_relu", "--batch", "1"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lux256_p1"));
  expect_refused({"explain", "--suite", "resnet5"}, "no file and no list 'resnet5'; the nearest is resnet50");
}

TEST_F(Command, RunRefusesFilesThatDoNotFit) {
  save("x.npy", {2, 16, 14, 15});
  save("w.npy", {32, 16, 3, 3});
  save("short.npy", {2, 16, 14, 14});
  write(path("text.npy"), "no array");
  const std::string whole = read(path("x.npy"));
  write(path("cut.npy"), whole.substr(0, whole.size() - 5));
  const Words w{"--w", path("w.npy")}, y{"--y", path("y.npy")};
  const Words problem{"run", kSmall};
  expect_refused(problem + w + y, "give --x FILE.npy");
  expect_refused(problem + w + Words{"--x", path("x.npy")}, "give --y FILE.npy");
  expect_refused(problem + w + y + Words{"--x", path("none.npy")}, "none.npy");
  expect_refused(problem + w + y + Words{"--x", path("short.npy")}, "(2, 16, 14, 15)");
  expect_refused(problem + w + y + Words{"--x", path("cut.npy")}, "truncated");
  expect_refused(problem + w + y + Words{"--x", path("text.npy")}, "text.npy");
  expect_refused(problem + w + y + Words{"--x", path("x.npy"), "--dtype", "f16"}, "must be f16");
  expect_refused(problem + w + y + Words{"--x", path("x.npy"), "--bias", path("x.npy")}, "has no bias");
  expect_refused(problem + w + Words{"--x", path("x.npy"), "--y", path("none/y.npy")}, "cannot be written");
  expect_refused(
      Words{"run", kSmall + ":stats"} + w + y + Words{"--x", path("x.npy"), "--sums", path("./y.npy")},
      "--y " + path("y.npy") + " and --sums " + path("./y.npy") + " are one file");
  EXPECT_FALSE(std::filesystem::exists(path("y.npy")));
}

TEST_F(Command, BadProblems) {
  const std::pair<const char*, const char*> cases[] = {
      {"n0c4h8w8k4r3s3", "n is 0"},
      {"n1c4h8w8k4r3s-3", "s"},
      {"n1c4h8w8k4r9s9", "larger than the padded input"},
      {"n1c4h8w8k4r3s3:g3", "does not divide"},
      {"n99999999999999999999c4h8w8k4r3s3", "n"},
      {"n1099511627776c1099511627776h8w8k4r3s3", "2^56"},
      {"n1c4h8w8k4r3s3:fp32", "f32"},
      {"n1c4h8w8k4r3s3:nhcw", "nchw"},
      {"n1c4h8w8k4r3s3:rleu", "relu"},
      {"n1c4h8w8k4r3s3:f16:math=tf32", "math"},
      {"bwd_d:n1c4h8w8k4r3s3:relu", "fwd"},
      {"bwd_d:n1c4h8w8k4r3s3:affine", "affine goes with fwd and bwd_w"},
      {"n1c4h8w8k4r3s3:affine_gelu", "write affine_relu"},
      {"n1c4d8h8w8k4r3s3", "size t is missing; the sizes of three dimensions"},
      {"n1c4h8w8k4r3s3:transposed:st2:outpad2", "output padding of h of 2 is not smaller than the stride 2"},
      {"n1c4h1w1k4r1s1:transposed:pad1", "has an output of -1; pad less"},
      {"", "problem"},
  };
  for (const auto& [problem, message] : cases) {
    expect_refused({"bench", problem}, message);
    expect_refused({"explain", problem}, message);
  }
}

TEST_F(Command, BadOptions) {
  expect_refused({}, "faltung bench");
  expect_refused({"benhc"}, "nearest is bench");
  expect_refused({"store"}, "list, export, import or clear");
  expect_refused({"store", "lst"}, "nearest is list");
  expect_refused({"store", "clear", "quarantin"}, "nearest is quarantine");
  expect_refused({"store", "export"}, "FILE is missing, see faltung store export --help");
  expect_refused({"compilers", kSmall}, "--with COMPILER is missing");
  for (const char* option : {"--threads", "--workspace", "--device"})
    expect_refused({"compilers", kSmall, "--with", "clang:gfx1030", option, "1"}, option);
  expect_refused({"bench"}, "no problem is given");
  expect_refused({"bench", "--lyout", "nhwc"}, "nearest is --layout");
  expect_refused({"devices", "cpu"}, "no argument 'cpu'");
  expect_refused({"bench", kSmall, "--layout", "nhcw"}, "nearest is nchw");
  expect_refused({"bench", kSmall, "--dtype", "fp16"}, "it is called f16");
  expect_refused({"bench", kSmall, "--dir", "backward"}, "--dir");
  expect_refused({"bench", kSmall, "--math", "fp32"}, "--math");
  expect_refused({"bench", kSmall, "--epilogue", "bias,rleu"}, "relu");
  expect_refused({"bench", kSmall, "--kernel", "winogradcpu/f4x4"}, "nearest is winograd_cpu");
  expect_refused({"bench", kSmall, "--device", "cuda:7"}, "no device 'cuda:7'");
  expect_refused({"find", kSmall, "--device", "nki:trn2"}, "faltung: nki:trn2 runs nothing here");
  expect_refused({"bench", kSmall, "--vs", "onedn"}, "no peer 'onedn'");
  expect_refused({"bench", kSmall, "--batch", "0"}, "--batch");
  expect_refused({"bench", kSmall, "--batch", "4x"}, "--batch");
  expect_refused({"bench", kSmall, "--threads", "-1"}, "--threads");
  expect_refused({"bench", kSmall, "--threads", "99999"}, "--threads: 99999 is more than 4096");
  expect_refused({"devices", "--threads", "99999"}, "--threads: 99999 is more than 4096");
  for (const char* command : {"explain", "find", "prepare"})
    expect_refused({command, kSmall, "--seed", "2"}, "--seed");
  expect_refused({"bench", kSmall, "--workspace", "1Q"}, "64M");
  expect_refused({"bench", kSmall, "--repeat", "0"}, "--repeat: '0' is no whole number from 1 to 1000");
  expect_refused({"bench", kSmall, "--repeat", "2.5"}, "--repeat: '2.5' is no whole number from 1 to 1000");
  for (const std::string seed : {"-1", "seven", "0x10", "", "18446744073709551616"})
    expect_refused({"verify", kSmall, "--seed", seed},
                   "--seed: '" + seed + "' is no whole number from 0 to ");
  expect_refused({"explain", kSmall, "--device", "nki:trn1", "--threads", "two"}, "--threads: 'two'");
  expect_refused({"find", kSmall, "--budget", "soon"}, "500ms");
  expect_refused({"bench", "--suite", path("none.csv")}, "none.csv");
  expect_refused(
      {"bench", "--suite", FALTUNG_SOURCE_DIR "/workloads/lux_relu.csv", "--epilogue", "maxpool99"},
      "row lux32_p0 of lux_relu");
  expect_refused({"bench", kSmall, "--csv", path("none/out.csv")}, "cannot be written");
  expect_refused({"bench", kSmall, "--csv", "-", "--json", "-"}, "standard output");
  expect_refused({"explain", kSmall, "--csv", path("one"), "--json", path("./one")}, "are one file");
  expect_refused({"store", "import", path("none.json")}, "none.json");
  expect_refused({"store", "export", path("x"), "--lock", "trials"}, "--lock exports every choice");
  expect_refused({"store", "export", path("x"), "--lock", "--kernel", "direct*"},
                 "--lock exports every choice");
  expect_refused({"store", "export", path("x"), "--lock", "--verdicts"}, "--lock exports every choice");
  expect_refused({"store", "export", path("x"), "--verdicts", "trials"}, "leave it or KIND out");
  expect_refused({"store", "export", path("x"), "--nondeterministic"}, "give both");
  write(path("not.json"), "{");
  expect_refused({"store", "import", path("not.json")}, "not.json");
}

TEST_F(Command, WhereNoKernelIsLeftEachSaysWhy) {
  for (const char* command : {"bench", "verify", "explain", "find"}) {
    const Result result = run({command, kSmall, "--skip", "*", "--csv", path("out.csv")});
    EXPECT_EQ(result.exit, 2) << command;
    EXPECT_THAT(result.err, StartsWith("faltung: no kernel may compute")) << command;
    EXPECT_THAT(result.err, HasSubstr("; reference_cpu skipped: by the kernel patterns given")) << command;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(Command, APatternMayBeAListWithCommas) {
  const auto skipped = [&](const Words& words) {
    Words names;
    for (const auto& row : rows(run(Words{"explain", kSmall, "--csv", "-"} + words).out)) {
      if (row.at("verdict") == "skipped") names.push_back(row.at("kernel"));
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  EXPECT_EQ(skipped({"--skip", "winograd*, direct*"}), skipped({"--skip", "winograd*", "--skip", "direct*"}));
  EXPECT_THAT(skipped({"--skip", "winograd*,direct*"}), testing::ElementsAre("direct_cpu", "winograd_cpu"));
  expect_refused({"compilers", kSmall, "--with", "nvrtc:sm_80", "--kernel", "wingrad*"},
                 "the nearest is winograd_");
}

TEST_F(Command, AFolderForTemporariesThatIsNotThereIsNamed) {
  environment_["TMPDIR"] = path("nothing");
  expect_refused({"compilers", kSmall, "--with", "nvrtc:sm_80"},
                 "cannot write " + path("nothing") + "/faltung-");
}

TEST_F(Command, ADeviceThatIsNotHereSaysWhatItNeeds) {
  environment_["OCL_ICD_VENDORS"] = "/nonexistent";
  expect_refused({"explain", kSmall, "--device", "opencl:0"}, "no device 'opencl:0' here; there is cpu");
  expect_refused({"explain", kSmall, "--device", "opencl:0"}, "OpenCL needs libOpenCL.so.1 and a driver's");
}

// No kernel's fault: one line about the tensors, and not the code for a wrong result.
TEST_F(Command, WhatFitsIntoNoMemoryIsSaidOnce) {
  const Result result = run({"verify", "n99999999c64h56w56k64r3s3:pad1"});
  EXPECT_EQ(result.exit, 2);
  EXPECT_THAT(result.err, HasSubstr("of memory in all; use a smaller --batch"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(Command, HelpVersionAndDevices) {
  EXPECT_THAT(run({"--version"}).out, StartsWith("faltung 0."));
  for (const char* command : {"bench", "find", "explain", "verify", "run", "devices", "store"}) {
    const Result result = run({command, "--help"});
    EXPECT_EQ(result.exit, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Usage: faltung ")) << command;
  }
  const Result result = run({"devices", "--json", "-"});
  ASSERT_EQ(result.exit, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at(0).at("device"), "cpu");
  EXPECT_GT(json.at(0).at("f32_gflops"), 0);
  EXPECT_GT(json.at(0).at("copy_gbps"), 0);
}

}  // namespace
}  // namespace faltung
