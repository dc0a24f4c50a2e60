// A backend to try out what a new one touches: tests/changes_test.py. Its one device says what it would
// compile.
#include "src/backend/backend.hpp"

namespace faltung {
namespace {

class ToyDevice : public Device {
 public:
  ToyDevice() {
    info_.id = info_.key = "toy:0";
    info_.kind = "gpu";
    info_.dialect = "toy";
    info_.description = "a toy";
    info_.driver = "none";
    info_.units = 1;
    info_.local_bytes = 32 << 10;
    info_.block_threads = 256;
  }
  const DeviceInfo& info() const override { return info_; }
  Binary compile(const KernelSource& source) override {
    const bool own = source.text.find("F_TOY_DIALECT") != std::string::npos;
    throw Error(Status::unsupported, own ? "a toy reads its own words" : "a toy is given another's words");
  }
  std::shared_ptr<Kernel> load(const Binary&, const KernelSource&) override { return nullptr; }
  using Device::launch;
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override {}
  double time_ms(const Stream&, const std::function<void()>&) override { return 0; }
  void synchronize(const Stream&) override {}
  Buffer allocate(std::size_t bytes) override {
    const std::shared_ptr<char[]> memory(new char[bytes]);
    return {memory, memory.get(), bytes};
  }
  void copy_in(const Buffer&, const void*, std::size_t) override {}
  void copy_out(void*, const Buffer&, std::size_t) override {}

 private:
  DeviceInfo info_;
};

}  // namespace

std::vector<std::shared_ptr<Device>> make_toy_devices() { return {std::make_shared<ToyDevice>()}; }

}  // namespace faltung
