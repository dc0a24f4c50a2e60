// Kernels that hang, crash or lie on a GPU (OpenCL drivers for the CPU count): the caller never meets them.
// Every GPU is tested; FALTUNG_TEST_REQUIRE_GPU=1 makes a machine without any a failure.
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
  void expect(const std::string& fault, const std::string& verdict) {
    for (const std::string& id : gpus_) {
      TrustPrograms programs;
      expect_caught(programs, id, fault, verdict, 100);
    }
  }
  const std::vector<std::string> gpus_ = gpus();
};

TEST_F(TrustGpu, Crash) { expect("crash", "crash"); }
TEST_F(TrustGpu, OutOfBounds) { expect("out_of_bounds", "out_of_bounds"); }
TEST_F(TrustGpu, Unwritten) { expect("unwritten", "wrong"); }
TEST_F(TrustGpu, OneElementWrong) { expect("one_wrong", "wrong"); }
TEST_F(TrustGpu, WrongFromTheThreeHundredthLaunch) { expect("wrong_later", "wrong"); }
TEST_F(TrustGpu, TooMuchMemory) { expect("too_much_memory", "out_of_memory"); }
TEST_F(TrustGpu, DoesNotCompile) { expect("does_not_compile", "compile_error"); }

TEST_F(TrustGpu, HangIsEndedAndTheDeviceWorksAfterIt) {
  for (const std::string& id : gpus_) {
    TrustPrograms programs;
    programs.set("FALTUNG_DEADLINE", "3");
    expect_caught(programs, id, "hang", "hang", 60);
    for (const KernelRecord& record : programs.records(kQuarantine)) {
      EXPECT_NE(record.what.find("the device works again in a new process"), std::string::npos)
          << record.what;
    }
  }
}

TEST_F(TrustGpu, HangOnLargeImagesIsMetOnSmallOnes) {
  for (const std::string& id : gpus_) {
    TrustPrograms programs;
    programs.set("FALTUNG_DEADLINE", "3");
    expect_caught(programs, id, "hang_above_42", "hang", 60);
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
  EXPECT_EQ(verified[0].kernel, first["kernel"]);
  EXPECT_TRUE(programs.records(kQuarantine).empty());
  // Without a worker only what was verified before can answer: another size does, another form does not.
  programs.set("FALTUNG_WORKER", "/nowhere");
  const auto larger = programs.run({"plan", gpus_[0], "fwd:n2c8h19w17k16r3s3:pad1"});
  EXPECT_TRUE(larger.value("right", false)) << larger;
  const auto other = programs.run({"plan", gpus_[0], "bwd_d:n1c8h9w10k16r3s3:pad1"});
  EXPECT_NE(other.value("error", "").find("FALTUNG_WORKER"), std::string::npos) << other;
  programs.set("FALTUNG_TRUST", "all");
  EXPECT_NE(programs.run({"plan", gpus_[0], "bwd_d:n1c8h9w10k16r3s3:pad1"}).value("kernel", ""), "");
}

}  // namespace
}  // namespace faltung
