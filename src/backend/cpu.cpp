// The CPU as a device: its name, its caches, its memory. Its kernels are compiled with the library.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "kernels/cpu/features.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/host_memory.hpp"

#include <unistd.h>

namespace faltung {
namespace {

// The first value of `field` in /proc/cpuinfo; empty where there is none.
std::string cpuinfo(const std::string& field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(field)) continue;
    if (line.find_first_not_of(" \t", field.size()) != colon) continue;  // a longer field's name
    return colon + 2 < line.size() ? line.substr(colon + 2) : "";
  }
  return "";
}

#if defined(__aarch64__)
// The numbers that Arm gave its maker and that the maker gave the core: there are no names.
std::string model_key() { return cpuinfo("CPU implementer") + "-" + cpuinfo("CPU part"); }
std::string model_name() { return "aarch64 " + model_key(); }
#else
std::string model_key() {
  return cpuinfo("vendor_id") + "-" + cpuinfo("cpu family") + "-" + cpuinfo("model");
}
std::string model_name() { return cpuinfo("model name"); }
#endif

class CpuDevice : public Device {
 public:
  CpuDevice() {
    apply_isa_limit();
    info_.id = "cpu";
    info_.kind = "cpu";
    info_.description = model_name();
    info_.units = available_processors();
    info_.memory_bytes =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    info_.cache_bytes = cache_bytes();
    info_.features = cpu_features();
    info_.driver = "compiled with " + compiler();
    // Clock and core count are no part of it: the same kernel stays best when they change.
    info_.key = "cpu-" + model_key();
    for (const std::string& feature : info_.features) info_.key += "-" + feature;
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource&) override { decline("compile"); }
  std::shared_ptr<Kernel> load(const Binary&, const KernelSource&) override { decline("load"); }
  void launch(const Kernel&, const LaunchShape&, std::span<const Argument>, const Stream&) override {
    decline("launch");
  }

  double time_ms(const Stream&, const std::function<void()>& work) override {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  void synchronize(const Stream&) override {}

  Buffer allocate(std::size_t bytes) override {
    try {
      const std::shared_ptr<std::byte[]> memory = memory_.allocate(bytes);
      return {memory, memory.get(), bytes};
    } catch (const std::bad_alloc&) {
      throw Error(Status::out_of_memory, "out of memory: " + std::to_string(bytes) + " bytes on cpu");
    }
  }

  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    std::memcpy(to.pointer, from, bytes);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    std::memcpy(to, from.pointer, bytes);
  }

 private:
  [[noreturn]] static void decline(const char* what) {
    throw Error(Status::internal,
                std::string("the cpu does not ") + what + " kernels: they come with the library");
  }

  static std::size_t cache_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
    for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
      const long bytes = sysconf(level);
      if (bytes > 0) return static_cast<std::size_t>(bytes);
    }
#endif
    return 8 << 20;
  }

  static std::string compiler() {
#if defined(__clang__)
    return "clang " + std::to_string(__clang_major__);
#else
    return "g++ " + std::to_string(__GNUC__);
#endif
  }

  DeviceInfo info_;
  HostPool memory_;
};

}  // namespace

std::shared_ptr<Device> make_cpu_device() { return std::make_shared<CpuDevice>(); }

}  // namespace faltung
