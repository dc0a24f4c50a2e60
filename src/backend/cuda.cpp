#include "src/backend/cuda.hpp"

#include <algorithm>
#include <mutex>
#include <span>

#include "src/backend/cuda_driver.hpp"
#include "src/backend/cuda_tensor_map.hpp"
#include "src/backend/nvidia_features.hpp"
#include "src/backend/nvrtc.hpp"
#include "src/backend/stream_device.hpp"

namespace faltung {
namespace {

using cuda::driver;

class CudaKernel : public Kernel {
 public:
  ~CudaKernel() override {
    if (module_ != nullptr) driver()->module_unload(module_);
  }
  void* module_ = nullptr;
  void* function_ = nullptr;
  std::string entry_;
};

class CudaDevice : public StreamDevice {
 public:
  CudaDevice(int ordinal, int handle) : StreamDevice(*driver()), handle_(handle) {
    const auto attribute = [&](int which) {
      int value = 0;
      check(driver()->device_get_attribute(&value, which, handle_),
            "asking a GPU for attribute " + std::to_string(which));
      return value;
    };
    char name[256] = {};
    check(driver()->device_get_name(name, sizeof name, handle_), "asking a GPU for its name");
    const int major = attribute(cuda::kComputeCapabilityMajor),
              minor = attribute(cuda::kComputeCapabilityMinor);
    info_.id = "cuda:" + std::to_string(ordinal);
    info_.kind = "gpu";
    info_.dialect = "cuda";
    info_.description = name;
    info_.units = attribute(cuda::kMultiprocessorCount);
    info_.cache_bytes = static_cast<std::size_t>(attribute(cuda::kL2CacheSize));
    info_.local_bytes = static_cast<std::size_t>(attribute(cuda::kSharedMemoryOfBlock));
    info_.block_threads = attribute(cuda::kThreadsOfBlock);
    check(driver()->device_total_mem(&info_.memory_bytes, handle_), "asking a GPU for its memory");
    const std::string architecture = "sm_" + std::to_string(major * 10 + minor);
    // Instructions of one architecture alone carry an "a"; Hopper's kernels need them.
    architecture_ = major == 9 && minor == 0 ? "sm_90a" : architecture;
    info_.unit = unit_limits(architecture);
    info_.features = nvidia_features(architecture_);
    if (Nvrtc::get() != nullptr) info_.features.push_back("nvrtc");
    if (attribute(cuda::kPageableMemoryAccess) != 0) info_.features.push_back("pageable_memory_access");
    int version = 0;
    driver()->driver_get_version(&version);
    const std::string release = cuda::driver_release();
    info_.driver = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                   (release.empty() ? "" : ", driver " + release) +
                   (Nvrtc::get() != nullptr ? ", NVRTC " + Nvrtc::get()->version() : ", no NVRTC");
    std::string model = name;
    std::replace(model.begin(), model.end(), ' ', '_');
    info_.key = "cuda-" + model + "-" + architecture + "-driver" +
                (release.empty() ? std::to_string(version) : release) + "-nvrtc" +
                (Nvrtc::get() != nullptr ? Nvrtc::get()->version() : "none");
    if (Nvrtc::get() != nullptr) info_.code_key = Nvrtc::get()->code_key(architecture_);
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    if (Nvrtc::get() == nullptr) throw NoCompiler(Nvrtc::missing());
    return Nvrtc::get()->compile(source, architecture_);
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    make_current();
    auto kernel = std::make_shared<CudaKernel>();
    const std::string& entry = kernel->entry_ = source.entry;
    check(driver()->module_load_data(&kernel->module_, binary.code.data()), "loading kernel " + entry);
    check(driver()->module_get_function(&kernel->function_, kernel->module_, entry.c_str()),
          "finding kernel " + entry + " in its module");
    constexpr int kWithoutAsking = 48 * 1024;
    if (source.shared_bytes > kWithoutAsking) {
      check(driver()->func_set_attribute(kernel->function_, cuda::kMaxDynamicSharedSize, source.shared_bytes),
            "asking for " + std::to_string(source.shared_bytes) + " bytes of shared memory for kernel " +
                entry);
    }
    return kernel;
  }

  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    make_current();
    void* const function = static_cast<const CudaKernel&>(kernel).function_;
    const auto ask = [&](int which) {
      int value = -1;
      driver()->func_get_attribute(&value, which, function);
      return value;
    };
    // The driver's numbers: threads a block may have, shared and private bytes, registers.
    constexpr int kMostThreads = 0, kShared = 1, kPrivate = 3, kRegisters = 4;
    KernelResources r;
    r.block_threads = ask(kMostThreads);
    r.local_bytes = ask(kShared);
    r.spilled_bytes = ask(kPrivate);
    r.registers = ask(kRegisters);
    add_residence(r, function, source);
    return r;
  }

  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream& stream) override {
    make_current();
    LaunchValues values(arguments);
    const auto& k = static_cast<const CudaKernel&>(kernel);
    cuda::LaunchAttribute attributes[2] = {};
    unsigned count = 0;
    constexpr unsigned kMostPortable = 8;
    const unsigned cluster = shape.cluster[0] * shape.cluster[1] * shape.cluster[2];
    if (cluster > kMostPortable) {
      const int asked = driver()->func_set_attribute(k.function_, cuda::kNonPortableCluster, 1);
      if (asked != 0) check(asked, "asking for a large cluster for kernel " + k.entry_);
    }
    if (cluster > 1) {
      attributes[count].id = cuda::kClusterDimension;
      std::copy(shape.cluster, shape.cluster + 3, attributes[count].value.cluster);
      ++count;
    }
    if (shape.overlaps_previous) {
      attributes[count].id = cuda::kProgrammaticStreamSerialization;
      attributes[count].value.flag = 1;
      ++count;
    }
    cuda::LaunchConfig config{shape.grid[0],  shape.grid[1],  shape.grid[2],      shape.block[0],
                              shape.block[1], shape.block[2], shape.shared_bytes, stream.native,
                              attributes,     count};
    const int result = driver()->launch_kernel(&config, k.function_, values.get(), nullptr);
    if (result != 0) check(result, "launching kernel " + k.entry_ + " on " + info_.id);
  }

  void check_address(const void* address, const char* what) const override {
    make_current();
    const auto place = reinterpret_cast<std::uint64_t>(address);
    unsigned type = 0;
    int ordinal = handle_;
    constexpr int kAsked[] = {cuda::kMemoryType, cuda::kDeviceOrdinal};
    void* values[] = {&type, &ordinal};
    if (driver()->pointer_get_attributes(2, kAsked, values, place) != 0 || type == 0) {
      if (info_.has("pageable_memory_access")) return;
      throw Error(Status::bad_problem, std::string(what) + ": the pointer is no memory that " + info_.id +
                                           " can use; allocate it with cudaMalloc, or a MemoryPool of " +
                                           info_.id);
    }
    // Host memory that the driver knows, and managed memory, may be used from any device.
    if (type == cuda::kDeviceMemory && ordinal != handle_) {
      throw Error(Status::bad_problem, std::string(what) + ": the pointer is memory of cuda:" +
                                           std::to_string(ordinal) + ", the plan is for " + info_.id);
    }
  }

  Buffer allocate(std::size_t bytes) override {
    make_current();
    std::uint64_t address = 0;
    check(driver()->mem_alloc(&address, std::max<std::size_t>(bytes, 256)),
          "allocating " + std::to_string(bytes) + " bytes on " + info_.id);
    void* pointer = reinterpret_cast<void*>(address);
    void* context = context_;
    return {std::shared_ptr<void>(pointer,
                                  [context](void* p) {
                                    driver()->ctx_set_current(context);
                                    driver()->mem_free(reinterpret_cast<std::uint64_t>(p));
                                  }),
            pointer, bytes};
  }

  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    make_current();
    if (bytes == 0) return;
    check(driver()->memcpy_to_device(reinterpret_cast<std::uint64_t>(to.pointer), from, bytes),
          "copying " + std::to_string(bytes) + " bytes to " + info_.id);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    make_current();
    if (bytes == 0) return;
    check(driver()->memcpy_to_host(to, reinterpret_cast<std::uint64_t>(from.pointer), bytes),
          "copying " + std::to_string(bytes) + " bytes from " + info_.id);
  }
  bool copy_within(void* to, const void* from, std::size_t bytes, const Stream& stream) override {
    make_current();
    check(driver()->memcpy_device_async(reinterpret_cast<std::uint64_t>(to),
                                        reinterpret_cast<std::uint64_t>(from), bytes, stream.native),
          "copying " + std::to_string(bytes) + " bytes on " + info_.id);
    return true;
  }

  TensorMap encode(const MapShape& shape, const void* address) const override {
    make_current();
    return cuda::encode(shape, address);
  }

 private:
  // The primary context, which the CUDA runtime and PyTorch share; kept for the process's life.
  void make_current() const override {
    std::call_once(once_,
                   [&] { check(driver()->primary_ctx_retain(&context_, handle_), "opening " + info_.id); });
    // Asked in every launch, which must not make a text.
    const int result = driver()->ctx_set_current(context_);
    if (result != 0) check(result, "using " + info_.id);
  }

  void check(int result, const std::string& what) const override { cuda::check(result, what); }
  int blocks_of_unit(int* blocks, void* function, int threads, std::size_t shared_bytes) const override {
    return driver()->blocks_of_multiprocessor(blocks, function, threads, shared_bytes);
  }
  int instantiate(void** replay, void* graph) const override {
    return driver()->graph_instantiate(replay, graph, 0);
  }

  DeviceInfo info_;
  std::string architecture_;
  int handle_;
  mutable std::once_flag once_;
  mutable void* context_ = nullptr;
};

}  // namespace

std::vector<std::shared_ptr<Device>> make_cuda_devices() {
  std::vector<std::shared_ptr<Device>> devices;
  if (driver() == nullptr) return devices;
  int count = 0;
  if (driver()->device_get_count(&count) != 0) return devices;
  for (int i = 0; i < count; ++i) {
    int handle = 0;
    if (driver()->device_get(&handle, i) == 0) devices.push_back(std::make_shared<CudaDevice>(i, handle));
  }
  return devices;
}

}  // namespace faltung
