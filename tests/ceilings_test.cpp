// The rates that results are compared with: measured where there is a device, and compiled for those that are
// not here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/algorithms/ceilings.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/problem/dtype.hpp"
#include "tests/machine_code.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

class Ceiling : public testing::TestWithParam<DType> {
 protected:
  KernelResources resources(const std::string& id) {
    const std::shared_ptr<Device> device = make_offline_compiler(id);
    const KernelSource source = matrix_products(device->info(), GetParam()).whole();
    binary_ = device->compile(source);
    return device->resources(*device->load(binary_, source), source);
  }
  void SetUp() override {
    if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  }
  Binary binary_;
};

TEST_P(Ceiling, HopperMultipliesFromSharedMemoryAndKeepsItsSumsInRegisters) {
  EXPECT_EQ(resources("nvrtc:sm_90a").spilled_bytes, 0) << binary_.log;
  EXPECT_GE(count_instructions(binary_.code, kHgmmaOfShared), 4);
}

TEST_P(Ceiling, OtherChipsWithMatrixUnitsSpillNothing) {
  EXPECT_EQ(resources("nvrtc:sm_80").spilled_bytes, 0) << binary_.log;
}

INSTANTIATE_TEST_SUITE_P(DTypes, Ceiling, testing::Values(DType::f16, DType::bf16, DType::f32),
                         [](const auto& type) { return std::string(faltung::info(type.param).name); });

// Larger units may do more, never nothing.
TEST(Ceilings, EveryDeviceHasThemAll) {
  const Scratch scratch;
  Store store(scratch.path());
  for (const std::shared_ptr<Device>& device : list_devices()) {
    if (device->info().description.find("llvmpipe") != std::string::npos) continue;  // a minute of compiling
    const Ceilings c = measure_ceilings(jit::Session(*device, store), 1);
    for (const double rate : {c.f32.gflops, c.tf32.gflops, c.f16.gflops, c.bf16.gflops, c.copy_gbps}) {
      EXPECT_GT(rate, 0.1) << device->info().id;
    }
    EXPECT_GE(c.tf32.gflops, c.f32.gflops * 0.9) << device->info().id;
    EXPECT_GE(c.f16.gflops, c.f32.gflops * 0.9) << device->info().id;
    if (device->info().kind == "cpu") {
      EXPECT_THAT(c.f32.mhz, testing::AllOf(testing::Gt(100), testing::Lt(10'000)));
    }
  }
}

}  // namespace
}  // namespace faltung
