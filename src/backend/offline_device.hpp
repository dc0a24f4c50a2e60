// Devices that run nothing: what compilers for GPUs that are not here share, and what only emits kernels.
#ifndef FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_
#define FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_

#include <memory>
#include <string>

#include "src/backend/backend.hpp"

namespace faltung {

class IdleDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  bool runs() const override { return false; }

  using Device::launch;
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override { no(); }
  double time_ms(const Stream&, const std::function<void()>&) override { return no(), 0; }
  void synchronize(const Stream&) override { no(); }
  Buffer allocate(std::size_t) override { return no(), Buffer{}; }
  void copy_in(const Buffer&, const void*, std::size_t) override { no(); }
  void copy_out(void*, const Buffer&, std::size_t) override { no(); }

 protected:
  // Throws what it does instead: "ID" and then `instead`.
  explicit IdleDevice(const std::string& id, const char* instead) : instead_(instead) {
    info_.id = info_.key = id;
  }
  [[noreturn]] void no() const { throw Error(Status::unsupported, info_.id + instead_); }
  DeviceInfo info_;

 private:
  const char* instead_;
};

class OfflineKernel : public Kernel {
 public:
  std::string log;
};

// A line of such a log.
inline constexpr const char* kCodeBytes = "\nbytes of code: ";

// It loads what it compiled.
class OfflineCompiler : public IdleDevice {
 public:
  explicit OfflineCompiler(const std::string& id) : IdleDevice(id, " compiles; it runs nothing") {
    info_.kind = "gpu";
    info_.description = "a compiler; it runs nothing";
    info_.block_threads = 1024;
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource&) override {
    auto kernel = std::make_shared<OfflineKernel>();
    kernel->log = binary.log;
    return kernel;
  }
  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    return read(static_cast<const OfflineKernel&>(kernel).log, source);
  }

 protected:
  // What the compiler's log says, as compile() left it.
  virtual KernelResources read(const std::string& log, const KernelSource& source) const = 0;
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_
