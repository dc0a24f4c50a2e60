// The HIP backend and the road from devices to find and doctor, on AMD's driver and compiler as the tests
// have them (tests/fake_hip): on the emulator, a "gfx942" and a "gfx1100". Without clang-19 and ROCm's device
// library nothing of it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/backend/hip.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/backend/stream_device.hpp"
#include "src/finder/records.hpp"
#include "tests/backend_checks.hpp"
#include "tests/trust_helpers.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

// Why clang cannot compile for the chips; empty where it can.
const std::string& no_compiler() {
  static const std::string why = []() -> std::string {
    try {
      make_offline_compiler("clang-hip:gfx942");
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return why;
}

// This process has the driver for its own: named, not found.
[[gnu::constructor]] void name_the_driver() {
  setenv("FALTUNG_HIP", FALTUNG_FAKE_HIP "/libamdhip64.so", 1);
  setenv("FALTUNG_HIPRTC", FALTUNG_FAKE_HIP "/libhiprtc.so", 1);
  setenv("FAKE_HIP", "gfx942,gfx1100", 1);
}

constexpr const char* kAdd = R"(
extern "C" __attribute__((global)) void add(const float* x, float* y, float a, int count) {
  const int i = (int)(__builtin_amdgcn_workgroup_id_x() * 16 + __builtin_amdgcn_workitem_id_x());
  if (i < count) y[i] = x[i] + a * FACTOR;
}
)";

class Hip : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!no_compiler().empty()) GTEST_SKIP() << no_compiler();
    for (const auto& device : list_devices()) {
      if (device->info().id == "hip:" + std::to_string(GetParam()))
        device_ = std::dynamic_pointer_cast<StreamDevice>(device);
    }
    ASSERT_NE(device_, nullptr) << hip_missing();
  }
  KernelSource add_source() const { return {"add", kAdd, "add", {"-DFACTOR=2"}}; }
  std::shared_ptr<Kernel> add_kernel() { return device_->load(device_->compile(add_source()), add_source()); }

  std::shared_ptr<StreamDevice> device_;
};

TEST_P(Hip, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  const bool cdna = GetParam() == 0;
  EXPECT_EQ(info.description,
            cdna ? "AMD Emulated 0, gfx942" : "AMD Emulated 1, gfx1100");  // where HIP 6 has the name
  EXPECT_EQ(info.driver, "HIP 6.2.41134, hipRTC 6.2");
  EXPECT_EQ(info.dialect, "hip");
  EXPECT_EQ(info.unit.wave_threads, cdna ? 64 : 32);
  EXPECT_TRUE(info.has(cdna ? "mfma" : "wmma"));
  EXPECT_TRUE(info.has("hiprtc"));
  EXPECT_EQ(info.block_threads, 1024);
  EXPECT_EQ(info.local_bytes, 64u << 10);
  EXPECT_THAT(info.key, HasSubstr("gfx"));
  EXPECT_EQ(info.key.find(' '), std::string::npos);
}

TEST_P(Hip, RunsAKernelInTheMiddleOfBuffers) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  EXPECT_GT(expect_run_in_the_middle_of_buffers(*device_, *kernel), 0);
}

TEST_P(Hip, SaysWhatAKernelTakes) {
  const KernelResources r = device_->resources(*add_kernel(), add_source());
  EXPECT_GT(r.registers, 0);
  EXPECT_EQ(r.spilled_bytes, 0);
  EXPECT_GT(r.blocks, 0);
  EXPECT_FALSE(r.limited_by.empty());
}

TEST_P(Hip, AGraphRunsWhatWasRecordedAndAsOftenAsItIsSubmitted) {
  const Buffer y = device_->allocate(64);
  const float one = 1;
  device_->copy_in(y, &one, 4);
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const auto recording = device_->record([&](const Stream& stream) {
    EXPECT_TRUE(device_->is_capturing(stream));
    for (int i = 0; i < 2; ++i)
      device_->launch(*kernel, blocks_of_16(16), {y.pointer, y.pointer, 1.5f, 1}, stream);
  });
  EXPECT_EQ(read_floats(*device_, y, 1)[0], 1) << "it ran while it was recorded";
  EXPECT_FALSE(device_->is_capturing({}));
  dynamic_cast<StreamGraph&>(*recording).submit({});
  device_->synchronize({});
  EXPECT_EQ(read_floats(*device_, y, 1)[0], 7);
  EXPECT_GT(recording->time_ms(), 0);
  EXPECT_EQ(read_floats(*device_, y, 1)[0], 13);
}

TEST_P(Hip, WhatIsNoMemoryOfItsIsRefused) {
  const Buffer own = device_->allocate(64);
  EXPECT_NO_THROW(device_->check_address(static_cast<char*>(own.pointer) + 60, "x"));
  float host = 0;
  const std::string other = GetParam() == 0 ? "hip:1" : "hip:0";
  const Buffer others = find_device(other)->allocate(64);
  for (const auto& [address, part] :
       {std::pair<const void*, std::string>{&host, "hipMalloc"}, {others.pointer, "memory of " + other}}) {
    try {
      device_->check_address(address, "the input x");
      FAIL() << "it is taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem);
      EXPECT_THAT(error.what(), HasSubstr("the input x"));
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

TEST_P(Hip, CompilesOnceAProcessAndAfterItNever) { expect_compiled_once(*device_, add_source()); }

TEST_P(Hip, ACompileErrorNamesTheKernelItsConstantsAndTheLog) {
  expect_compile_error_in_words(*device_, add_source(), {"hipRTC 6.2", "undeclared identifier"});
}

TEST_P(Hip, DamagedCodeIsAnErrorNotACrash) {
  expect_damaged_code_is_an_error(*device_, add_source());
  const Binary whole = device_->compile(add_source());
  EXPECT_THROW(device_->load({whole.code.substr(0, whole.code.size() / 2), "", 0}, add_source()), Error);
}

TEST_P(Hip, MoreMemoryThanThereIsIsAnError) { expect_too_much_memory_is_an_error(*device_); }

INSTANTIATE_TEST_SUITE_P(Chips, Hip, testing::Values(0, 1), [](const auto& param) {
  return std::string(param.param == 0 ? "gfx942" : "gfx1100");
});

// Programs that find the driver as they find ROCm's.
class HipRoad : public testing::Test {
 protected:
  void SetUp() override {
    if (!no_compiler().empty()) GTEST_SKIP() << no_compiler();
    for (const char* mine : {"FALTUNG_HIP", "FALTUNG_HIPRTC", "FAKE_HIP"}) unsetenv(mine);
    setenv("LD_LIBRARY_PATH", FALTUNG_FAKE_HIP, 1);
    setenv("OCL_ICD_VENDORS", "/nowhere", 1);
  }
  void TearDown() override { name_the_driver(); }
  TrustPrograms programs_;
  const std::string problem_ = "fwd:n1c8h9w10k16r3s3:pad1";
};

TEST_F(HipRoad, PlansAreRightOnBothChips) {
  programs_.set("FAKE_HIP", "gfx942,gfx1100");
  EXPECT_EQ(programs_.run({"devices"})["gpus"], (nlohmann::json{"hip:0", "hip:1"}));
  const std::string matrix = "fwd:n1c32h9w10k40r3s3:pad1:f16:nhwc:bias:relu";
  programs_.set("FALTUNG_ONLY", "implicit_gemm_matrix_gpu,direct_gpu");
  for (const char* device : {"hip:0", "hip:1"}) {
    const auto done = programs_.run({"plan", device, matrix});
    EXPECT_TRUE(done.value("right", false)) << done;
    EXPECT_THAT(done.value("kernel", ""), HasSubstr("implicit_gemm_matrix_gpu/"));
    EXPECT_EQ(done["warnings"].size(), 0u) << done;
  }
  EXPECT_EQ(programs_.records(kVerified).size(), 2u);
  programs_.expect_nothing_left_behind();
}

TEST_F(HipRoad, FaultsAreCaught) {
  programs_.set("FALTUNG_ONLY", "faulty_gpu,direct_gpu");
  expect_caught(programs_, "hip:0", "one_wrong", Outcome::wrong, 100);
  expect_caught(programs_, "hip:0", "does_not_compile", Outcome::compile_error, 100);
  // The driver ends the process, as ROCm's does.
  expect_caught(programs_, "hip:0", "crash", Outcome::crash, 100);
  programs_.set("FAKE_HIP", "gfx1100");
  expect_caught(programs_, "hip:0", "out_of_bounds", Outcome::out_of_bounds, 100);
}

TEST_F(HipRoad, AHangIsEndedAndTheDeviceWorksAfterIt) {
  programs_.set("FALTUNG_ONLY", "faulty_gpu,direct_gpu");
  programs_.set("FALTUNG_DEADLINE", "3");
  expect_caught(programs_, "hip:0", "hang", Outcome::hang, 60);
  for (const Verdict& verdict : programs_.records(kQuarantine))
    EXPECT_THAT(verdict.report.why, HasSubstr("the device works again in a new process"));
}

TEST_F(HipRoad, FindMeasures) {
  // What the device reaches at best, which the emulator would take minutes to measure.
  name_the_driver();
  Store store(programs_.store());
  save_ceilings(store, find_device("hip:0")->info(), 1, {{1}, {1}, {1}, {1}, 1});
  unsetenv("FALTUNG_HIP"), unsetenv("FALTUNG_HIPRTC");
  programs_.set("FALTUNG_ONLY", "direct_gpu");
  const auto found = programs_.run({"find", "hip:0", problem_});
  EXPECT_TRUE(found.value("right", false)) << found;
  EXPECT_EQ(found["warnings"].size(), 0u) << found;
  EXPECT_FALSE(programs_.records(kVerified).empty());
  EXPECT_FALSE(Store(programs_.store()).list(kTrials).empty());
}

#ifdef FALTUNG_FAULTY_COMMAND  // where the tools are built
// The command with a broken kernel in its registry: what doctor's report then says of it and of one that is
// right.
class HipDoctor : public HipRoad {
 protected:
  // What doctor reports after the first problem, or a few: each takes the emulator about as long as the whole
  // budget. deadline: of a run, in seconds.
  nlohmann::json examine(const std::string& fault, const std::string& deadline) {
    for (const auto& [name, value] : {std::pair{"FALTUNG_FAULT", fault},
                                      {"FAKE_HIP", "gfx942,gfx1100"},
                                      {"FALTUNG_DEADLINE", deadline}}) {
      command_.set(name, value);
    }
    const TrustPrograms::Ended ended =
        command_.command({"doctor", "--device", "hip:1", "--kernel", "faulty_gpu", "--budget", "1s",
                          "--report", command_.path("report")});
    EXPECT_EQ(ended.exit, 1) << ended.out << ended.err;
    command_.expect_nothing_left_behind();
    const auto report = nlohmann::json::parse(TrustPrograms::read(command_.path("report.json")));
    EXPECT_EQ(report["devices"].size(), 1u);
    return report["devices"].at(0);
  }
  TrustPrograms command_{FALTUNG_FAULTY_COMMAND};
};

TEST_F(HipDoctor, EndsAKernelThatHangs) {
  const nlohmann::json device = examine("hang", "3");
  EXPECT_EQ(device["device"], "hip:1");
  EXPECT_THAT(device.dump(), HasSubstr("gfx1100"));
  EXPECT_EQ(device["matrix"]["faulty_gpu"]["hang"], 1) << device;
  EXPECT_EQ(device["skip"], "faulty_gpu");
  ASSERT_EQ(command_.records(kQuarantine).size(), 1u);
  EXPECT_THAT(command_.records(kQuarantine)[0].report.why,
              HasSubstr("the device works again in a new process"));
}

TEST_F(HipDoctor, NamesAKernelThatIsWrong) {
  const nlohmann::json device = examine("one_wrong", "100");
  const std::size_t wrong = device["matrix"]["faulty_gpu"]["wrong"];
  EXPECT_GE(wrong, 1u) << device;
  EXPECT_FALSE(device["matrix"]["faulty_gpu"].contains("pass")) << device;
  EXPECT_EQ(device["skip"], "faulty_gpu");
  EXPECT_EQ(command_.records(kQuarantine).size(), wrong);
  EXPECT_THAT(device["results"].dump(), HasSubstr("--device hip:1"));
}
#endif

TEST_F(HipRoad, AChipThatNoTableHasIsServed) {
  programs_.set("FAKE_HIP", "gfx1030:gfx9999");
  programs_.set("FALTUNG_ONLY", "direct_gpu");
  const auto done = programs_.run({"plan", "hip:0", problem_});
  EXPECT_TRUE(done.value("right", false)) << done;
  EXPECT_EQ(done["warnings"].size(), 0u) << done;
}

TEST_F(HipRoad, TooLittleLocalMemoryLeavesTheKernelsThatFit) {
  programs_.set("FAKE_HIP", "gfx1100");
  const std::string problem = "n1c32h9w10k40r3s3:pad1:f16:nhwc";
  // Just what two kernels' tiles fill, but for where a block is; then too little for any tile.
  for (const char* bytes : {"16384", "4096"}) {
    programs_.set("FAKE_HIP_LOCAL_BYTES", bytes);
    const auto done = programs_.run({"plan", "hip:0", "fwd:" + problem});
    EXPECT_TRUE(done.value("right", false)) << done;
    EXPECT_EQ(done["warnings"].size(), 0u) << done;
  }
  EXPECT_TRUE(programs_.records(kQuarantine).empty()) << "a kernel was tried that does not fit";
  programs_.set("FALTUNG_ONLY", "implicit_gemm_matrix_gpu");
  for (const std::string direction : {"fwd:", "bwd_d:", "bwd_w:"}) {
    const std::string said = programs_.run({"plan", "hip:0", direction + problem}).value("error", "");
    EXPECT_THAT(
        said,
        HasSubstr(
            "implicit_gemm_matrix_gpu declined: a block has 1024 threads and 4096 bytes of local memory, "
            "too few for any tile"));
  }
}

// A compiler that makes waves of another width than the chip's table has.
TEST_F(HipRoad, WavesOfAnotherWidthLeaveTheMatrixUnits) {
  const std::string clang = programs_.path("clang64");
  std::ofstream(clang) << "#!/bin/sh\nexec clang-19 -mwavefrontsize64 \"$@\"\n";
  std::filesystem::permissions(clang, std::filesystem::perms::owner_all);
  programs_.set("FALTUNG_CLANG", clang);
  programs_.set("FAKE_HIP", "gfx1100");
  const std::string problem = "fwd:n1c32h9w10k40r3s3:pad1:f16:nhwc";
  programs_.set("FALTUNG_ONLY", "implicit_gemm_matrix_gpu/bt64x64_wp2x2,direct_gpu");
  const auto done = programs_.run({"plan", "hip:0", problem});
  EXPECT_TRUE(done.value("right", false)) << done;
  EXPECT_THAT(done.value("kernel", ""), HasSubstr("direct_gpu/"));
  const auto quarantine = programs_.records(kQuarantine);
  ASSERT_EQ(quarantine.size(), 1u);
  EXPECT_EQ(quarantine[0].report.outcome, Outcome::compile_error);
  EXPECT_THAT(quarantine[0].report.why, HasSubstr("needs target feature gfx11-insts,wavefrontsize32"));
}

TEST_F(HipRoad, ACompilerThatAbortsIsOneLine) {
  programs_.set("FAKE_HIPRTC", "aborts");
  const auto done = programs_.run({"plan", "hip:0", problem_});
  EXPECT_THAT(done.value("error", ""),
              HasSubstr("no kernel compiles for hip:0: the worker was ended by signal"));
  EXPECT_EQ(done.value("error", "").find('\n'), std::string::npos);
  EXPECT_THAT(done.value("error", ""), HasSubstr("while compiling"));
  EXPECT_EQ(done["warnings"].size(), 0u) << done;
  EXPECT_TRUE(programs_.records(kQuarantine).empty()) << "no kernel is to blame";
  programs_.expect_nothing_left_behind();
}

TEST_F(HipRoad, ADriverWithoutACompilerIsOneLine) {
  const std::string alone = programs_.path("rocm");
  std::filesystem::create_directory(alone);
  std::filesystem::create_symlink(FALTUNG_FAKE_HIP "/libamdhip64.so", alone + "/libamdhip64.so");
  programs_.set("LD_LIBRARY_PATH", alone);
  const auto done = programs_.run({"plan", "hip:0", problem_});
  EXPECT_THAT(done.value("error", ""), HasSubstr("on hip:0: hip:0: no libhiprtc.so.6 on the loader's path"));
  EXPECT_EQ(done.value("error", "").find('\n'), std::string::npos);
  EXPECT_EQ(done["warnings"].size(), 0u) << done;
  EXPECT_TRUE(programs_.records(kQuarantine).empty());
}

TEST_F(HipRoad, WithoutADriverTheLineSaysWhere) {
  programs_.set("FAKE_HIP", ",");
  for (const auto& [variable, value, part] :
       {std::tuple{"FALTUNG_HIP", "/nowhere/libamdhip64.so", "FALTUNG_HIP names /nowhere/libamdhip64.so"},
        {"FALTUNG_HIP", FALTUNG_FAKE_HIP "/libamdhip64.so", "HIP's driver serves no GPU here"},
        {"FALTUNG_HIP", FALTUNG_FAKE_HIP "/libhiprtc.so", "the libamdhip64 found has no hip"}}) {
    programs_.set(variable, value);
    const auto done = programs_.run({"plan", "hip:0", problem_});
    EXPECT_THAT(done.value("error", ""), HasSubstr(part));
    EXPECT_THAT(done.value("error", ""), HasSubstr("no device 'hip:0' here"));
  }
}

}  // namespace
}  // namespace faltung
