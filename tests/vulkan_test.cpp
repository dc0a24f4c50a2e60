// The Vulkan backend, on the first device that serves it with clspv: in `./dev test` Mesa's lavapipe. Skipped
// where there is none, unless FALTUNG_TEST_REQUIRE_GPU=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>

#include "src/backend/spirv_arguments.hpp"
#include "src/backend/vulkan.hpp"
#include "src/problem/text.hpp"
#include "tests/backend_checks.hpp"
#include "tests/builder.hpp"
#include "tests/registry_problems.hpp"

namespace faltung {
namespace {

using testing::HasSubstr;

constexpr const char* kAdd = R"(
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void add(__global const float* x, ulong skip_x, __global float* y, ulong skip_y, float a, int count) {
  __global const float* from = (__global const float*)((__global const char*)x + skip_x);
  __global float* to = (__global float*)((__global char*)y + skip_y);
  const int i = (int)get_global_id(0);
  if (i < count) to[i] = from[i] + a * FACTOR;
}
)";

class Vulkan : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& device : list_devices()) {
      if (device_ == nullptr && device->info().id.starts_with("vulkan:")) device_ = device;
    }
    if (device_ != nullptr) return;
    if (std::getenv("FALTUNG_TEST_REQUIRE_GPU") != nullptr) FAIL() << vulkan_missing();
    GTEST_SKIP() << vulkan_missing();
  }
  KernelSource add_source() const { return {"add", kAdd, "add", {"-DFACTOR=2"}}; }
  std::shared_ptr<Kernel> add_kernel() { return device_->load(device_->compile(add_source()), add_source()); }

  std::shared_ptr<Device> device_;
};

TEST_F(Vulkan, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, "gpu");
  EXPECT_FALSE(info.description.empty());
  EXPECT_THAT(info.driver, HasSubstr("clspv"));
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
  EXPECT_GE(info.local_bytes, 16u << 10);  // what Vulkan promises
  EXPECT_GE(info.block_threads, 128);
  EXPECT_EQ(info.key.find(' '), std::string::npos);
}

TEST_F(Vulkan, TakesAddressesInTheMiddleOfBuffers) {
  EXPECT_GT(expect_run_in_the_middle_of_buffers(*device_, *add_kernel()), 0);
}

TEST_F(Vulkan, LaunchesSeeWhatWasSubmittedBefore) {
  const Buffer y = device_->allocate(64);
  const float zero = 0;
  device_->copy_in(y, &zero, 4);
  const std::shared_ptr<Kernel> kernel = add_kernel();
  constexpr int kLaunches = 600;  // more than may be in flight
  for (int i = 0; i < kLaunches; ++i)
    device_->launch(*kernel, blocks_of_16(16), {y.pointer, y.pointer, 0.5f, 1}, {});
  EXPECT_EQ(read_floats(*device_, y, 1)[0], kLaunches);
}

TEST_F(Vulkan, CopiesWhatIsLargerThanItsStaging) {
  std::vector<float> there(3 << 20), back(there.size());
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<float>(i);
  const Buffer buffer = device_->allocate(there.size() * 4);
  device_->copy_in(buffer, there.data(), there.size() * 4);
  device_->copy_out(back.data(), buffer, there.size() * 4);
  EXPECT_TRUE(there == back);
}

TEST_F(Vulkan, WhatIsNoMemoryOfItsIsRefused) {
  const std::shared_ptr<Kernel> kernel = add_kernel();
  const Buffer y = device_->allocate(64);
  float host[16] = {};
  for (float* const pointer : {static_cast<float*>(host), static_cast<float*>(nullptr)}) {
    try {
      device_->launch(*kernel, blocks_of_16(16), {pointer, y.pointer, 1.0f, 1}, {});
      FAIL() << "it ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::bad_problem) << error.what();
    }
  }
  EXPECT_THROW(device_->copy_in(y, std::vector<char>(65).data(), 65), Error);
  void* const freed = device_->allocate(64).pointer;
  EXPECT_THROW(device_->launch(*kernel, blocks_of_16(16), {freed, y.pointer, 1.0f, 1}, {}), Error);
  int stream = 0;
  EXPECT_THROW(device_->synchronize({nullptr, &stream}), Error);
}

TEST_F(Vulkan, CompilesOnceAProcessAndAfterItNever) { expect_compiled_once(*device_, add_source()); }

TEST_F(Vulkan, ACompileErrorNamesTheKernelItsConstantsAndTheLog) {
  expect_compile_error_in_words(*device_, add_source(), {"clspv", "undeclared_name"});
}

TEST_F(Vulkan, DamagedCodeIsAnErrorNotACrash) {
  expect_damaged_code_is_an_error(*device_, add_source());
  const Binary whole = device_->compile(add_source());
  EXPECT_THROW(device_->load({whole.code.substr(0, whole.code.size() / 2 / 4 * 4 + 4), "", 0}, add_source()),
               Error);
}

TEST_F(Vulkan, MoreMemoryThanThereIsIsAnError) { expect_too_much_memory_is_an_error(*device_); }

TEST_F(Vulkan, ArgumentsAreWhereTheCompilerSays) {
  const auto arguments = spirv_arguments(device_->compile(add_source()).code, "add");
  ASSERT_EQ(arguments.size(), 6u);
  std::map<unsigned, SpirvArgument> of;
  for (const SpirvArgument& a : arguments) of.emplace(a.ordinal, a);
  for (const unsigned buffer : {0u, 2u}) EXPECT_EQ(of.at(buffer).kind, SpirvArgument::Kind::storage_buffer);
  for (const auto& [value, bytes] : {std::pair{1u, 8u}, {3u, 8u}, {4u, 4u}, {5u, 4u}}) {
    EXPECT_EQ(of.at(value).kind, SpirvArgument::Kind::push_constant);
    EXPECT_EQ(of.at(value).bytes, bytes);
    EXPECT_EQ(of.at(value).place % bytes, 0u);
  }
}

// What Vulkan has no room for: the one refusal that is right. clspv compiles these kernels.
bool has_no_room(const Report& report) {
  return report.outcome == Outcome::declined &&
         (report.why.find("push constants may have") != std::string::npos ||
          report.why.find("blocks along") != std::string::npos);
}

// Kernels that are plain loops and those that share tiles: each exact on integers, then within the bound.
// What multiplies a gathered matrix (explicit_gemm_gpu, fft_gpu) has more values than push constants have
// room for, or ends the compiler.
class VulkanKernels : public Vulkan, public testing::WithParamInterface<const char*> {};

TEST_P(VulkanKernels, AreRight) {
  FALTUNG_TRACE_SAMPLE();
  Builder builder(device_);
  const Algorithm& algorithm = find_algorithm(GetParam());
  std::vector<Problem> supported;
  for (Problem p : shape_problems()) {
    validate(p);
    constexpr double kMostFlops = 4e6;
    if (flops(p) <= kMostFlops && algorithm.supports(p, builder.target()).yes) supported.push_back(p);
  }
  // llvmpipe takes up to half a minute of processor time to compile a kernel with barriers.
  const double kinds = std::string(GetParam()) == "direct_gpu" ? 0.25 : 0.05;
  int passed = 0, declined = 0;
  for (const Problem& p : sampling::draw(supported, kinds, GetParam(), [](const Problem& q) {
         return std::string(name(q.direction)) + name(q.layout) + name(q.dtype);
       })) {
    const std::vector<Candidate> all = algorithm.candidates(p, builder.target());
    const Candidate& one = all[sampling::shuffled(all.size(), to_string(p)).front()];
    Verifier verifier(p, device_, std::make_shared<const Parallel>(1), 1);
    const Report report = verifier.kernel(one, builder.store());
    const bool can = !has_no_room(report);
    (can ? passed : declined) += 1;
    EXPECT_TRUE(!can || report.outcome == Outcome::pass)
        << one.kernel() << " for " << to_string(p) << ": " << name(report.outcome) << ", " << report.why;
    if (!can) std::printf("%s for %s: %s\n", one.kernel().c_str(), to_string(p).c_str(), report.why.c_str());
  }
  std::printf("%d kernels verified on %s, %d declined\n", passed, device_->info().description.c_str(),
              declined);
  EXPECT_GT(passed, 0);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, VulkanKernels,
                         testing::Values("direct_gpu", "implicit_gemm_gpu", "depthwise_gpu", "winograd_gpu"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace faltung
