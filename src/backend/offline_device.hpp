// What compilers for GPUs that are not here share: a device that loads what it compiled and runs nothing.
#ifndef FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_
#define FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_

#include <memory>
#include <string>

#include "src/backend/backend.hpp"

namespace faltung {

class OfflineKernel : public Kernel {
 public:
  std::string log;
};

// A line of such a log.
inline constexpr const char* kCodeBytes = "\nbytes of code: ";

class OfflineCompiler : public Device {
 public:
  explicit OfflineCompiler(const std::string& id) {
    info_.id = info_.key = id;
    info_.kind = "gpu";
    info_.description = "a compiler; it runs nothing";
    info_.block_threads = 1024;
  }
  const DeviceInfo& info() const override { return info_; }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource&) override {
    auto kernel = std::make_shared<OfflineKernel>();
    kernel->log = binary.log;
    return kernel;
  }
  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    return read(static_cast<const OfflineKernel&>(kernel).log, source);
  }

  using Device::launch;
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override { no(); }
  double time_ms(const Stream&, const std::function<void()>&) override { return no(); }
  void synchronize(const Stream&) override { no(); }
  Buffer allocate(std::size_t) override { return no(), Buffer{}; }
  void copy_in(const Buffer&, const void*, std::size_t) override { no(); }
  void copy_out(void*, const Buffer&, std::size_t) override { no(); }

 protected:
  // What the compiler's log says, as compile() left it.
  virtual KernelResources read(const std::string& log, const KernelSource& source) const = 0;
  DeviceInfo info_;

 private:
  double no() const { throw Error(Status::unsupported, info_.id + " compiles; it runs nothing"); }
};

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_OFFLINE_DEVICE_HPP_
