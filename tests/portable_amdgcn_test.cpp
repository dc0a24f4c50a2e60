// Every portable kernel's default config compiles for AMD's chips without spills; no GPU is needed, only
// clang-19 and ROCm's device library.
#include <gtest/gtest.h>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/offline_compiler.hpp"
#include "src/jit/jit.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

class PortableAmdgcn : public testing::TestWithParam<const char*> {};

TEST_P(PortableAmdgcn, DefaultConfigsDoNotSpill) {
  std::shared_ptr<Device> device;
  try {
    device = make_offline_compiler(std::string("clang:") + GetParam());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Scratch store;
  setenv("FALTUNG_STORE", store.path().c_str(), 1);
  const char* const problems[] = {"fwd:n32c64h56w56k64r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "fwd:n32c64h56w56k64r3s3:pad1:f16:nhwc:bias:relu:maxpool2",
                                  "bwd_d:n32c64h56w56k128r3s3:pad1:st2:bf16:nchw",
                                  "bwd_w:n32c64h56w56k64r3s3:pad1:f16:nhwc",
                                  "fwd:n1c3h224w224k32r5s5:st2:pad0.1.2.1:bf16:nchw:silu",
                                  "fwd:n8c144h56w56k144r3s3:pad1:g144:f16:nhwc:hardswish",
                                  "fwd:n8c144h56w56k144r5s5:pad2:g144:f32:nchw",
                                  "bwd_d:n8c144h56w56k144r3s3:pad1:g144:f32:nhwc",
                                  "bwd_w:n8c144h56w56k144r3s3:pad1:g144:bf16:nchw"};
  int compiled = 0;
  const Target target{*device, 1};
  for (const auto& algorithm : registry()) {
    if (algorithm->device_kind() != "gpu") continue;
    for (const char* text : problems) {
      const Problem p = parse_problem(text);
      if (!algorithm->supports(p, target).yes) continue;
      const std::string config = algorithm->configs(p, target).front().name;
      jit::Collector collector;
      make_recipe(*algorithm, p, config, target);
      for (const jit::Compiled& kernel : collector.kernels) {
        EXPECT_EQ(kernel.resources.spilled_bytes, 0)
            << kernel_name(*algorithm, config) << " (" << kernel.entry << ") for " << text;
        EXPECT_GT(kernel.resources.registers, 0);
        EXPECT_GT(kernel.resources.waves, 0);
        ++compiled;
      }
    }
  }
  EXPECT_GT(compiled, 10);
  std::printf("%d kernels for %s\n", compiled, GetParam());
  unsetenv("FALTUNG_STORE");
}

INSTANTIATE_TEST_SUITE_P(Chips, PortableAmdgcn, testing::Values("gfx1010", "gfx1030", "gfx90a", "gfx942"));

}  // namespace
}  // namespace faltung
