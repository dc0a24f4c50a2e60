// A kernel that hangs, crashes or lies never reaches the caller: on the CPU. trust_gpu_test.cpp does the same
// on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "faltung/faltung.h"
#include "src/backend/nvrtc.hpp"
#include "src/finder/engine.hpp"
#include "src/finder/report.hpp"
#include "tests/error_message.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr const char* kProblem = "fwd:n1c8h9w10k16r3s3:pad1";

TEST(Trust, Crash) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "crash", Outcome::crash, 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).report.why,
              testing::AnyOf(HasSubstr("signal 11"), HasSubstr("exit code")));
}
TEST(Trust, OutOfBounds) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "out_of_bounds", Outcome::out_of_bounds, 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).report.why, HasSubstr("past y"));
}
TEST(Trust, Unwritten) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "unwritten", Outcome::wrong, 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).report.why, HasSubstr("nan"));
}
TEST(Trust, OneElementWrong) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "one_wrong", Outcome::wrong, 30);
}
TEST(Trust, WrongFromTheThreeHundredthLaunch) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "wrong_later", Outcome::wrong, 30);
  EXPECT_THAT(programs.records(kQuarantine).at(0).report.why, HasSubstr("launches"));
}
TEST(Trust, TooMuchMemory) {
  TrustPrograms programs;
  expect_caught(programs, "cpu", "too_much_memory", Outcome::too_large, 30);
}
TEST(Trust, HangIsEnded) {
  TrustPrograms programs;
  programs.set("FALTUNG_DEADLINE", "1");
  expect_caught(programs, "cpu", "hang", Outcome::hang, 30);
}

// Asked for 9 x 10 pixels: its trial has to see more of them.
TEST(Trust, HangOnLargeImagesIsMetOnSmallOnes) {
  TrustPrograms programs;
  programs.set("FALTUNG_DEADLINE", "1");
  expect_caught(programs, "cpu", "hang_above_42", Outcome::hang, 30);
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

// Its words, and the right answer of another.
TEST(Trust, WhatThrowsWhileItIsListedOrMadeIsRefused) {
  TrustPrograms listed;
  listed.set("FALTUNG_FAULT", "throws_when_listed");
  const auto explained = listed.run({"explain", "cpu", kProblem});
  bool refused = false;
  for (const auto& report : explained.at("reports")) {
    if (report["kernel"] != "faulty_cpu") continue;
    refused = true;
    EXPECT_EQ(report["outcome"], "declined");
    EXPECT_EQ(report["why"], "it cannot be listed");
  }
  EXPECT_TRUE(refused) << explained;
  for (const char* fault : {"throws_when_listed", "throws_when_made"}) {
    for (const char* what : {"plan", "find"}) {
      SCOPED_TRACE(std::string(fault) + " " + what);
      TrustPrograms programs;
      programs.set("FALTUNG_FAULT", fault);
      const auto done = programs.run({what, "cpu", kProblem});
      EXPECT_TRUE(done.value("right", false)) << done;
      EXPECT_THAT(done.value("kernel", "faulty"), testing::Not(HasSubstr("faulty")));
    }
  }
}

TEST(Trust, FindInWhichEveryCandidateFailsSaysWhy) {
  for (const auto& [fault, words] : {std::pair{"one_wrong", "quarantined: wrong on fwd:"},
                                     {"too_much_above_n2", "too_large: it needs"},
                                     {"throws_when_listed", "declined: it cannot be listed"},
                                     {"throws_when_made", "it cannot be made"}}) {
    TrustPrograms programs;
    programs.set("FALTUNG_FAULT", fault);
    programs.set("FALTUNG_ONLY", "faulty_cpu");
    for (const char* what : {"find", "explain", "plan"}) {
      SCOPED_TRACE(std::string(fault) + " " + what);
      const auto failed = programs.run({what, "cpu", "fwd:n4c64h24w24k64r3s3:pad1"});
      EXPECT_EQ(failed.value("status", -1), static_cast<int>(Status::unsupported)) << failed;
      EXPECT_THAT(failed.value("error", ""), HasSubstr("fwd:n4c64h24w24k64r3s3:pad1:f32:nchw on cpu"));
      EXPECT_THAT(failed.value("error", ""), HasSubstr("faulty_cpu"));
      EXPECT_THAT(failed.value("error", ""), HasSubstr(words));
    }
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
  EXPECT_THAT(programs.run({"plan", "cpu", kProblem}).value("error", ""),
              HasSubstr("it may be tested, all or none"));
}

TEST(Trust, TrustNoneTriesTheCpusKernelsToo) {
  TrustPrograms programs;
  programs.set("FALTUNG_TRUST", "none");
  EXPECT_TRUE(programs.run({"plan", "cpu", kProblem}).value("right", false));
  EXPECT_FALSE(programs.records(kVerified).empty());
}

TEST(Trust, TheLogSaysWhatAFirstPlanWaitsFor) {
  TrustPrograms programs;
  programs.set("FALTUNG_TRUST", "none");
  programs.set("FALTUNG_LOG", "find");
  const std::string first = programs.command({"plan", "cpu", kProblem}).err;
  const auto waits = first.find(" is new on cpu: "), made = first.find(" on cpu, predicted ");
  EXPECT_LT(waits, made) << first;
  ASSERT_NE(made, std::string::npos) << first;
  EXPECT_THAT(programs.command({"plan", "cpu", kProblem}).err, testing::Not(HasSubstr(" is new on ")));
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
  EXPECT_EQ(Store(maker.store()).export_to(shipped), 3);  // one verified, one in quarantine, the CPU's rates

  user.set("FALTUNG_KNOWN_DEVICES", shipped);
  user.set("FALTUNG_WORKER", "/nowhere");
  const auto spared = user.run({"plan", "cpu", kProblem});
  EXPECT_TRUE(spared.value("right", false)) << spared;
  EXPECT_EQ(spared["kernel"], made["kernel"]);
  EXPECT_EQ(spared["warnings"].size(), 0u) << spared;
  EXPECT_EQ(user.tried(), std::vector<std::string>{});
  EXPECT_TRUE(user.records(kVerified).empty());

  Verdict here = maker.records(kVerified).at(0);
  here.report.outcome = Outcome::wrong;
  Store store(user.store());
  const DeviceInfo& device = find_device("cpu")->info();
  const Problem problem = with_math(parse_problem(kProblem));
  const Candidate candidate = find_candidate(here.report.kernel, problem, {device, 1});
  Verdicts(store).file(verdict_key(candidate, problem, device), here);
  EXPECT_NE(user.run({"plan", "cpu", kProblem}).value("kernel", ""), made["kernel"]);
}

// A package's kernel need not be waited for; what was tried here changes no choice, or it would depend on
// what was asked for before.
TEST(Trust, OfKernelsThatTheModelCannotTellApartOneThatIsShippedIsTaken) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const Scratch scratch;
  Request request;
  request.device = "nvrtc:sm_90a";
  const Settled s(parse_problem("fwd:n23c256h14w14k256r3s3:pad1:f32:nchw"), request);
  const auto kernels = [&](const std::string& known) {
    ::setenv("FALTUNG_KNOWN_DEVICES", known.c_str(), 1);
    EngineImpl engine(scratch.path() + "/store");
    ::unsetenv("FALTUNG_KNOWN_DEVICES");
    return engine.candidates(s).candidates;
  };
  const std::vector<Candidate> by_model = kernels("none");
  const double first_ms = by_model.front().cost.ms;
  const auto beyond = std::find_if(by_model.begin(), by_model.end(),
                                   [&](const Candidate& c) { return c.cost.ms > 1.05 * first_ms; });
  ASSERT_GT(beyond - by_model.begin(), 2);
  ASSERT_NE(beyond, by_model.end());
  const Candidate &near = *(beyond - 1), &first = by_model.front();

  const auto pass = [&](Store& store, const Candidate& candidate) {
    Verdict verdict;
    verdict.report = report_of(Outcome::pass, "", candidate.kernel());
    verdict.problem = to_string(s.problem);
    Verdicts(store).file(verdict_key(candidate, s.problem, s.device->info()), verdict);
  };
  const auto first_with = [&](Store& package) {
    const std::string file = scratch.path() + "/known.json";
    package.export_to(file);
    return kernels(file).front().kernel();
  };
  Store package(scratch.path() + "/package"), own(scratch.path() + "/store");
  pass(package, near);
  EXPECT_EQ(first_with(package), first.kernel());  // a device that was never measured is none that is known
  package.clear();
  save_ceilings(package, s.device->info(), s.threads, {});
  pass(package, *beyond);
  EXPECT_EQ(first_with(package), first.kernel());
  pass(package, near);
  EXPECT_EQ(first_with(package), near.kernel());
  pass(own, first);
  EXPECT_EQ(first_with(package), near.kernel());
  pass(package, first);
  EXPECT_EQ(first_with(package), first.kernel());
}

TEST(Trust, WhatIsShippedIsWhole) {
  const Store shipped(FALTUNG_SOURCE_DIR "/share/known_devices.pack:readonly");
  for (const Record& record : shipped.list()) {
    EXPECT_THAT(record.kind, testing::AnyOf(kVerified, kQuarantine, "kernel", "ceilings", "trials"));
    if (record.kind != kVerified && record.kind != kQuarantine) continue;
    const auto known = parse_verdict(record.payload);
    ASSERT_TRUE(known) << record.key;
    EXPECT_NO_THROW(parse_kernel(known->report.kernel)) << record.key;
    EXPECT_NO_THROW(parse_problem(known->problem)) << record.key;
    EXPECT_EQ(passed(known->report), record.kind == kVerified) << record.key;
  }
}

TEST(Trust, ShippedVerdictsThatCannotBeReadAreSaid) {
  Scratch scratch;
  const std::string file = scratch.path() + "/known.json";
  const auto open = [&] { Engine engine(scratch.path() + "/store"); };
  ::setenv("FALTUNG_KNOWN_DEVICES", file.c_str(), 1);
  EXPECT_THAT(error_message(open), HasSubstr("which is no file"));
  std::ofstream(file) << "x";
  EXPECT_THAT(error_message(open), HasSubstr("no export of a store"));
  Store(scratch.path() + "/store").export_to(file);
  EXPECT_EQ(error_message(open), "no error");
  ::unsetenv("FALTUNG_KNOWN_DEVICES");
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
