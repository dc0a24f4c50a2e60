#include "src/backend/opencl.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

#include "src/backend/amd_features.hpp"
#include "src/backend/buffer_addresses.hpp"
#include "src/backend/compiler_log.hpp"
#include "src/backend/nvidia_features.hpp"
#include "src/backend/opencl_api.hpp"
#include "src/backend/opencl_program.hpp"

namespace faltung {
namespace {

namespace cl = opencl;
using cl::api;
using cl::check;
using cl::text_of;

template <class Value>
Value number_of(cl::DeviceId device, cl::Uint what) {
  Value value{};
  api()->get_device_info(device, what, sizeof value, &value, nullptr);
  return value;
}

// The work that one thread submits while it measures: the event of its first launch. One of each would
// hold up those behind it.
struct Recorder {
  const Device* device;
  cl::Event first = nullptr;
};
thread_local Recorder* recorder = nullptr;

class OpenClDeviceImpl : public OpenClDevice {
 public:
  OpenClDeviceImpl(int ordinal, cl::Platform platform, cl::DeviceId device) : device_(device) {
    const auto text = [&](cl::Uint what) { return text_of(api()->get_device_info, device, what); };
    const std::string platform_name = text_of(api()->get_platform_info, platform, cl::kPlatformName);
    info_.id = "opencl:" + std::to_string(ordinal);
    info_.kind = "gpu";
    info_.dialect = "opencl";
    info_.description = text(cl::kDeviceName);
    info_.driver = platform_name + ", driver " + text(cl::kDeviceDriver) + ", " + text(cl::kDeviceVersion);
    info_.units = static_cast<int>(number_of<cl::Uint>(device, cl::kDeviceUnits));
    info_.memory_bytes = number_of<std::uint64_t>(device, cl::kDeviceMemory);
    info_.cache_bytes = number_of<std::uint64_t>(device, cl::kDeviceCacheBytes);
    info_.local_bytes = number_of<std::uint64_t>(device, cl::kDeviceLocalBytes);
    info_.block_threads = static_cast<int>(number_of<std::size_t>(device, cl::kDeviceMaxGroup));
    largest_ = number_of<std::uint64_t>(device, cl::kDeviceMaxAllocation);
    info_.features = {"opencl"};
    const std::string extensions = " " + text(cl::kDeviceExtensions) + " ";
    for (const auto& [extension, feature] : {std::pair{" cl_khr_fp16 ", "fp16"},
                                             {" cl_khr_subgroups ", "subgroups"},
                                             {" cl_intel_subgroups ", "subgroups"},
                                             {" cl_khr_fp64 ", "fp64"}}) {
      if (extensions.find(extension) != std::string::npos && !info_.has(feature))
        info_.features.push_back(feature);
    }
    // llvmpipe calls itself a GPU; it is none.
    if ((number_of<cl::Bitfield>(device, cl::kDeviceType) & cl::kTypeCpu) != 0 ||
        info_.description.find("llvmpipe") != std::string::npos) {
      info_.features.push_back("runs_on_cpu");
    }
    // Its work-items are lanes of vectors, as a GPU's are; PoCL's own vectors.
    if (info_.description.find("llvmpipe") != std::string::npos) info_.features.push_back("lanes");
    info_.unit = unit_limits(info_.description);
    // AMD's own compiler takes the builtins that its matrix units need; Mesa's does not.
    if (platform_name.find("AMD Accelerated Parallel Processing") != std::string::npos) {
      const std::vector<std::string> chip = amd_features(info_.description);
      info_.features.insert(info_.features.end(), chip.begin(), chip.end());
    }
    // NVIDIA's compiler has options of its own, one of which tells what a kernel takes.
    tells_resources_ = extensions.find(" cl_nv_compiler_options ") != std::string::npos;
    if (extensions.find(" cl_nv_device_attribute_query ") != std::string::npos) {
      const std::string chip = "sm_" + std::to_string(number_of<cl::Uint>(device, cl::kDeviceMajorNv) * 10 +
                                                      number_of<cl::Uint>(device, cl::kDeviceMinorNv));
      info_.unit = unit_limits(chip);
      // Its compiler takes PTX.
      if (platform_name == "NVIDIA CUDA") {
        if (has_mma_sync(chip)) info_.features.push_back("mma_ptx");
        if (has_wide_local(chip)) info_.features.push_back("wide_local");
      }
    }
    info_.key = "opencl-" + platform_name + "-" + info_.description + "-" + text(cl::kDeviceDriver) + "-" +
                text(cl::kDeviceVersion);
    std::replace(info_.key.begin(), info_.key.end(), ' ', '_');
    // See nvidia_features: of the compilers behind OpenCL, NVIDIA's alone is known for it.
    if (info_.key.find("NVIDIA") != std::string::npos) info_.features.push_back("large_registers");
  }

  ~OpenClDeviceImpl() override {
    if (queue_ != nullptr) api()->release_queue(queue_);
    if (context_ != nullptr) api()->release_context(context_);
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    open();
    std::string options = "-cl-std=CL1.2";
    for (const std::string& option : source.options) options += " " + option;
    if (tells_resources_) options += " -cl-nv-verbose";
    return cl::compile(target(), context_, source, options);
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    open();
    auto kernel = std::make_shared<cl::ProgramKernel>(target(), binary, source.entry);
    const std::lock_guard lock(kernel->mutex);
    kernel->handle(context_);
    return kernel;
  }

  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    const auto& k = static_cast<const cl::ProgramKernel&>(kernel);
    const std::lock_guard lock(k.mutex);
    const auto ask = [&](cl::Uint what, auto value) {
      if (k.any_handle() == nullptr ||
          api()->get_kernel_group_info(k.any_handle(), device_, what, sizeof value, &value, nullptr) !=
              cl::kSuccess) {
        return std::int64_t{-1};
      }
      return static_cast<std::int64_t>(value);
    };
    KernelResources r;
    r.block_threads = static_cast<int>(ask(cl::kKernelGroupSize, std::size_t{0}));
    r.wave_threads = static_cast<int>(ask(cl::kKernelGroupMultiple, std::size_t{0}));
    r.local_bytes = ask(cl::kKernelLocalBytes, std::uint64_t{0});
    r.spilled_bytes = ask(cl::kKernelPrivateBytes, std::uint64_t{0});
    if (tells_resources_) read_ptxas_log(k.log, source, info_.unit, r);
    // Of a chip that is not known: whether two blocks fit in the local memory, and whether the kernel's may
    // be as large as the device's, by a driver that does not say less than is launched.
    if (r.limited_by.empty() && r.local_bytes >= 0 && r.block_threads > 0) {
      const bool small = r.block_threads < info_.block_threads && r.block_threads >= source.block_threads;
      r.limited_by = 2 * static_cast<std::size_t>(r.local_bytes) > info_.local_bytes ? "local memory"
                     : small                                                         ? "blocks"
                                                                                     : "nothing";
    }
    return r;
  }

  using Device::launch;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream& stream) override {
    open();
    const auto& k = static_cast<const cl::ProgramKernel&>(kernel);
    const cl::Queue queue = queue_of(stream);
    const auto what = [&] { return "kernel " + k.entry + " on " + info_.id; };
    const std::lock_guard lock(k.mutex);
    const cl::KernelHandle handle = k.handle(context_of(queue));
    cl::Uint index = 0;
    for (const Argument& argument : arguments) {
      if (argument.is_address) {
        const BufferPlace place = find(*static_cast<void* const*>(argument.value), what);
        k.set(handle, index++, sizeof place.buffer, &place.buffer, place.serial);
        k.set(handle, index++, sizeof place.offset, &place.offset);
      } else {
        k.set(handle, index++, argument.bytes, argument.value);
      }
    }
    std::size_t global[3], local[3];
    for (int i = 0; i < 3; ++i) {
      local[i] = shape.block[i];
      global[i] = std::size_t{shape.grid[i]} * shape.block[i];
    }
    check(api()->enqueue_kernel(queue, handle, 3, nullptr, global, local, 0, nullptr, first_event()),
          [&] { return "launching " + what(); });
  }

  // From the first launch's start to the end of all by the device's clock; by the host's where the device
  // has none.
  double time_ms(const Stream& stream, const std::function<void()>& work) override {
    open();
    const cl::Queue queue = queue_of(stream);
    check(api()->finish(queue), "waiting for " + info_.id);
    Recorder mine{this};
    struct Restore {
      Recorder* outer = recorder;
      Recorder* mine;
      ~Restore() {
        recorder = outer;
        if (mine->first != nullptr) api()->release_event(mine->first);
      }
    } restore{recorder, &mine};
    recorder = &mine;
    const auto begin = std::chrono::steady_clock::now();
    work();
    cl::Event last = nullptr;
    check(api()->enqueue_marker(queue, 0, nullptr, &last),
          "marking the end of what " + info_.id + " is measured at");
    const std::shared_ptr<std::remove_pointer_t<cl::Event>> owner(last, api()->release_event);
    check(api()->finish(queue), "waiting for " + info_.id);
    const double wall =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    // rusticl on llvmpipe stamps the submission alone: a kernel of a second took a nanosecond.
    if (info_.has("runs_on_cpu") || mine.first == nullptr) return wall;
    std::uint64_t start = 0, end = 0;
    const auto ask = [](cl::Event event, cl::Uint what, std::uint64_t& time) {
      return api()->get_event_profile(event, what, sizeof time, &time, nullptr) == cl::kSuccess;
    };
    if (!ask(mine.first, cl::kProfilingStart, start) || !ask(last, cl::kProfilingEnd, end)) return wall;
    return end > start ? static_cast<double>(end - start) * 1e-6 : wall;
  }

  void synchronize(const Stream& stream) override {
    open();
    check(api()->finish(queue_of(stream)), "waiting for " + info_.id);
  }

  Buffer allocate(std::size_t bytes) override {
    open();
    const std::string what = "allocating " + std::to_string(bytes) + " bytes on " + info_.id;
    if (bytes > largest_) {
      throw Error(Status::out_of_memory,
                  what + ": its largest buffer may have " + std::to_string(largest_) + " bytes");
    }
    cl::Int error = 0;
    const cl::Mem mem =
        api()->create_buffer(context_, cl::kMemReadWrite, std::max<std::size_t>(bytes, 16), nullptr, &error);
    check(error, what);
    return own(mem, bytes);
  }

  Buffer adopt(void* cl_mem) override {
    if (cl_mem == nullptr) throw Error(Status::bad_problem, "adopt: the buffer is null");
    const auto mem = static_cast<cl::Mem>(cl_mem);
    std::size_t bytes = 0;
    check(api()->get_mem_info(mem, cl::kMemSize, sizeof bytes, &bytes, nullptr),
          "asking a buffer for its size");
    check(api()->retain_mem(mem), "holding the caller's buffer");
    return own(mem, bytes);
  }

  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    open();
    const auto what = [&] { return "copying " + std::to_string(bytes) + " bytes to " + info_.id; };
    const BufferPlace place = find(to.pointer, what);
    check(api()->enqueue_write(queue_, static_cast<cl::Mem>(place.buffer), cl::kTrue, place.offset, bytes,
                               from, 0, nullptr, nullptr),
          what());
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    if (bytes == 0) return;
    open();
    const auto what = [&] { return "copying " + std::to_string(bytes) + " bytes from " + info_.id; };
    const BufferPlace place = find(from.pointer, what);
    check(api()->enqueue_read(queue_, static_cast<cl::Mem>(place.buffer), cl::kTrue, place.offset, bytes, to,
                              0, nullptr, nullptr),
          what());
  }
  bool copy_within(void* to, const void* from, std::size_t bytes, const Stream& stream) override {
    open();
    const auto what = [&] { return "copying " + std::to_string(bytes) + " bytes on " + info_.id; };
    const BufferPlace source = find(from, what), target = find(to, what);
    check(api()->enqueue_copy(queue_of(stream), static_cast<cl::Mem>(source.buffer),
                              static_cast<cl::Mem>(target.buffer), source.offset, target.offset, bytes, 0,
                              nullptr, first_event()),
          what());
    return true;
  }

 private:
  // Where what is submitted now is to leave its event: of the first that is measured.
  cl::Event* first_event() const {
    const bool begins = recorder != nullptr && recorder->device == this && recorder->first == nullptr;
    return begins ? &recorder->first : nullptr;
  }

  // The context and the queue are made when the device is first used: a list of devices wakes none.
  void open() {
    std::call_once(once_, [&] {
      cl::Int error = 0;
      context_ = api()->create_context(nullptr, 1, &device_, nullptr, nullptr, &error);
      check(error, "opening " + info_.id);
      queue_ = api()->create_queue(context_, device_, cl::kQueueProfiling, &error);
      check(error, "making a queue on " + info_.id);
    });
  }

  cl::Queue queue_of(const Stream& stream) const {
    return stream.native != nullptr ? static_cast<cl::Queue>(stream.native) : queue_;
  }

  // Null stays null: an argument that the kernel does not use.
  template <class What>
  BufferPlace find(const void* address, const What& what) const {
    if (address == nullptr) return {};
    const BufferPlace place = locate(address);
    if (place.buffer == nullptr) {
      throw Error(
          Status::bad_problem,
          what() + ": a pointer is no memory of an OpenCL device; allocate it there, or adopt a cl_mem");
    }
    if (place.device != this) {
      throw Error(Status::bad_problem, what() + ": a pointer is another device's memory");
    }
    return place;
  }

  Buffer own(cl::Mem mem, std::size_t bytes) const {
    const std::shared_ptr<std::remove_pointer_t<cl::Mem>> holder(mem, api()->release_mem);
    void* address = reserve_range(mem, bytes, this);
    return {std::shared_ptr<void>(address, [holder](void* begin) { release_range(begin); }), address, bytes};
  }

  cl::Target target() const { return {device_, info_.id + " (" + info_.driver + ")"}; }

  cl::Context context_of(cl::Queue queue) const {
    cl::Context context = context_;
    if (queue != queue_) {
      check(api()->get_queue_info(queue, cl::kQueueContext, sizeof context, &context, nullptr),
            "asking the caller's queue for its context");
    }
    return context;
  }

  DeviceInfo info_;
  cl::DeviceId device_;
  std::size_t largest_ = 0;
  bool tells_resources_ = false;
  std::once_flag once_;
  cl::Context context_ = nullptr;
  cl::Queue queue_ = nullptr;
};

}  // namespace

std::vector<std::shared_ptr<Device>> make_opencl_devices() {
  std::vector<std::shared_ptr<Device>> devices;
  cl::Uint count = 0;
  if (api() == nullptr || api()->get_platforms(0, nullptr, &count) != cl::kSuccess || count == 0)
    return devices;
  std::vector<cl::Platform> platforms(count);
  if (api()->get_platforms(count, platforms.data(), nullptr) != cl::kSuccess) return devices;
  for (const cl::Platform platform : platforms) {
    const std::string version = text_of(api()->get_platform_info, platform, cl::kPlatformVersion);
    if (version < "OpenCL 1.2") continue;
    cl::Uint found = 0;
    if (api()->get_devices(platform, cl::kTypeAll, 0, nullptr, &found) != cl::kSuccess) continue;
    std::vector<cl::DeviceId> ids(found);
    if (found == 0 ||
        api()->get_devices(platform, cl::kTypeAll, found, ids.data(), nullptr) != cl::kSuccess) {
      continue;
    }
    for (const cl::DeviceId id : ids) {
      if (number_of<cl::Uint>(id, cl::kDeviceCompiler) == 0) continue;
      devices.push_back(std::make_shared<OpenClDeviceImpl>(static_cast<int>(devices.size()), platform, id));
    }
  }
  return devices;
}

}  // namespace faltung
