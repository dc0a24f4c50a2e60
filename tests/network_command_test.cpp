// The faltung network commands: sizes and inputs as they are typed and mistyped, files that are no networks,
// full disks, little memory, interrupts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "src/backend/nvrtc.hpp"
#include "src/problem/npy.hpp"
#include "tests/onnx_writer.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class NetworkCommand : public testing::Test {
 protected:
  struct Ended {
    int exit;  // as the shell has it: 128 and the signal that ended it
    std::string out, err;
  };
  NetworkCommand() {
    onnx::ModelText model;
    model.add_input("x", {-1, 4, -1, -1});
    model.add_constant(onnx::tensor("w", {8, 4, 3, 3}, std::vector<float>(8 * 4 * 9, 0.125f)));
    model.add({"Conv", {"x", "w"}, {"a"}, {{"pads", onnx::Sizes{1, 1, 1, 1}}}, ""});
    model.add({"Relu", {"a"}, {"y"}, {}, ""});
    model.add_output("y");
    model_ = model.bytes();
    write("net.onnx", model_);
    write_npy(path("x.npy"), DType::f32, {2, 4, 6, 5}, std::vector<float>(2 * 4 * 6 * 5, 1.0f).data());
  }
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // A line of the shell's in the folder, in which $network is the command.
  Ended shell(const std::string& line) const {
    const std::string whole = "cd " + scratch_.path() + " && export FALTUNG_STORE=$PWD/store && network='" +
                              FALTUNG_COMMAND + " network' && { " + line + "; } >" + path("out") + " 2>" +
                              path("err");
    const int status = ::system(whole.c_str());
    return {WEXITSTATUS(status), read(path("out")), read(path("err"))};
  }
  // One line that says why.
  void expect_refused(const std::string& words, const std::string& why) const {
    const Ended ended = shell("$network " + words);
    EXPECT_EQ(ended.exit, 2) << words;
    EXPECT_THAT(ended.err, HasSubstr(why)) << words;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << words << "\n" << ended.err;
  }
  const Scratch scratch_;
  std::string model_;
};

TEST_F(NetworkCommand, OpenSizesAreSaidAndComeWithAnInput) {
  expect_refused("run net.onnx", "give a number for each ?: --size x=?x4x?x?, or the input as a file");
  const Ended given = shell("$network run net.onnx --input x=x.npy --output y=y.npy");
  ASSERT_EQ(given.exit, 0) << given.err;
  const NpyArray y = read_npy(path("y.npy"));
  EXPECT_THAT(y.shape, testing::ElementsAre(2, 8, 6, 5));
  float corner = 0;
  std::memcpy(&corner, y.data.data(), sizeof corner);
  EXPECT_EQ(corner, 2.0f);  // 4 channels x 4 taps x 0.125
  // What is said counts, and must be what the file has.
  EXPECT_EQ(shell("$network verify net.onnx --size x=2x4x6x5 --input x=x.npy").exit, 0);
  expect_refused("run net.onnx --size x=2x4x6x7 --input x=x.npy", "x.npy");
}

TEST_F(NetworkCommand, WhatIsMistypedIsNamed) {
  const std::string sized = " --size x=2x4x6x5 ";
  expect_refused("run net.onnx --size x=2x4x6x5 --threads 99999", "--threads: 99999 is more than 4096");
  expect_refused("run net.onnx --size x=2,4,6,5", "sizes are numbers with x between them, as 1x3x640x640");
  expect_refused("run net.onnx --size x=2x4x-1x5", "sizes are numbers with x between them");
  expect_refused("run net.onnx --size x=", "sizes are numbers with x between them");
  expect_refused("run net.onnx --size x=2x4x0x5", "'0' is no whole number of at least 1");
  expect_refused("run net.onnx --size x=2x4x6", "does not fit the network's [?, 4, ?, ?]");
  expect_refused("run net.onnx --size z=2x4x6x5", "there is no such tensor; there are x");
  expect_refused("run net.onnx --input z=x.npy", "there is no such tensor; there are x");
  expect_refused("run net.onnx --input x=nothing.npy", "nothing.npy: cannot be opened");
  expect_refused("run net.onnx --output z=z.npy" + sized, "there is no such tensor; there are y");
  for (const std::string bound : {"x", "nan", "-1", "1e-4foo", "inf"})
    expect_refused("verify net.onnx --bound " + bound + sized, "--bound: '" + bound + "' is not understood");
  expect_refused("run net.onnx --dtype f16" + sized, "on the CPU networks compute in f32");
  expect_refused("run net.onnx --keep-f32 z" + sized, "the network has no tensor 'z' to keep in f32");
  expect_refused("run net.onnx --device gpu" + sized, "no device 'gpu' here");
  expect_refused("run net.onnx --device nki:trn2" + sized, "faltung: nki:trn2 runs nothing here");
  expect_refused("run net.onnx --output y=y.npy --output y=./y.npy" + sized,
                 "--output y=y.npy and --output y=./y.npy are one file");
  EXPECT_FALSE(fs::exists(path("y.npy")));
  expect_refused("rnu net.onnx", "the nearest is run");
}

TEST_F(NetworkCommand, WhatIsNoNetworkIsRefused) {
  for (std::size_t kept = 0; kept < model_.size(); kept += model_.size() / 12 + 1) {
    write("cut.onnx", model_.substr(0, kept));
    expect_refused("run cut.onnx --size x=2x4x6x5", "cut.onnx: ");
  }
  expect_refused("run .", "it is no regular file");
  expect_refused("run /dev/zero", "it is no regular file");
  expect_refused("run nothing.onnx", "No such file");
}

TEST_F(NetworkCommand, WhatCannotBeScheduledIsNamed) {
  onnx::ModelText model;
  model.add_input("x", {1, 4, 6, 5});
  model.add_input("w", {8, 4, 3, 3});
  model.add({"Conv", {"x", "w"}, {"y"}, {}, ""});
  model.add_output("y");
  write("open.onnx", model.bytes());
  expect_refused("run open.onnx",
                 "faltung: 1 node cannot be scheduled: Conv 'y': weights that are not constant");
}

TEST_F(NetworkCommand, AFullDiskIsNoSuccess) {
  expect_refused("run net.onnx --input x=x.npy --output y=/dev/full", "/dev/full: cannot be written");
  for (const std::string command : {"run", "explain", "verify", "bench --min-time 1ms --repeat 1"}) {
    const Ended ended = shell("$network " + command + " net.onnx --size x=2x4x6x5 >/dev/full");
    EXPECT_EQ(ended.exit, 2) << command;
    EXPECT_THAT(ended.err, HasSubstr("No space left")) << command;
  }
}

TEST_F(NetworkCommand, LittleMemoryIsSaid) {
  const Ended ended = shell("ulimit -v 200000; $network verify net.onnx --threads 2 --size x=8x4x1000x1000");
  EXPECT_EQ(ended.exit, 2) << ended.out;
  EXPECT_THAT(ended.err, AnyOf(HasSubstr("out of memory"), HasSubstr("no 128000000 bytes")));
}

TEST_F(NetworkCommand, AnInterruptEndsIt) {
  const Ended ended = shell(
      "timeout -s INT 0.5 $network bench net.onnx --size x=8x4x200x200 --min-time 100s; code=$?; "
      "echo $code; exit $code");
  EXPECT_EQ(ended.exit, 124) << ended.err;  // timeout's own, once the command has ended
}

// Without its library a peer says what it needs, whatever Python is in PATH.
TEST_F(NetworkCommand, APeerThatIsNotThereSaysWhatItNeeds) {
  const std::string peers = FALTUNG_BINARY_DIR "/bench/peers";
  if (!fs::exists(peers)) GTEST_SKIP() << "no peers are built";
  write("python3", "#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n");
  fs::permissions(path("python3"), fs::perms::owner_all);
  const std::string bench = "PATH=$PWD:$PATH FALTUNG_PEER_PATH=" + peers +
                            " $network bench net.onnx --size x=2x4x6x5 --min-time 1ms --vs ";
  for (const std::string peer : {"onnxruntime", "openvino", "torch"}) {
    const Ended ended = shell(bench + peer);
    EXPECT_EQ(ended.exit, 2);
    EXPECT_THAT(ended.err, HasSubstr("faltung-peer-" + peer + ": ")) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("it needs ")) << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("Traceback"))) << ended.err;
  }
}

// A peer that answers with what is in own.npy, and sees our input: its error stands beside ours.
TEST_F(NetworkCommand, VerifyLaysAPeersResultsBesideOurs) {
  write("faltung-peer-copy",
        "#!/usr/bin/env python3\n"
        "import shutil, sys\n"
        "print('peer 1 copy 7', flush=True)\n"
        "for line in sys.stdin:\n"
        "    folder = line.split()[1]\n"
        "    if line.startswith('outputs'):\n"
        "        shutil.copy(folder + '/input0.npy', 'seen.npy')\n"
        "        shutil.copy('own.npy', folder + '/output0.npy')\n"
        "    print('done' if line.startswith('outputs') else 'ready it', flush=True)\n");
  fs::permissions(path("faltung-peer-copy"), fs::perms::owner_all);
  ASSERT_EQ(shell("$network run net.onnx --input x=x.npy --output y=own.npy").exit, 0);
  const std::string verify = "FALTUNG_PEER_PATH=$PWD $network verify net.onnx --input x=x.npy --vs copy";
  Ended ended = shell(verify);
  ASSERT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("0.00e\\+00 +0.00e\\+00 +y +faltung "));
  EXPECT_THAT(ended.out, testing::ContainsRegex("0.00e\\+00 +0.00e\\+00 +y +copy 7"));
  EXPECT_EQ(read(path("seen.npy")).substr(128), read(path("x.npy")).substr(128));
  NpyArray off = read_npy(path("own.npy"));
  const float half = 1;  // where 2 is right, and the largest element is 4.5
  std::memcpy(off.data.data(), &half, sizeof half);
  write_npy(path("own.npy"), off.dtype, off.shape, off.data.data());
  ended = shell(verify);
  EXPECT_EQ(ended.exit, 0) << "ours is right: " << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("2.22e-01 +[0-9.e-]+ +y +copy 7"));
  write("own.npy", "none");
  EXPECT_EQ(shell(verify).exit, 2);
}

// A peer that says what it was asked, and answers with what is in own.npy.
TEST_F(NetworkCommand, BenchTellsAPeerWhatToRunAndBothErrors) {
  write("faltung-peer-own",
        "#!/usr/bin/env python3\n"
        "import shutil, sys\n"
        "print('peer 1 own 7', flush=True)\n"
        "for line in sys.stdin:\n"
        "    verb, rest = line.split(maxsplit=1)\n"
        "    if verb == 'outputs':\n"
        "        shutil.copy('own.npy', rest.strip() + '/output0.npy')\n"
        "    print({'network': 'ready ' + rest.strip(), 'run': 'ms 1000 1000 1000 1'}.get(verb, 'done'), "
        "flush=True)\n");
  fs::permissions(path("faltung-peer-own"), fs::perms::owner_all);
  ASSERT_EQ(shell("$network run net.onnx --input x=x.npy --output y=own.npy").exit, 0);
  const std::string bench =
      "FALTUNG_PEER_PATH=$PWD $network bench net.onnx --input x=x.npy --min-time 1ms --repeat 1 --threads 1 "
      "--math fast --vs own ";
  Ended ended = shell(bench);
  ASSERT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out,
              testing::ContainsRegex("own 7: 1000 ms \\(1000 to 1000\\); threads=1 device=cpu dtype=f32 "
                                     "math=fast model=[^ ]*/net.onnx x=2x4x6x5; ready in [0-9.]+ ms"));
  const std::string error =
      "\nerror (0\\.00e\\+00|[0-9.]+e-0[6-9])";  // --math fast may take what rounds otherwise
  EXPECT_THAT(ended.out, testing::ContainsRegex(error + ", own 7 0\\.00e\\+00: "));
  NpyArray off = read_npy(path("own.npy"));
  const float half = 1;  // where 2 is right, and the largest element is 4.5
  std::memcpy(off.data.data(), &half, sizeof half);
  write_npy(path("own.npy"), off.dtype, off.shape, off.data.data());
  EXPECT_THAT(shell(bench).out, testing::ContainsRegex(error + ", own 7 2\\.22e-01: "));
  EXPECT_THAT(shell(bench + "--no-check").out, Not(HasSubstr("error")));
  write("own.npy", "none");  // ours stands without it
  ended = shell(bench);
  EXPECT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex(error + ": [^\n]*\n[^\n]*output0.npy"));
}

// 1.2e11 products: nobody waits for them who has not asked for it.
TEST_F(NetworkCommand, BenchTellsNoErrorThatTakesLong) {
  onnx::ModelText model;
  model.add_input("x", {1, 16, 1024, 1024});
  model.add_constant(onnx::tensor("w", {256, 16, 5, 5}, std::vector<float>(256 * 16 * 25, 0.125f)));
  model.add({"Conv", {"x", "w"}, {"y"}, {{"strides", onnx::Sizes{1, 1}}}, ""});
  model.add_output("y");
  write("large.onnx", model.bytes());
  const Ended ended = shell("$network bench large.onnx --min-time 1ms --repeat 1");
  ASSERT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("errors are not told: a run in double precision would take some "));
  EXPECT_THAT(ended.out, HasSubstr("--check has it"));
}

// An input, a constant, and an output once more: no step makes them, and they are compared all the same.
TEST_F(NetworkCommand, OutputsThatAreOnlyCopiedAreVerified) {
  onnx::ModelText model;
  model.add_input("x", {2, 3});
  model.add_constant(onnx::tensor("c", {3}, {1.0f, -2.0f, 3.0f}));
  model.add({"Identity", {"x"}, {"y"}, {}, ""});
  for (const char* output : {"x", "y", "c", "c"}) model.add_output(output);
  write("copies.onnx", model.bytes());
  const Ended verified = shell("$network verify copies.onnx");
  EXPECT_EQ(verified.exit, 0) << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("4 tensors against a run in double precision"));
  EXPECT_THAT(verified.out, HasSubstr(": all within 0.0001"));
}

// Elements of 16 bits are drawn as those of 32, and every output is said.
TEST_F(NetworkCommand, RunSaysOutputsOfAnyType) {
  onnx::ModelText model;
  model.add_input("x", {1000}), model.add_input("h", {1000}, 10), model.add_input("b", {1000}, 16);
  model.add({"Cast", {"x"}, {"half"}, {{"to", std::int64_t{10}}}, ""});
  model.add({"Cast", {"x"}, {"whole"}, {{"to", std::int64_t{6}}}, ""});
  model.add({"Cast", {"h"}, {"of_half"}, {{"to", std::int64_t{1}}}, ""});
  model.add({"Cast", {"b"}, {"of_bf16"}, {{"to", std::int64_t{1}}}, ""});
  for (const char* output : {"half", "whole", "of_half", "of_bf16"}) model.add_output(output);
  write("types.onnx", model.bytes());
  const Ended run = shell("$network run types.onnx");
  ASSERT_EQ(run.exit, 0) << run.err;
  for (const std::string name : {"half", "of_half", "of_bf16"})
    EXPECT_THAT(run.out, testing::ContainsRegex(name + " 1000, -[23][.][0-9]+ to [23][.]"));
  EXPECT_THAT(run.out, testing::ContainsRegex("whole 1000, -[23] to [23]"));
}

TEST_F(NetworkCommand, ExplainSaysWhatWasFusedAndWhyNoMore) {
  onnx::ModelText model;
  model.add_input("x", {1, 4, 6, 5});
  model.add_constant(onnx::tensor("w", {4, 4, 1, 1}, std::vector<float>(16, 0.125f)));
  model.add_constant(onnx::tensor("one", {1}, std::vector<float>{1}));
  model.add({"Conv", {"x", "w"}, {"a"}, {}, ""});
  model.add({"Relu", {"a"}, {"b"}, {}, ""});
  model.add({"Add", {"b", "x"}, {"c"}, {}, ""});
  model.add({"Add", {"c", "x"}, {"d"}, {}, ""});
  model.add({"Exp", {"d"}, {"e"}, {}, ""});
  model.add({"Conv", {"e", "w"}, {"f"}, {}, ""});
  model.add({"Exp", {"f"}, {"g"}, {}, ""});
  model.add({"Conv", {"g", "w"}, {"h"}, {}, ""});
  model.add({"Relu", {"h"}, {"i"}, {}, ""});
  model.add({"Sigmoid", {"i"}, {"j"}, {}, ""});
  model.add({"Conv", {"j", "w"}, {"k"}, {}, ""});
  model.add({"Mul", {"k", "k"}, {"y"}, {}, ""});
  model.add_output("y");
  write("fused.onnx", model.bytes());
  const Ended ended = shell("$network explain fused.onnx");
  ASSERT_EQ(ended.exit, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("(with Relu b, Add c; no more: Add d: a second residual)"));
  EXPECT_THAT(ended.out, HasSubstr("Exp e  (with Add d)"));
  EXPECT_THAT(ended.out, HasSubstr("(no more: Exp g: no epilogue has it)"));
  EXPECT_THAT(ended.out, HasSubstr("(with Relu i; no more: Sigmoid j: a second activation)"));
  EXPECT_THAT(ended.out, HasSubstr("(no more: its result is read 2 times)"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("arena [0-9.]+ [KM]?i?B = [0-9]+ bytes, [0-9.]+ of the least "
                                                "that is possible, [0-9]+ bytes"));
}

// An image that comes in nhwc, as a view that is cheap there alone, and leaves in nchw.
TEST_F(NetworkCommand, ExplainSaysWhyAValueIsTurned) {
  onnx::ModelText model;
  model.add_input("x", {1, 64, 64, 16});
  model.add_constant(onnx::tensor("w", {16, 1, 3, 3}, std::vector<float>(16 * 9, 0.125f)));
  model.add({"Transpose", {"x"}, {"a"}, {{"perm", onnx::Sizes{0, 3, 1, 2}}}, ""});
  model.add({"Conv", {"a", "w"}, {"y"}, {{"group", std::int64_t{16}}}, ""});
  model.add_output("y");
  write("turned.onnx", model.bytes());
  const Ended ended = shell("$network explain turned.onnx --threads 1");
  ASSERT_EQ(ended.exit, 0) << ended.err;
  const std::string costs = "\\([0-9.]+ ms in nchw, [0-9.]+ ms in nhwc\\)";
  EXPECT_THAT(
      ended.out,
      AnyOf(
          testing::ContainsRegex("y to nchw  \\(for an output of the network \\(in nchw\\); of Conv y " +
                                 costs + "\\)"),
          testing::ContainsRegex("a to nchw  \\(for Conv y " + costs + "; of Transpose a " + costs + "\\)")))
      << ended.out;
}

// Convolutions, a concatenation, a pool, rows, a product and chains between them.
std::string network_of_many_steps() {
  onnx::ModelText model;
  model.add_input("x", {1, 3, 12, 10});
  const auto constant = [&](const std::string& name, const onnx::Sizes& sizes) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    model.add_constant(onnx::tensor(name, sizes, std::vector<float>(static_cast<std::size_t>(count), 0.25f)));
  };
  constant("w", {8, 3, 3, 3}), constant("v", {8, 8, 1, 1}), constant("b", {8}), constant("u", {16, 5});
  model.add({"Conv", {"x", "w", "b"}, {"a"}, {{"pads", onnx::Sizes{1, 1, 1, 1}}}, ""});
  model.add({"Relu", {"a"}, {"c"}, {}, ""});
  model.add({"Conv", {"c", "v"}, {"d"}, {}, ""});
  model.add({"Exp", {"c"}, {"e"}, {}, ""});
  model.add({"Concat", {"d", "e"}, {"f"}, {{"axis", std::int64_t{1}}}, ""});
  model.add({"MaxPool", {"f"}, {"g"}, {{"kernel_shape", onnx::Sizes{2, 2}}}, ""});
  model.add({"GlobalAveragePool", {"g"}, {"h"}, {}, ""});
  model.add({"Flatten", {"h"}, {"i"}, {}, ""});
  model.add({"MatMul", {"i", "u"}, {"j"}, {}, ""});
  model.add({"Softmax", {"j"}, {"y"}, {{"axis", std::int64_t{-1}}}, ""});
  model.add_output("y");
  return model.bytes();
}

// PoCL stands in for the device: a run has nothing to compile and nothing to try.
TEST_F(NetworkCommand, WhatIsPreparedIsKnown) {
  const std::string pocl = "/etc/OpenCL/vendors/pocl.icd";
  if (!fs::exists(pocl)) GTEST_SKIP() << "PoCL is not here";
  write("many.onnx", network_of_many_steps());
  const auto known = [&] {
    std::set<std::string> files;
    for (const char* kind : {"kernel", "verified"}) {
      for (const auto& file : fs::directory_iterator(path("store/") + kind)) files.insert(file.path());
    }
    return files;
  };
  const std::string on = "export FALTUNG_KNOWN_DEVICES=none OCL_ICD_VENDORS=" + pocl +
                         " FALTUNG_ONLY='direct_gpu*'; $network ",
                    its = " many.onnx --device opencl:0";
  const Ended first = shell(on + "prepare --jobs 2" + its);
  ASSERT_EQ(first.exit, 0) << first.err;
  EXPECT_THAT(first.out, testing::ContainsRegex("2 of 2 problems, [5-9] of [5-9] other programs, "));
  EXPECT_THAT(first.out, HasSubstr(", 2 tried, 0 known, 0 failed"));
  const std::set<std::string> prepared = known();
  const Ended run = shell(on + "run" + its);
  ASSERT_EQ(run.exit, 0) << run.err;
  EXPECT_EQ(known(), prepared);
  const Ended again = shell(on + "prepare" + its);
  EXPECT_THAT(again.out, HasSubstr(", 0 compiled now in 0.0 s of processors, 0 tried, ")) << again.err;
}

TEST_F(NetworkCommand, WhatIsNotHereIsPreparedFor) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  write("many.onnx", network_of_many_steps());
  const std::string prepare = "$network prepare many.onnx --device nvrtc:sm_90a --dtype f16";
  const Ended list = shell(prepare + " --problems");
  ASSERT_EQ(list.exit, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("name,problem\nmany_0,\"fwd:n1c3h12w10k8r3s3:pad1:f16:"));
  const Ended all = shell(prepare);
  ASSERT_EQ(all.exit, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr(", 0 tried, "));
  EXPECT_THAT(all.out, HasSubstr(" known, 0 failed"));
  EXPECT_FALSE(fs::exists(path("store/verified")));
  expect_refused("prepare many.onnx", "the CPU's kernels come compiled, and need no preparation");
}

// A peer whose thread spins all the time, and whose answers are the milliseconds of processor time that it
// took from one answer to the next question: while half a second of ours is timed.
TEST_F(NetworkCommand, APeerStandsStillWhileOursIsTimed) {
  write("faltung-peer-spinner",
        "#!/usr/bin/env python3\n"
        "import sys, threading, time\n"
        "def spin():\n"
        "    while True: pass\n"
        "sys.setswitchinterval(1e-4)\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "print('peer 1 spinner', flush=True)\n"
        "since = time.process_time()\n"
        "for line in sys.stdin:\n"
        "    ms = 1000 * (time.process_time() - since)\n"
        "    print(f'ms {ms} {ms} {ms} 1' if line.startswith('run') else 'ready', '', flush=True)\n"
        "    since = time.process_time()\n");
  fs::permissions(path("faltung-peer-spinner"), fs::perms::owner_all);
  const Ended ended = shell(
      "FALTUNG_PEER_PATH=$PWD $network bench net.onnx --size x=2x4x6x5 --min-time 500ms --repeat 1 --threads "
      "1 "
      "--vs spinner");
  ASSERT_EQ(ended.exit, 0) << ended.err;
  const std::size_t at = ended.out.find("spinner: ");
  ASSERT_NE(at, std::string::npos) << ended.out;
  EXPECT_LT(std::stod(ended.out.substr(at + 9)), 30) << ended.out;
}

TEST_F(NetworkCommand, APeerOfSingleConvolutionsSaysSo) {
  write("faltung-peer-single",
        "#!/bin/sh\necho 'peer 1 single'\nwhile read verb rest; do echo \"failed: unknown request '$verb'\"; "
        "done\n");
  fs::permissions(path("faltung-peer-single"), fs::perms::owner_all);
  const Ended ended =
      shell("FALTUNG_PEER_PATH=$PWD $network bench net.onnx --size x=2x4x6x5 --min-time 1ms --vs single");
  EXPECT_EQ(ended.exit, 2);
  EXPECT_THAT(ended.err, HasSubstr("peer single declines: it runs no networks"));
}

}  // namespace
}  // namespace faltung
