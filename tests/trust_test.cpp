// A kernel that hangs, crashes or lies never reaches the caller: on the CPU. trust_gpu_test.cpp does the same
// on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "faltung/faltung.h"
#include "src/backend/opencl_api.hpp"
#include "src/finder/finder.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr const char* kProblem = "fwd:n1c8h9w10k16r3s3:pad1";

TEST(Trust, Crash) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "crash", "crash", 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).what,
              testing::AnyOf(HasSubstr("signal 11"), HasSubstr("exit code")));
}
TEST(Trust, OutOfBounds) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "out_of_bounds", "out_of_bounds", 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).what, HasSubstr("past y"));
}
TEST(Trust, Unwritten) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "unwritten", "wrong", 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).what, HasSubstr("nan"));
}
TEST(Trust, OneElementWrong) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "one_wrong", "wrong", 30);
}
TEST(Trust, WrongFromTheThreeHundredthLaunch) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "wrong_later", "wrong", 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).what, HasSubstr("launches"));
}
TEST(Trust, TooMuchMemory) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "too_much_memory", "out_of_memory", 30);
}
TEST(Trust, DoesNotCompile) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "does_not_compile", "compile_error", 30);
}
TEST(Trust, HangIsEnded) {
  TrustPrograms programs;
  programs.set("FALTUNG_DEADLINE", "1");
  expect_caught(programs, "cpu", "hang", "hang", 30);
}

// Asked for 9 x 10 pixels: its trial has to see more of them.
TEST(Trust, HangOnLargeImagesIsMetOnSmallOnes) {
  TrustPrograms programs;
  programs.set("FALTUNG_DEADLINE", "1");
  expect_caught(programs, "cpu", "hang_above_42", "hang", 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).problem, HasSubstr("h48w48"));
}

TEST(Trust, FindMeetsTheSame) {
  for (const auto& [fault, verdict] : {std::pair{"crash", "crash"}, {"wrong_later", "wrong"}}) {
    TrustPrograms programs;
    programs.set("FALTUNG_FAULT", fault);
    const auto found = programs.run({"find", "cpu", kProblem});
    EXPECT_TRUE(found.value("right", false)) << found;
    ASSERT_EQ(found["warnings"].size(), 1u) << found;
    EXPECT_THAT(found["warnings"][0].get<std::string>(), HasSubstr(verdict));
    EXPECT_EQ(programs.records(kQuarantine).size(), 1u);
    programs.expect_nothing_left_behind();
  }
}

TEST(Trust, TrustAllTurnsItOff) {
  TrustPrograms programs;
  programs.set("FALTUNG_FAULT", "one_wrong");
  EXPECT_TRUE(programs.run({"plan", "cpu", kProblem}).value("right", false));
  programs.set("FALTUNG_TRUST", "all");
  const auto careless = programs.run({"plan", "cpu", kProblem});
  EXPECT_EQ(careless.value("kernel", ""), "faulty_cpu/one_wrong");
  EXPECT_FALSE(careless.value("right", true));
  programs.set("FALTUNG_TRUST", "most");
  EXPECT_THAT(programs.run({"plan", "cpu", kProblem}).value("error", ""), HasSubstr("it may be all or none"));
}

TEST(Trust, TrustNoneTriesTheCpusKernelsToo) {
  TrustPrograms programs;
  programs.set("FALTUNG_TRUST", "none");
  EXPECT_TRUE(programs.run({"plan", "cpu", kProblem}).value("right", false));
  EXPECT_FALSE(programs.records(kVerified).empty());
}

// A verdict that came with the package spares the trial; what was seen here counts for more.
TEST(Trust, VerdictsThatAreShippedSpareTheTrial) {
  TrustPrograms maker, user;
  for (TrustPrograms* machine : {&maker, &user}) {
    machine->set("FALTUNG_TRUST", "none");
    machine->set("FALTUNG_FAULT", "one_wrong");
  }
  const auto made = maker.run({"plan", "cpu", kProblem});
  ASSERT_TRUE(made.value("right", false)) << made;
  const std::string shipped = maker.path("shipped.json");
  EXPECT_EQ(Store(maker.store()).export_to(shipped), 2);  // one verified, one in quarantine

  user.set("FALTUNG_KNOWN_DEVICES", shipped);
  user.set("FALTUNG_WORKER", "/nowhere");
  const auto spared = user.run({"plan", "cpu", kProblem});
  EXPECT_TRUE(spared.value("right", false)) << spared;
  EXPECT_EQ(spared["kernel"], made["kernel"]);
  EXPECT_EQ(spared["warnings"].size(), 0u) << spared;
  EXPECT_EQ(user.tried(), std::vector<std::string>{});
  EXPECT_TRUE(user.records(kVerified).empty());

  KernelRecord here = maker.records(kVerified).at(0);
  here.verdict = "wrong";
  Store store(user.store());
  Quarantine(store).file(here, find_device("cpu")->info());
  EXPECT_NE(user.run({"plan", "cpu", kProblem}).value("kernel", ""), made["kernel"]);
}

TEST(Trust, TheShippedVerdictsAreWhole) {
  const Store shipped(FALTUNG_SOURCE_DIR "/share/known_devices.json:readonly");
  for (const Record& record : shipped.list()) {
    EXPECT_THAT(record.kind, testing::AnyOf(kVerified, kQuarantine));
    const auto known = kernel_record(record.payload);
    ASSERT_TRUE(known) << record.key;
    EXPECT_NO_THROW(parse_kernel(known->kernel)) << record.key;
    EXPECT_NO_THROW(parse_problem(known->problem)) << record.key;
    EXPECT_EQ(known->verdict == "pass", record.kind == kVerified) << record.key;
  }
}

TEST(Trust, NothingToStoreInIsNoReasonToUseABadKernel) {
  TrustPrograms programs;
  programs.set("FALTUNG_STORE", "/proc/cannot-be-here");
  programs.set("FALTUNG_FAULT", "one_wrong");
  const auto first = programs.run({"find", "cpu", kProblem});
  EXPECT_TRUE(first.value("right", false)) << first;
}

// The caller dies while its worker is busy with a kernel that does not end.
TEST(Trust, WorkerEndsWithItsCaller) {
  TrustPrograms programs;
  programs.set("FALTUNG_FAULT", "hang");
  const pid_t caller = programs.start({"plan", "cpu", kProblem});
  for (int i = 0; i < 500 && !std::filesystem::exists(programs.log()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(std::filesystem::exists(programs.log()));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  programs.expect_nothing_left_behind();
}

class TrustHere : public testing::Test {
 protected:
  void SetUp() override { ::setenv("FALTUNG_WORKER", FALTUNG_TRUST_PROGRAM, 1); }
  void TearDown() override {
    ::unsetenv("FALTUNG_WORKER");
    ::unsetenv("FALTUNG_DEADLINE");
    ::unsetenv("FALTUNG_KNOWN_DEVICES");
  }
  static Task task() {
    Task t;
    t.kernel =
        "direct_cpu/" +
        find_algorithm("direct_cpu").configs(parse_problem(kProblem), {*find_device("cpu"), 1}).front().name;
    t.problem = parse_problem(kProblem);
    return t;
  }
  static std::string message(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(TrustHere, AWorkerThatWasKilledIsReplaced) {
  Worker worker("cpu");
  EXPECT_EQ(worker.examine(task()).verdict, "pass");
  // Its only child of this process.
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::istringstream stat(TrustPrograms::read(entry.path().string() + "/stat"));
    std::string number, name, state;
    int parent = 0;
    stat >> number >> name >> state >> parent;
    if (parent == ::getpid()) ::kill(std::stoi(pid), SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(worker.examine(task()).verdict, "pass");
}

TEST_F(TrustHere, AWorkerOutlivesTheThreadThatStartedIt) {
  Worker worker("cpu");
  std::thread([&] { EXPECT_EQ(worker.examine(task()).verdict, "pass"); }).join();
  std::thread([&] { EXPECT_EQ(worker.examine(task()).verdict, "pass"); }).join();
}

TEST_F(TrustHere, WhatIsNoWorkerIsSaid) {
  for (const auto& [command, what] : {std::pair{"/bin/true", "does not start"},
                                      {"/nowhere/faltung", "must be the path of the faltung command"},
                                      {"/bin/echo", "of this version"},
                                      {"/bin", "which is no program"}}) {
    ::setenv("FALTUNG_WORKER", command, 1);
    Worker worker("cpu");
    EXPECT_THAT(message([&] { worker.examine(task()); }), HasSubstr(what)) << command;
  }
  ::setenv("FALTUNG_DEADLINE", "soon", 1);
  EXPECT_THAT(message([] { Deadlines::from_environment(); }), HasSubstr("must be a number of seconds"));
}

TEST_F(TrustHere, PlansThatAreMadeTogetherAreExaminedOneByOne) {
  Task other = task(), wrong = task();
  other.problem.h = 12;
  wrong.kernel = "direct_cpu/nonsense";
  Worker worker("cpu");
  worker.compile_ahead({task(), other, wrong});
  EXPECT_EQ(worker.examine(other).verdict, "pass");
  EXPECT_EQ(worker.examine(wrong).verdict, "declined");
  EXPECT_EQ(worker.examine(task()).verdict, "pass");
  EXPECT_EQ(worker.examine(task()).verdict, "pass");
}

TEST_F(TrustHere, AnotherDeviceOfTheSameNameIsRefused) {
  Worker worker("cpu");
  Task t = task();
  t.device_key = "cpu-of-another-kind";
  EXPECT_THAT(message([&] { worker.examine(t); }), HasSubstr("finds another device under cpu"));
  t.device_key = find_device("cpu")->info().key;
  EXPECT_EQ(worker.examine(t).verdict, "pass");
}

// Some OpenCL loaders cut the list of drivers at its colons, where it stands.
TEST_F(TrustHere, TheWorkerSeesTheDriversThatTheProgramWasGiven) {
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

TEST_F(TrustHere, ShippedVerdictsThatCannotBeReadAreSaid) {
  Scratch scratch;
  const std::string file = scratch.path() + "/known.json";
  const auto open = [&] { Engine engine(scratch.path() + "/store"); };
  ::setenv("FALTUNG_KNOWN_DEVICES", file.c_str(), 1);
  EXPECT_THAT(message(open), HasSubstr("which is no file"));
  std::ofstream(file) << "x";
  EXPECT_THAT(message(open), HasSubstr("no export of a store"));
  Store(scratch.path() + "/store").export_to(file);
  EXPECT_EQ(message(open), "no error");
}

TEST_F(TrustHere, TimesAndVerifiesInOne) {
  Task t = task();
  t.time_ms = 5;
  t.launches = 20;
  Worker worker("cpu");
  const Verdict v = worker.examine(t);
  EXPECT_EQ(v.verdict, "pass") << v.what;
  EXPECT_GT(v.timing.median, 0);
  EXPECT_LE(v.timing.min, v.timing.median);
  EXPECT_GE(v.error_over_bound, 0);
  t.kernel = "direct_cpu/nonsense";
  EXPECT_EQ(worker.examine(t).verdict, "declined");
  t.device = "cuda:77";
  EXPECT_THAT(message([&] { worker.examine(t); }), HasSubstr("no device 'cuda:77'"));
}

TEST(QuarantineTest, HoldsForADeviceADriverAndAForm) {
  Scratch scratch;
  Store store(scratch.path());
  Quarantine quarantine(store);
  DeviceInfo device;
  device.id = "opencl:0", device.key = "opencl-x-y", device.driver = "driver 1";
  const Problem problem = parse_problem(kProblem);
  KernelRecord record{"direct_gpu/k1", form_of(problem), "hang",     "no end",        to_string(problem),
                      "opencl:0",      "a GPU",          "driver 1", "faltung verify"};
  quarantine.file(record, device);
  EXPECT_EQ(quarantine.quarantined("direct_gpu/k1", problem, device)->what, "no end");
  EXPECT_FALSE(quarantine.verified("direct_gpu/k1", problem, device));
  EXPECT_FALSE(quarantine.quarantined("direct_gpu/k4", problem, device));
  EXPECT_TRUE(quarantine.quarantined("direct_gpu/k1", parse_problem("fwd:n7c64h44w44k64r5s5"), device));
  EXPECT_FALSE(quarantine.quarantined("direct_gpu/k1", parse_problem("bwd_w:n7c64h44w44k64r5s5"), device));
  EXPECT_FALSE(
      quarantine.quarantined("direct_gpu/k1", parse_problem("fwd:n7c64h44w44k64r5s5:math=tf32"), device));
  device.driver = "driver 2";
  EXPECT_FALSE(quarantine.quarantined("direct_gpu/k1", problem, device));
  device.driver = "driver 1";
  store.clear(kQuarantine);
  EXPECT_FALSE(quarantine.quarantined("direct_gpu/k1", problem, device));
}

TEST(SmallProblem, KeepsWhatAKernelIsCompiledFor) {
  const Target target{*find_device("cpu"), 1};
  const Algorithm& direct = find_algorithm("direct_cpu");
  for (const char* text :
       {"fwd:n32c256h224w224k256r3s3:pad1:bf16:nhwc:bias:relu", "bwd_d:n16c64h512w512k64r5s7:st2:f32",
        "bwd_w:n64c512h7w7k512r1s1:f16:nchw", "fwd:n8c960h44w44k960r5s5:g960:dil2"}) {
    const Problem p = parse_problem(text);
    const std::string config = direct.configs(p, target).front().name;
    const Problem small = small_problem(p, direct, config, target);
    EXPECT_LT(flops(small), 4e7) << to_string(small);
    EXPECT_EQ(form_of(small), form_of(p));
    EXPECT_EQ(std::tie(small.r, small.s, small.stride_h, small.dilation_w),
              std::tie(p.r, p.s, p.stride_h, p.dilation_w));
    EXPECT_EQ(small.epilogue, p.epilogue);
    EXPECT_NO_THROW(validate(small));
  }
  const Problem tiny = parse_problem(kProblem);
  EXPECT_EQ(small_problem(tiny, direct, direct.configs(tiny, target).front().name, target), tiny);
}

TEST(SmallProblem, KeepsWhatIsToBeKept) {
  const Target target{*find_device("cpu"), 1};
  const Algorithm& direct = find_algorithm("direct_cpu");
  const auto small = [&](const char* text, Keep keep) {
    const Problem p = parse_problem(text);
    return to_string(small_problem(p, direct, direct.configs(p, target).front().name, target, keep));
  };
  EXPECT_EQ(small("fwd:n8c64h44w44k64r3s3:pad1", Keep::channels), "fwd:n2c64h11w11k64r3s3:pad1:f32:nchw");
  EXPECT_EQ(small("fwd:n8c64h44w44k64r3s3:pad1", Keep::image), "fwd:n2c8h48w48k16r3s3:pad1:f32:nchw");
  EXPECT_EQ(small("fwd:n8c64h256w256k64r3s3:pad1", Keep::image), "fwd:n2c8h64w64k16r3s3:pad1:f32:nchw");
  EXPECT_EQ(small("fwd:n1c8h9w10k16r3s3:pad1", Keep::image), "fwd:n1c8h48w48k16r3s3:pad1:f32:nchw");
}

// The first plan for a problem that nothing is known of: without a measurement, a compilation or a process.
TEST(Trust, FirstResultOnTheCpuIsQuick) {
  Scratch scratch;
  Engine engine(scratch.path());
  double best = 1e9;
  for (int h = 20; h < 26; ++h) {
    Problem problem = parse_problem("fwd:n1c16h20w20k32r3s3:pad1:f32:nhwc:bias:relu");
    problem.h = h;
    const auto begin = std::chrono::steady_clock::now();
    const Plan plan = engine.plan(problem);
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_LT(best, 50);
}

TEST(Trust, CWarnings) {
  TrustPrograms programs;
  faltung_engine* engine = nullptr;
  ASSERT_EQ(faltung_engine_create("/proc/cannot-be-here", &engine), FALTUNG_OK);
  std::string said;
  ASSERT_EQ(faltung_engine_on_warning(
                engine, [](void* context, const char* line) { *static_cast<std::string*>(context) += line; },
                &said),
            FALTUNG_OK);
  faltung_problem* problem = nullptr;
  ASSERT_EQ(faltung_problem_create(kProblem, &problem), FALTUNG_OK);
  faltung_request request = faltung_request_default();
  request.budget_ms = 1;
  EXPECT_EQ(faltung_find(engine, problem, &request, nullptr), FALTUNG_OK);
  EXPECT_THAT(said, HasSubstr("nothing is stored"));
  EXPECT_EQ(faltung_engine_on_warning(nullptr, nullptr, nullptr), FALTUNG_BAD_PROBLEM);
  faltung_problem_destroy(problem);
  faltung_engine_destroy(engine);
}

}  // namespace
}  // namespace faltung
