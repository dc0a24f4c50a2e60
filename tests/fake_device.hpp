// A device that computes nothing, and tells what it was asked for.
#ifndef FALTUNG_TESTS_FAKE_DEVICE_HPP_
#define FALTUNG_TESTS_FAKE_DEVICE_HPP_

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/backend/amd_features.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/nvidia_features.hpp"

namespace faltung {

class FakeKernel : public Kernel {
 public:
  explicit FakeKernel(std::string entry) : entry(std::move(entry)) {}
  std::string entry;
};

class FakeDevice : public Device {
 public:
  // architecture: one of NVIDIA's; one of AMD's (gfx942), which OpenCL drives; or empty for a GPU that it
  // drives and nobody knows.
  explicit FakeDevice(const std::string& id = "fake:0", const std::string& architecture = "") {
    info_.id = info_.key = id;
    info_.kind = "gpu";
    info_.driver = "none";
    info_.block_threads = 1024;
    info_.memory_bytes = std::size_t{1} << 40;
    info_.unit = unit_limits(architecture);
    if (architecture.empty() || info_.unit.is_amd) {
      info_.dialect = "opencl";
      info_.features = amd_features(architecture);
      info_.features.insert(info_.features.end(), {"opencl", "fp16"});
      info_.units = 40;
      info_.local_bytes = 64 << 10;
    } else {
      info_.dialect = "cuda";
      info_.features = nvidia_features(architecture);
      info_.features.push_back("nvrtc");
      info_.units = 132;
      info_.local_bytes = 48 << 10;
    }
  }
  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    ++compiled;
    return {"code of " + source.entry, "", 1};
  }
  std::shared_ptr<Kernel> load(const Binary&, const KernelSource& source) override {
    return std::make_shared<FakeKernel>(source.entry);
  }
  // Keeps no more than the last launch: nothing is allocated after the first of a kernel.
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream&) override {
    ++launched;
    last.entry = static_cast<const FakeKernel&>(kernel).entry.c_str();
    last.shape = shape;
    last.arguments = arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      Passed& passed = last.passed[i];
      passed.bytes = arguments[i].bytes;
      passed.is_address = arguments[i].is_address;
      std::memcpy(passed.content, arguments[i].value, std::min(passed.bytes, sizeof passed.content));
    }
  }
  TensorMap encode(const MapShape&, const void* address) const override {
    ++encoded;
    TensorMap map{};
    map.opaque[0] = reinterpret_cast<std::uintptr_t>(address);
    map.opaque[1] = 0x3a9;  // it is a map
    return map;
  }
  double time_ms(const Stream&, const std::function<void()>& work) override {
    work();
    return 1;
  }
  void synchronize(const Stream&) override {}
  Buffer allocate(std::size_t bytes) override {
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {memory, memory->data(), bytes};
  }
  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    std::memcpy(to.pointer, from, bytes);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    std::memcpy(to, from.pointer, bytes);
  }

  struct Passed {
    std::size_t bytes = 0;
    bool is_address = false;
    std::byte content[256] = {};
    template <class T>
    T as() const {
      T value;
      std::memcpy(&value, content, sizeof value);
      return value;
    }
  };
  struct Launched {
    const char* entry = "";
    LaunchShape shape;
    std::size_t arguments = 0;
    std::array<Passed, 16> passed;
  };
  Launched last;
  int compiled = 0, launched = 0;
  mutable int encoded = 0;

 protected:
  DeviceInfo info_;
};

}  // namespace faltung

#endif  // FALTUNG_TESTS_FAKE_DEVICE_HPP_
