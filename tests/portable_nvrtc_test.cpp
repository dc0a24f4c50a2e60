// Every portable kernel compiles for NVIDIA's architectures, without spills; no GPU is needed, only NVRTC.
#include <gtest/gtest.h>

#include "src/algorithms/algorithm.hpp"
#include "src/backend/nvrtc.hpp"
#include "tests/scratch.hpp"

namespace faltung {
namespace {

class Nothing : public Kernel {};

// Compiles, and runs nothing.
class Compiler : public Device {
 public:
  explicit Compiler(std::string architecture) : architecture_(std::move(architecture)) {
    info_.id = info_.key = "compiler:" + architecture_;
    info_.kind = "gpu";
    info_.units = 132;
    info_.local_bytes = 48 << 10;
    info_.block_threads = 1024;
    info_.features = {architecture_};
  }
  const DeviceInfo& info() const override { return info_; }
  Binary compile(const KernelSource& source) override {
    Binary binary = Nvrtc::get()->compile(source, architecture_);
    EXPECT_NE(binary.log.find(" 0 bytes spill stores"), std::string::npos)
        << source.name << " for " << architecture_ << ": " << binary.log;
    ++compiled;
    return binary;
  }
  std::shared_ptr<Kernel> load(const Binary&, const std::string&) override {
    return std::make_shared<Nothing>();
  }
  using Device::launch;
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override {}
  double time_ms(const Stream&, const std::function<void()>&) override { return 0; }
  void synchronize(const Stream&) override {}
  Buffer allocate(std::size_t) override { return {}; }
  void copy_in(const Buffer&, const void*, std::size_t) override {}
  void copy_out(void*, const Buffer&, std::size_t) override {}
  Ceilings measure_ceilings(int) override { return {}; }

  int compiled = 0;

 private:
  DeviceInfo info_;
  std::string architecture_;
};

TEST(PortableNvrtc, EveryKernelCompilesWithoutSpills) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << Nvrtc::missing();
  const Scratch store;
  setenv("FALTUNG_STORE", store.path().c_str(), 1);
  const char* const problems[] = {"fwd:n2c16h14w15k32r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "fwd:n2c16h14w15k32r3s3:pad1:f16:nhwc:bias:relu:maxpool2",
                                  "bwd_d:n2c16h14w15k32r3s3:pad1:st2:bf16:nchw",
                                  "bwd_w:n2c16h14w15k32r3s3:pad1:f16:nhwc",
                                  "fwd:n1c3h21w19k20r5s5:st2:pad0.1.2.1:bf16:nchw:silu",
                                  "fwd:n1c24h9w12k24r3s3:pad1:g24:f16:nchw:hardswish",
                                  "bwd_d:n1c24h9w12k24r3s3:pad1:g24:f32:nhwc",
                                  "bwd_w:n1c24h9w12k24r3s3:pad1:g24:bf16:nchw",
                                  "fwd:n2c64h14w15k32r3s3:pad1:f32:nchw:bias:residual:gelu",
                                  "bwd_d:n2c16h14w15k32r3s3:pad1:f16:nhwc:math=fast",
                                  "fwd:n1c16h40w36k8r9s9:pad4:f16:nchw:math=fast:bias:silu",
                                  "bwd_d:n1c16h40w36k8r13s13:pad6:f32:nhwc:math=fast"};
  for (const char* architecture : {"sm_80", "sm_75", "sm_90a"}) {
    Compiler device(architecture);
    const Target target{device, 1};
    for (const auto& algorithm : registry()) {
      if (!algorithm->name().ends_with("_gpu")) continue;
      for (const char* text : problems) {
        const Problem p = parse_problem(text);
        if (!algorithm->supports(p, target).yes) continue;
        // Winograd's sums fill the registers: each of its tiles is looked at.
        const std::vector<Config> configs = algorithm->configs(p, target);
        const bool all = algorithm->name().starts_with("winograd");
        for (std::size_t i = 0; i < (all ? configs.size() : 1); ++i) {
          make_recipe(*algorithm, p, configs[i].name, target);
        }
      }
    }
    EXPECT_GT(device.compiled, 10) << architecture;
    std::printf("%d kernels for %s\n", device.compiled, architecture);
  }
  unsetenv("FALTUNG_STORE");
}

}  // namespace
}  // namespace faltung
