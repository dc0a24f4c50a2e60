#include "src/backend/hip.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/backend/amd_features.hpp"
#include "src/backend/hip_driver.hpp"
#include "src/backend/hiprtc.hpp"
#include "src/backend/stream_device.hpp"

namespace faltung {
namespace {

// Whether code is a whole ELF file, or several in one. The driver takes an address alone, and believes it.
bool is_code_object(const std::string& code) {
  if (code.starts_with("__CLANG_OFFLOAD_BUNDLE__")) return true;
  constexpr std::size_t kHeader = 64;
  if (!code.starts_with("\177ELF") || code.size() < kHeader) return false;
  std::uint64_t sections = 0;
  std::uint16_t size = 0, count = 0;
  std::memcpy(&sections, code.data() + 40, sizeof sections);
  std::memcpy(&size, code.data() + 58, sizeof size);
  std::memcpy(&count, code.data() + 60, sizeof count);
  return sections <= code.size() && std::size_t{size} * count <= code.size() - sections;
}

class HipKernel : public Kernel {
 public:
  HipKernel() = default;
  HipKernel(const HipKernel&) = delete;
  HipKernel& operator=(const HipKernel&) = delete;
  ~HipKernel() override {
    if (module != nullptr) hip::driver()->module_unload(module);
  }
  void* module = nullptr;
  void* function = nullptr;
  std::string entry;
};

class HipDevice : public StreamDevice {
 public:
  explicit HipDevice(int ordinal)
      : StreamDevice(*hip::driver()), ordinal_(ordinal), architecture_(hip::architecture(ordinal)) {
    const auto attribute = [&](int which) {
      int value = 0;
      check(hip::driver()->device_get_attribute(&value, which, ordinal_),
            "asking a GPU for attribute " + std::to_string(which));
      return value;
    };
    char name[256] = {};
    check(hip::driver()->device_get_name(name, sizeof name, ordinal_), "asking a GPU for its name");
    info_.id = "hip:" + std::to_string(ordinal);
    info_.kind = "gpu";
    info_.dialect = "hip";
    info_.description = std::string(name) + (*name != '\0' ? ", " : "") + architecture_;
    info_.units = attribute(hip::kUnitCount);
    info_.cache_bytes = static_cast<std::size_t>(attribute(hip::kL2CacheBytes));
    info_.local_bytes = static_cast<std::size_t>(attribute(hip::kLocalBytesOfBlock));
    info_.block_threads = attribute(hip::kThreadsOfBlock);
    check(hip::driver()->device_total_mem(&info_.memory_bytes, ordinal_), "asking a GPU for its memory");
    info_.unit = unit_limits(architecture_);
    info_.features = amd_features(architecture_);
    if (HipRtc::get() != nullptr) info_.features.emplace_back("hiprtc");
    if (attribute(hip::kPageableMemoryAccess) != 0) info_.features.emplace_back("pageable_memory_access");
    const std::string release = hip::to_string(hip::release());
    info_.driver = "HIP " + release +
                   (HipRtc::get() != nullptr ? ", hipRTC " + HipRtc::get()->version() : ", no hipRTC");
    info_.key = "hip-" + std::string(name) + "-" + architecture_ + "-driver" + release + "-hiprtc" +
                (HipRtc::get() != nullptr ? HipRtc::get()->version() : "none");
    std::replace(info_.key.begin(), info_.key.end(), ' ', '_');
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    if (HipRtc::get() == nullptr) throw NoCompiler(HipRtc::missing());
    return HipRtc::get()->compile(source, architecture_);
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    make_current();
    if (!is_code_object(binary.code))
      throw Error(Status::bad_file, "kernel " + source.entry + ": its stored code is no code object");
    auto kernel = std::make_shared<HipKernel>();
    kernel->entry = source.entry;
    check(hip::driver()->module_load_data(&kernel->module, binary.code.data()),
          "loading kernel " + source.entry);
    check(hip::driver()->module_get_function(&kernel->function, kernel->module, source.entry.c_str()),
          "finding kernel " + source.entry + " in its module");
    return kernel;
  }

  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    make_current();
    void* const function = static_cast<const HipKernel&>(kernel).function;
    const auto ask = [&](int which) {
      int value = -1;
      return hip::driver()->func_get_attribute(&value, which, function) == 0 ? value : -1;
    };
    KernelResources r;
    r.block_threads = ask(hip::kMostThreads);
    r.local_bytes = ask(hip::kLocalBytes);
    r.spilled_bytes = ask(hip::kPrivateBytes);
    r.registers = ask(hip::kRegisters);
    add_residence(r, function, source);
    return r;
  }

  using Device::launch;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream& stream) override {
    make_current();
    LaunchValues values(arguments);
    const auto& k = static_cast<const HipKernel&>(kernel);
    const auto& [grid, block, shared_bytes, cluster, overlaps] = shape;
    const int result =
        hip::driver()->launch_kernel(k.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                     shared_bytes, stream.native, values.get(), nullptr);
    if (result != 0) check(result, "launching kernel " + k.entry + " on " + info_.id);
  }

  void check_address(const void* address, const char* what) const override {
    make_current();
    void* const place = const_cast<void*>(address);
    int ordinal = -1;
    unsigned type = 0;
    if (hip::driver()->pointer_get_attribute(&ordinal, hip::kDeviceOrdinal, place) != 0 ||
        hip::driver()->pointer_get_attribute(&type, hip::kMemoryType, place) != 0) {
      if (info_.has("pageable_memory_access")) return;
      throw Error(Status::bad_problem, std::string(what) + ": the pointer is no memory that " + info_.id +
                                           " can use; allocate it with hipMalloc, or a MemoryPool of " +
                                           info_.id);
    }
    // Host memory that the driver knows, and managed memory, may be used from any device.
    if (type == hip::device_memory() && ordinal != ordinal_) {
      throw Error(Status::bad_problem, std::string(what) + ": the pointer is memory of hip:" +
                                           std::to_string(ordinal) + ", the plan is for " + info_.id);
    }
  }

  Buffer allocate(std::size_t bytes) override {
    make_current();
    void* pointer = nullptr;
    check(hip::driver()->malloc(&pointer, std::max<std::size_t>(bytes, 256)),
          "allocating " + std::to_string(bytes) + " bytes on " + info_.id);
    return {std::shared_ptr<void>(pointer, [](void* p) { hip::driver()->free(p); }), pointer, bytes};
  }

  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    check(hip::driver()->memcpy_to_device(to.pointer, from, bytes),
          "copying " + std::to_string(bytes) + " bytes to " + info_.id);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    check(hip::driver()->memcpy_to_host(to, from.pointer, bytes),
          "copying " + std::to_string(bytes) + " bytes from " + info_.id);
  }

 private:
  void make_current() const override {
    const int result = hip::driver()->set_device(ordinal_);
    if (result != 0) check(result, "using " + info_.id);
  }
  void check(int result, const std::string& what) const override { hip::check(result, what); }
  int blocks_of_unit(int* blocks, void* function, int threads, std::size_t shared_bytes) const override {
    return hip::driver()->blocks_of_unit(blocks, function, threads, shared_bytes);
  }
  int instantiate(void** replay, void* graph) const override {
    return hip::driver()->graph_instantiate(replay, graph, nullptr, nullptr, 0);
  }

  const int ordinal_;
  const std::string architecture_;
  DeviceInfo info_;
};

}  // namespace

std::vector<std::shared_ptr<Device>> make_hip_devices() {
  std::vector<std::shared_ptr<Device>> devices;
  int count = 0;
  if (hip::driver() == nullptr || hip::driver()->get_device_count(&count) != 0) return devices;
  for (int i = 0; i < count; ++i) devices.push_back(std::make_shared<HipDevice>(i));
  return devices;
}

const std::string& hip_missing() { return hip::missing(); }

}  // namespace faltung
