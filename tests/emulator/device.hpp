// An AMD chip that is not here, as a device: the offline compiler compiles for it, the emulator runs that.
#ifndef FALTUNG_TESTS_EMULATOR_DEVICE_HPP_
#define FALTUNG_TESTS_EMULATOR_DEVICE_HPP_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/backend/offline_compiler.hpp"
#include "tests/emulator/machine.hpp"

namespace faltung::emulator {

class EmulatedKernel : public Kernel {
 public:
  std::string file, entry;  // the code object and its kernel
  KernelResources resources;
  mutable std::weak_ptr<const CodeObject> code;  // while the device keeps it
};

class EmulatedDevice : public Device {
 public:
  // compiler: of make_offline_compiler, for an AMD chip, e.g. clang:gfx90a. Throws Error(unsupported) where
  // it is not installed.
  explicit EmulatedDevice(const std::string& compiler, u64 seed = 1);
  const DeviceInfo& info() const override { return info_; }
  Binary compile(const KernelSource& source) override { return compiler_->compile(source); }
  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override;
  KernelResources resources(const Kernel& kernel, const KernelSource&) const override {
    return static_cast<const EmulatedKernel&>(kernel).resources;
  }
  using Device::launch;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream&) override;
  double time_ms(const Stream&, const std::function<void()>& work) override;
  void synchronize(const Stream&) override {}
  Buffer allocate(std::size_t bytes) override;
  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override;
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override;

  // What each kernel that was launched did, by its function.
  std::map<std::string, Counts> counts;
  // Vector and scalar arithmetic of all kernels that were loaded, and a kernel that has it.
  std::map<std::string, std::string> executed;
  // What the tests of faults change in a kernel before it runs.
  std::function<void(CodeObject&)> change;
  int lanes() const { return info_.unit.wave_threads; }

 private:
  std::shared_ptr<const CodeObject> decoded(const EmulatedKernel& kernel);

  std::string chip_;
  std::shared_ptr<Device> compiler_;
  DeviceInfo info_;
  std::shared_ptr<Machine> machine_;  // outlived by no buffer
  // Of the kernels that were used last: decoded, thousands would fill the memory.
  std::deque<std::shared_ptr<const CodeObject>> kept_;
};

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_DEVICE_HPP_
