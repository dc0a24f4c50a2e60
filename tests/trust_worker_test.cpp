// The process that tries kernels for another: it is replaced where it dies, outlives the thread that started
// it, and answers each caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/backend/opencl_api.hpp"
#include "src/finder/trust/process.hpp"
#include "src/finder/trust/protocol.hpp"
#include "src/finder/trust/workers.hpp"
#include "src/jit/session.hpp"
#include "tests/error_message.hpp"
#include "tests/fake_device.hpp"
#include "tests/scratch.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

class TrustWorker : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FALTUNG_DEADLINE"); }
  static Report examine(Worker& worker, const Task& task) { return worker.examine(task, Deadlines{}); }
  static Task task() {
    Task t;
    t.kernel = "direct_cpu/rows";
    t.problem = parse_problem("fwd:n1c8h9w10k16r3s3:pad1");
    return t;
  }
  static std::vector<Candidate> candidates_of(const std::string& name, const Problem& problem,
                                              const DeviceInfo& device) {
    for (const auto& algorithm : registry()) {
      if (algorithm->name() == name) return algorithm->offer(problem, {device, 1}).candidates;
    }
    return {};
  }
};

// Of this process.
std::vector<int> own_children() {
  std::vector<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::istringstream stat(TrustPrograms::read(entry.path().string() + "/stat"));
    std::string number, name, state;
    int parent = 0;
    stat >> number >> name >> state >> parent;
    if (parent == ::getpid()) all.push_back(std::stoi(pid));
  }
  return all;
}

TEST_F(TrustWorker, AWorkerThatWasKilledIsReplaced) {
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass);
  for (const int child : own_children()) ::kill(child, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass);
}

// A driver holds memory of the device for each process. Who asks again starts another.
TEST_F(TrustWorker, AWorkerThatIsAskedNothingEnds) {
  LineProcess process({FALTUNG_COMMAND, "worker", "--idle", "300ms"});
  std::string line;
  ASSERT_EQ(process.receive(line, 5e3), LineProcess::Got::line);
  ASSERT_TRUE(process.send(protocol::probe({"cpu", Probe::Part::memory})));
  ASSERT_EQ(process.receive(line, 5e3), LineProcess::Got::line);
  EXPECT_TRUE(protocol::read_reply(line).report);
  EXPECT_EQ(process.receive(line, 5e3), LineProcess::Got::end);
  EXPECT_FALSE(process.send(protocol::probe({"cpu", Probe::Part::memory})));
  EXPECT_EQ(process.end(5e3).code, 0);
}

TEST_F(TrustWorker, AWorkerOutlivesTheThreadThatStartedIt) {
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  std::thread([&] { EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass); }).join();
  std::thread([&] { EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass); }).join();
}

TEST_F(TrustWorker, WhatIsNoWorkerIsSaid) {
  for (const auto& [command, what] : {std::pair{"/bin/true", "does not start"},
                                      {"/nowhere/faltung", "must be the path of the faltung command"},
                                      {"/bin/echo", "of this version"},
                                      {"/bin", "which is no program"}}) {
    Worker worker("cpu", command);
    EXPECT_THAT(error_message([&] { examine(worker, task()); }), HasSubstr(what)) << command;
  }
  ::setenv("FALTUNG_DEADLINE", "soon", 1);
  EXPECT_THAT(error_message([] { Deadlines::of_run(0); }), HasSubstr("must be a number of seconds"));
  ::setenv("FALTUNG_DEADLINE", "3", 1);
  EXPECT_EQ(Deadlines::of_run(0).run, 3000);
  EXPECT_EQ(Deadlines::of_run(7).run, 7);  // the request's own comes first
}

TEST_F(TrustWorker, PlansThatAreMadeTogetherAreExaminedOneByOne) {
  Task other = task(), wrong = task();
  other.problem.h = 12;
  wrong.kernel = "direct_cpu/nonsense";
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  worker.compile_ahead({task(), other, wrong}, Deadlines{});
  EXPECT_EQ(examine(worker, other).outcome, Outcome::pass);
  EXPECT_EQ(examine(worker, wrong).outcome, Outcome::declined);
  EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass);
  EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass);
}

TEST_F(TrustWorker, CallersThatComeAtOnceEachGetTheirOwnReport) {
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  const auto ask = [&](int caller) {
    Task own = task();
    own.problem.h = 9 + caller;
    if (caller % 3 == 2) own.kernel = "direct_cpu/nonsense";
    return examine(worker, own).outcome;
  };
  std::vector<Outcome> outcomes(12);
  std::vector<std::thread> callers;
  for (int i = 0; i < 12; ++i)
    callers.emplace_back([&, i] { outcomes[static_cast<std::size_t>(i)] = ask(i); });
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(i)], i % 3 == 2 ? Outcome::declined : Outcome::pass) << i;
  }
}

// Three processes, and no more, whatever comes at once; what is timed is alone.
TEST_F(TrustWorker, SeveralServeCallersThatComeAtOnce) {
  Workers workers("cpu", FALTUNG_TRUST_PROGRAM, 3);
  std::vector<Report> reports(12);
  std::vector<std::thread> callers;
  for (int i = 0; i < 12; ++i) {
    callers.emplace_back([&, i] {
      Task own = task();
      own.problem.h = 9 + i;
      if (i % 3 == 2) own.kernel = "direct_cpu/nonsense";
      if (i % 3 == 1) own.time_ms = 1;
      reports[static_cast<std::size_t>(i)] = workers.examine(own, Deadlines{});
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < 12; ++i) {
    const Report& report = reports[static_cast<std::size_t>(i)];
    EXPECT_EQ(report.outcome, i % 3 == 2 ? Outcome::declined : Outcome::pass) << i;
    EXPECT_EQ(report.ms > 0, i % 3 == 1) << i;
  }
  EXPECT_LE(own_children().size(), 3u);
  EXPECT_GE(own_children().size(), 1u);
}

TEST_F(TrustWorker, AnotherDeviceOfTheSameNameIsRefused) {
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  Task t = task();
  t.device_key = "cpu-of-another-kind";
  EXPECT_THAT(error_message([&] { examine(worker, t); }), HasSubstr("finds another device under cpu"));
  t.device_key = find_device("cpu")->info().key;
  EXPECT_EQ(examine(worker, t).outcome, Outcome::pass);
}

// Some OpenCL loaders cut the list of drivers at its colons, where it stands.
TEST_F(TrustWorker, TheWorkerSeesTheDriversThatTheProgramWasGiven) {
  const auto program = [] {
    ::setenv("OCL_ICD_FILENAMES", "libone.so:libtwo.so", 1);
    opencl::api();
    ::getenv("OCL_ICD_FILENAMES")[9] = '\0';
    LineProcess process({"/usr/bin/env"});
    for (std::string line; process.receive(line, 5e3) == LineProcess::Got::line;) {
      if (line == "OCL_ICD_FILENAMES=libone.so:libtwo.so") ::_exit(0);
    }
    ::_exit(1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a program that has opened no loader yet
  EXPECT_EXIT(program(), testing::ExitedWithCode(0), "");
}

// It waits longer for a processor than its answer may take, beside another that never rests.
TEST_F(TrustWorker, AWorkerThatWaitsForAProcessorIsNotLate) {
  std::ifstream here("/proc/self/schedstat");
  if (!here) GTEST_SKIP() << "this system does not say who waits for a processor";
  LineProcess busy({"/usr/bin/env", "taskset", "-c", "0", "sh", "-c", "echo; while :; do :; done"});
  LineProcess starved({"/usr/bin/env", "taskset", "-c", "0", "nice", "-n", "19", "sh", "-c",
                       "while read -r ran waited slices </proc/self/schedstat; [ $waited -lt 800000000 ]; do "
                       ":; done; echo done"});
  std::string line;
  ASSERT_EQ(busy.receive(line, 5e3), LineProcess::Got::line);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(starved.receive(line, 300), LineProcess::Got::line);
  EXPECT_EQ(line, "done");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  EXPECT_EQ(busy.receive(line, 300), LineProcess::Got::nothing);  // who runs and says nothing is late
}

TEST_F(TrustWorker, TimesAndVerifiesInOne) {
  Task t = task();
  t.time_ms = 5;
  t.launches = 20;
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  const Report r = examine(worker, t);
  EXPECT_TRUE(passed(r)) << r.why;
  EXPECT_GT(r.ms, 0);
  EXPECT_LE(r.ms_min, r.ms);
  EXPECT_GE(r.error_over_bound, 0);
  t.kernel = "direct_cpu/nonsense";
  EXPECT_EQ(examine(worker, t).outcome, Outcome::declined);
  t.device = "cuda:77";
  EXPECT_THAT(error_message([&] { examine(worker, t); }), HasSubstr("no device 'cuda:77'"));
}

TEST_F(TrustWorker, ATrialAndTheOneAfterItOnALargerProblem) {
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  Task t = task();
  t.next = parse_problem("fwd:n1c8h48w48k16r3s3:pad1");
  EXPECT_EQ(examine(worker, t).outcome, Outcome::pass);
  t.problem = *t.next, t.next.reset();
  EXPECT_EQ(examine(worker, t).outcome, Outcome::pass);
  EXPECT_EQ(examine(worker, task()).outcome, Outcome::pass);
}

// The CPU has no use for it; what is compiled is there all the same.
TEST_F(TrustWorker, CodeIsInTheStoreOfWhatNeedsNoOpenedDevice) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const Scratch scratch;
  Task t = task();
  const std::shared_ptr<Device> compiler = find_device("nvrtc:sm_90a");
  const Candidate candidate = candidates_of("direct_gpu", t.problem, compiler->info()).front();
  t.kernel = candidate.kernel();
  t.store = scratch.path();
  Worker worker("cpu", FALTUNG_TRUST_PROGRAM);
  EXPECT_FALSE(passed(examine(worker, t)));
  EXPECT_TRUE(Store(scratch.path()).list(jit::kCode).empty());
  t.compiler = compiler->info().id, t.units = compiler->info().units;
  EXPECT_FALSE(passed(examine(worker, t)));
  EXPECT_EQ(Store(scratch.path()).list(jit::kCode).size(), program_digests(candidate.recipe()).size());
}

// What its compiler makes unopened is what it asks for.
TEST_F(TrustWorker, ADevicesCompilerIsAskedForTheSamePrograms) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  DeviceInfo compiler = find_device("nvrtc:sm_90a")->info();
  DeviceInfo device = FakeDevice("fake:0", "sm_90a").info();
  device.units = compiler.units = 114;  // as a worker is told
  device.cache_bytes = 50 << 20;
  int compared = 0;
  for (const char* text :
       {"fwd:n23c128h56w56k128r3s3:st2:pad1:f32:nchw", "fwd:n32c256h28w28k512r1s1:f16:nhwc:bias:relu",
        "bwd_w:n32c64h56w56k64r3s3:pad1:f16:nchw", "bwd_d:n32c64h56w56k64r3s3:st2:pad1:bf16:nhwc",
        "fwd:n32c96h56w56k96r3s3:pad1:g96:f16:nhwc"}) {
    const Problem problem = parse_problem(text);
    for (const auto& algorithm : registry()) {
      if (algorithm->device_kind() != "gpu") continue;
      const std::vector<Candidate> all = candidates_of(std::string(algorithm->name()), problem, device);
      for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 3); ++i, ++compared) {
        const Candidate same = find_candidate(all[i].kernel(), problem, {compiler, 1});
        EXPECT_EQ(program_digests(all[i].recipe()), program_digests(same.recipe()))
            << all[i].kernel() << " " << text;
      }
    }
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace faltung
