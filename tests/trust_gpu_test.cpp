// Kernels that hang, crash or lie on a GPU (OpenCL drivers for the CPU count): the caller never meets them.
// Every GPU is tested; FALTUNG_TEST_REQUIRE_GPU=1 makes a machine without any a failure.
#include "src/finder/records.hpp"
#include "tests/tested_devices.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

// As the programs see them: a driver may want what their environment does not have.
std::vector<std::string> gpus() {
  auto ids = TrustPrograms().run({"devices"}).value("gpus", std::vector<std::string>{});
  std::erase_if(ids, [](const std::string& id) { return !is_tested(id); });
  return ids;
}

class TrustGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpus_.empty()) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << "no GPU";
    GTEST_SKIP() << "no GPU, and no OpenCL driver for the CPU";
  }
  void expect(const std::string& fault, Outcome outcome) {
    for (const std::string& id : gpus_) {
      TrustPrograms programs;
      expect_caught(programs, id, fault, outcome, 100);
    }
  }
  const std::vector<std::string> gpus_ = gpus();
};

TEST_F(TrustGpu, Crash) { expect("crash", Outcome::crash); }
TEST_F(TrustGpu, OutOfBounds) { expect("out_of_bounds", Outcome::out_of_bounds); }
TEST_F(TrustGpu, Unwritten) { expect("unwritten", Outcome::wrong); }
TEST_F(TrustGpu, OneElementWrong) { expect("one_wrong", Outcome::wrong); }
TEST_F(TrustGpu, WrongFromTheThreeHundredthLaunch) { expect("wrong_later", Outcome::wrong); }
TEST_F(TrustGpu, TooMuchMemory) { expect("too_much_memory", Outcome::too_large); }
TEST_F(TrustGpu, DoesNotCompile) { expect("does_not_compile", Outcome::compile_error); }

TEST_F(TrustGpu, HangIsEndedAndTheDeviceWorksAfterIt) {
  for (const std::string& id : gpus_) {
    TrustPrograms programs;
    programs.set("FALTUNG_DEADLINE", "3");
    expect_caught(programs, id, "hang", Outcome::hang, 60);
    for (const Verdict& verdict : programs.records(kQuarantine)) {
      EXPECT_NE(verdict.report.why.find("the device works again in a new process"), std::string::npos)
          << verdict.report.why;
    }
  }
}

TEST_F(TrustGpu, HangOnLargeImagesIsMetOnSmallOnes) {
  for (const std::string& id : gpus_) {
    TrustPrograms programs;
    programs.set("FALTUNG_DEADLINE", "3");
    expect_caught(programs, id, "hang_above_42", Outcome::hang, 60);
  }
}

// With time for it, find has its candidates compiled together; one that crashes there is met in its own
// trial.
TEST_F(TrustGpu, FindCompilesTogether) {
  for (const std::string& id : gpus_) {
    for (const std::string fault : {"", "does_not_compile"}) {
      TrustPrograms programs;
      if (!fault.empty()) programs.set("FALTUNG_FAULT", fault);
      const auto found = programs.run({"find", id, "fwd:n1c8h9w10k16r3s3:pad1"});
      EXPECT_TRUE(found.value("right", false)) << found;
      EXPECT_EQ(found["warnings"].size(), fault.empty() ? 0u : 1u) << found;
      EXPECT_FALSE(programs.records(kVerified).empty());
      programs.expect_nothing_left_behind();
    }
  }
}

TEST_F(TrustGpu, OneTrialServesEverySize) {
  TrustPrograms programs;
  const auto first = programs.run({"plan", gpus_[0], "fwd:n1c8h9w10k16r3s3:pad1"});
  ASSERT_TRUE(first.value("right", false)) << first;
  const auto verified = programs.records(kVerified);
  ASSERT_FALSE(verified.empty());
  EXPECT_EQ(verified[0].report.kernel, first["kernel"]);
  EXPECT_TRUE(programs.records(kQuarantine).empty());
  // Without a worker only what was verified before can answer: another size does, another form does not.
  programs.set("FALTUNG_WORKER", "/nowhere");
  const auto larger = programs.run({"plan", gpus_[0], "fwd:n2c8h19w17k16r3s3:pad1"});
  EXPECT_TRUE(larger.value("right", false)) << larger;
  const auto other = programs.run({"plan", gpus_[0], "bwd_d:n1c8h9w10k16r3s3:pad1"});
  EXPECT_NE(other.value("error", "").find("FALTUNG_WORKER"), std::string::npos) << other;
  EXPECT_EQ(other.value("error", "").find('\n'), std::string::npos)
      << "said once, not for every kernel: " << other;
  EXPECT_EQ(other["warnings"].size(), 0u) << other;
  programs.set("FALTUNG_TRUST", "all");
  EXPECT_NE(programs.run({"plan", gpus_[0], "bwd_d:n1c8h9w10k16r3s3:pad1"}).value("kernel", ""), "");
}

// Who asks for the same programs while they are tried waits for that verdict.
TEST_F(TrustGpu, OneTrialServesAllWhoAskAtOnce) {
  TrustPrograms programs;
  programs.set("FALTUNG_FAULT", "one_wrong");
  std::vector<std::string> words{"at_once", gpus_[0]};
  for (int n = 1; n <= 6; ++n) words.push_back("fwd:n" + std::to_string(n) + "c8h9w10k16r3s3:pad1");
  const auto all = programs.run(words);
  EXPECT_TRUE(all.value("right", false)) << all;
  EXPECT_EQ(all["warnings"].size(), 1u) << "of each trial that finds it wrong: " << all;
  programs.expect_nothing_left_behind();
}

// Not the trial of another filter, which runs other programs.
TEST_F(TrustGpu, AFaultOfOneProgramIsCaughtWhereAnotherPassed) {
  const std::string narrow = "fwd:n1c8h9w10k16r3s3:pad1", wide = "fwd:n1c8h9w10k16r5s5:pad2";
  for (const std::string& id : gpus_) {
    nlohmann::json kernels;
    for (const auto& order : {std::vector{narrow, wide}, {wide, narrow}}) {
      TrustPrograms programs;
      programs.set("FALTUNG_FAULT", "one_wrong_in_5x5");
      const auto both = programs.run({"plan", id, order[0], order[1]});
      EXPECT_TRUE(both.value("right", false)) << both;
      EXPECT_EQ(both["kernels"][narrow], "faulty_gpu/one_wrong_in_5x5");
      EXPECT_NE(both["kernels"][wide], "faulty_gpu/one_wrong_in_5x5");
      EXPECT_EQ(both["warnings"].size(), 1u) << both;
      ASSERT_EQ(programs.records(kQuarantine).size(), 1u);
      EXPECT_NE(programs.records(kQuarantine)[0].problem.find("r5s5"), std::string::npos);
      if (kernels.is_null()) kernels = both["kernels"];
      EXPECT_EQ(both["kernels"], kernels);  // whatever was planned before
    }
  }
}

TEST_F(TrustGpu, WhatThrowsWhileItIsListedOrMadeIsRefused) {
  for (const char* fault : {"throws_when_listed", "throws_when_made"}) {
    for (const char* what : {"plan", "find"}) {
      SCOPED_TRACE(std::string(fault) + " " + what);
      TrustPrograms programs;
      programs.set("FALTUNG_FAULT", fault);
      const auto done = programs.run({what, gpus_[0], "fwd:n1c8h9w10k16r3s3:pad1"});
      EXPECT_TRUE(done.value("right", false)) << done;
      EXPECT_EQ(done.value("kernel", "faulty").find("faulty"), std::string::npos) << done;
    }
  }
}

// What the engine and its worker compile and learn is in the engine's store; the default place stays empty.
TEST_F(TrustGpu, AnEnginesOwnStoreHasAllThatIsKept) {
  TrustPrograms programs;
  const std::string own = programs.path("own");
  programs.set("FALTUNG_TEST_ENGINE", own);
  for (const char* what : {"plan", "find"}) {
    const auto done = programs.run({what, gpus_[0], "fwd:n1c8h9w10k16r3s3:pad1"});
    EXPECT_TRUE(done.value("right", false)) << done;
    EXPECT_FALSE(std::filesystem::exists(programs.store())) << what;
  }
  const Store kept(own);
  EXPECT_FALSE(kept.list("kernel").empty());
  EXPECT_FALSE(kept.list(kVerified).empty());
  EXPECT_FALSE(kept.list(kTrials).empty());
}

}  // namespace
}  // namespace faltung
