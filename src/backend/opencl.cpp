#include "src/backend/opencl.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>

#include "src/backend/compiler_log.hpp"
#include "src/backend/opencl_api.hpp"
#include "src/backend/opencl_memory.hpp"

namespace faltung {
namespace {

namespace cl = opencl;
using cl::api;

void check(cl::Int code, const std::string& what) {
  if (code == cl::kSuccess) return;
  const bool memory =
      code == cl::kMemObjectAllocationFailure || code == cl::kOutOfResources || code == cl::kOutOfHostMemory;
  throw Error(memory ? Status::out_of_memory : Status::device_error, what + ": " + cl::error_name(code));
}

// Every query of OpenCL has this form: how many bytes, then the bytes.
template <class Get, class... Object>
std::string text_of(Get get, Object... object) {
  std::size_t bytes = 0;
  if (get(object..., 0, nullptr, &bytes) != cl::kSuccess) return "";
  std::string text(bytes, '\0');
  if (bytes == 0 || get(object..., bytes, text.data(), nullptr) != cl::kSuccess) return "";
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

template <class Value>
Value number_of(cl::DeviceId device, cl::Uint what) {
  Value value{};
  api()->get_device_info(device, what, sizeof value, &value, nullptr);
  return value;
}

// The work that one thread submits while it measures: its events, first to last.
struct Recorder {
  const Device* device;
  std::vector<cl::Event> events;
};
thread_local Recorder* recorder = nullptr;

struct ProgramOwner {
  cl::Program program = nullptr;
  ProgramOwner() = default;
  ProgramOwner(const ProgramOwner&) = delete;
  ProgramOwner& operator=(const ProgramOwner&) = delete;
  ~ProgramOwner() {
    if (program != nullptr) api()->release_program(program);
  }
};

// A kernel's code, and its handle in each context that it has run in. Setting a handle's arguments and
// submitting it is one step, so that threads may share it.
class OpenClKernel : public Kernel {
 public:
  OpenClKernel(const Binary& binary, std::string entry)
      : code(binary.code), log(binary.log), entry(std::move(entry)) {}
  ~OpenClKernel() override {
    for (const auto& [context, handle] : handles) api()->release_kernel(handle);
  }
  std::string code, log, entry;
  mutable std::mutex mutex;
  mutable std::map<cl::Context, cl::KernelHandle> handles;
};

// What Binary::code begins with: a driver that gives no binary has its source kept.
constexpr char kIsBinary = 'B', kIsSource = 'S';

std::string joined(const std::vector<std::string>& options) {
  std::string text = "-cl-std=CL1.2";
  for (const std::string& option : options) text += " " + option;
  return text;
}

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
    // NVIDIA's compiler has options of its own, one of which tells what a kernel takes.
    tells_resources_ = extensions.find(" cl_nv_compiler_options ") != std::string::npos;
    if (extensions.find(" cl_nv_device_attribute_query ") != std::string::npos) {
      nvidia_ = unit_limits("sm_" + std::to_string(number_of<cl::Uint>(device, cl::kDeviceMajorNv) * 10 +
                                                   number_of<cl::Uint>(device, cl::kDeviceMinorNv)));
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
    const auto begin = std::chrono::steady_clock::now();
    ProgramOwner owner;
    const std::string options = joined(source.options) + (tells_resources_ ? " -cl-nv-verbose" : "");
    build_source(owner, context_, source.text, options, "kernel " + source.name);
    Binary binary;
    binary.log = build_log(owner.program);
    std::size_t bytes = 0;
    api()->get_program_info(owner.program, cl::kProgramBinarySizes, sizeof bytes, &bytes, nullptr);
    if (bytes > 0) {
      binary.code.assign(bytes + 1, kIsBinary);
      auto* to = reinterpret_cast<unsigned char*>(binary.code.data() + 1);
      check(api()->get_program_info(owner.program, cl::kProgramBinaries, sizeof to, &to, nullptr),
            "reading the binary of kernel " + source.name);
    } else {
      binary.code = kIsSource + options + '\0' + source.text;
    }
    binary.compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return binary;
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    open();
    auto kernel = std::make_shared<OpenClKernel>(binary, source.entry);
    kernel->handles[context_] = make_handle(*kernel, context_);
    return kernel;
  }

  KernelResources resources(const Kernel& kernel, const KernelSource& source) const override {
    const auto& k = static_cast<const OpenClKernel&>(kernel);
    const std::lock_guard lock(k.mutex);
    const auto ask = [&](cl::Uint what, auto value) {
      if (k.handles.empty() || api()->get_kernel_group_info(k.handles.begin()->second, device_, what,
                                                            sizeof value, &value, nullptr) != cl::kSuccess) {
        return std::int64_t{-1};
      }
      return static_cast<std::int64_t>(value);
    };
    KernelResources r;
    r.block_threads = static_cast<int>(ask(cl::kKernelGroupSize, std::size_t{0}));
    r.wave_threads = static_cast<int>(ask(cl::kKernelGroupMultiple, std::size_t{0}));
    r.local_bytes = ask(cl::kKernelLocalBytes, std::uint64_t{0});
    r.spilled_bytes = ask(cl::kKernelPrivateBytes, std::uint64_t{0});
    if (tells_resources_) read_ptxas_log(k.log, source, nvidia_, r);
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
    const auto& k = static_cast<const OpenClKernel&>(kernel);
    const cl::Queue queue = queue_of(stream);
    const auto what = [&] { return "kernel " + k.entry + " on " + info_.id; };
    const std::lock_guard lock(k.mutex);
    const cl::KernelHandle handle = handle_for(k, queue);
    cl::Uint index = 0;
    for (const Argument& argument : arguments) {
      if (argument.is_address) {
        const cl::Place place = find(*static_cast<void* const*>(argument.value), what);
        check(api()->set_kernel_argument(handle, index++, sizeof place.buffer, &place.buffer), what());
        check(api()->set_kernel_argument(handle, index++, sizeof place.offset, &place.offset), what());
      } else {
        check(api()->set_kernel_argument(handle, index++, argument.bytes, argument.value), what());
      }
    }
    std::size_t global[3], local[3];
    for (int i = 0; i < 3; ++i) {
      local[i] = shape.block[i];
      global[i] = std::size_t{shape.grid[i]} * shape.block[i];
    }
    const bool recording = recorder != nullptr && recorder->device == this;
    cl::Event event = nullptr;
    check(api()->enqueue_kernel(queue, handle, 3, nullptr, global, local, 0, nullptr,
                                recording ? &event : nullptr),
          "launching " + what());
    if (event != nullptr) recorder->events.push_back(event);
  }

  // From the first command's start to the last one's end by the device's clock; by the host's where the
  // device has none.
  double time_ms(const Stream& stream, const std::function<void()>& work) override {
    open();
    const cl::Queue queue = queue_of(stream);
    check(api()->finish(queue), "waiting for " + info_.id);
    Recorder mine{this, {}};
    struct Restore {
      Recorder* outer = recorder;
      Recorder* mine;
      ~Restore() {
        recorder = outer;
        for (const cl::Event event : mine->events) api()->release_event(event);
      }
    } restore{recorder, &mine};
    recorder = &mine;
    const auto begin = std::chrono::steady_clock::now();
    work();
    check(api()->finish(queue), "waiting for " + info_.id);
    const double wall =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    // rusticl on llvmpipe stamps the submission alone: a kernel of a second took a nanosecond.
    if (info_.has("runs_on_cpu")) return wall;
    std::uint64_t start = ~std::uint64_t{0}, end = 0;
    for (const cl::Event event : mine.events) {
      std::uint64_t from = 0, to = 0;
      if (api()->get_event_profile(event, cl::kProfilingStart, sizeof from, &from, nullptr) != cl::kSuccess ||
          api()->get_event_profile(event, cl::kProfilingEnd, sizeof to, &to, nullptr) != cl::kSuccess) {
        return wall;
      }
      start = std::min(start, from);
      end = std::max(end, to);
    }
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
    const cl::Place place = find(to.pointer, what);
    check(
        api()->enqueue_write(queue_, place.buffer, cl::kTrue, place.offset, bytes, from, 0, nullptr, nullptr),
        what());
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    if (bytes == 0) return;
    open();
    const auto what = [&] { return "copying " + std::to_string(bytes) + " bytes from " + info_.id; };
    const cl::Place place = find(from.pointer, what);
    check(api()->enqueue_read(queue_, place.buffer, cl::kTrue, place.offset, bytes, to, 0, nullptr, nullptr),
          what());
  }

  Ceilings measure_ceilings(int) override;

 private:
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
  cl::Place find(const void* address, const What& what) const {
    if (address == nullptr) return {};
    const cl::Place place = cl::locate(address);
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
    void* address = cl::reserve_range(mem, bytes, this);
    return {std::shared_ptr<void>(address, [holder](void* begin) { cl::release_range(begin); }), address,
            bytes};
  }

  std::string build_log(cl::Program program) const {
    return text_of(api()->get_build_info, program, device_, cl::kProgramBuildLog);
  }

  void build(const ProgramOwner& owner, const std::string& options, const std::string& what) const {
    const cl::Int code = api()->build_program(owner.program, 1, &device_, options.c_str(), nullptr, nullptr);
    if (code == cl::kSuccess) return;
    throw Error(Status::device_error, what + " does not compile on " + info_.id + " (" + info_.driver +
                                          "): " + cl::error_name(code) + "; options " + options +
                                          "; log: " + build_log(owner.program));
  }

  void build_source(ProgramOwner& owner, cl::Context context, const std::string& text,
                    const std::string& options, const std::string& what) const {
    cl::Int error = 0;
    const char* begin = text.c_str();
    const std::size_t length = text.size();
    owner.program = api()->create_program(context, 1, &begin, &length, &error);
    check(error, "reading " + what);
    build(owner, options, what);
  }

  cl::KernelHandle make_handle(const OpenClKernel& kernel, cl::Context context) const {
    const std::string what = "kernel " + kernel.entry;
    ProgramOwner owner;
    cl::Int error = 0;
    if (kernel.code.starts_with(kIsBinary)) {
      const auto* begin = reinterpret_cast<const unsigned char*>(kernel.code.data() + 1);
      const std::size_t length = kernel.code.size() - 1;
      cl::Int status = 0;
      owner.program =
          api()->create_program_from_binary(context, 1, &device_, &length, &begin, &status, &error);
      check(error, "loading the binary of " + what);
      build(owner, "", "the binary of " + what);
    } else if (kernel.code.starts_with(kIsSource)) {
      const std::size_t end = kernel.code.find('\0');
      if (end == std::string::npos) throw Error(Status::bad_file, what + ": its stored code is damaged");
      build_source(owner, context, kernel.code.substr(end + 1), kernel.code.substr(1, end - 1), what);
    } else {
      throw Error(Status::bad_file, what + ": its stored code is no OpenCL program");
    }
    const cl::KernelHandle handle = api()->create_kernel(owner.program, kernel.entry.c_str(), &error);
    check(error, "finding " + what + " in its program");
    return handle;
  }

  // Called with the kernel's mutex held.
  cl::KernelHandle handle_for(const OpenClKernel& kernel, cl::Queue queue) const {
    cl::Context context = context_;
    if (queue != queue_) {
      check(api()->get_queue_info(queue, cl::kQueueContext, sizeof context, &context, nullptr),
            "asking the caller's queue for its context");
    }
    const auto found = kernel.handles.find(context);
    if (found != kernel.handles.end()) return found->second;
    return kernel.handles[context] = make_handle(kernel, context);
  }

  DeviceInfo info_;
  cl::DeviceId device_;
  std::size_t largest_ = 0;
  bool tells_resources_ = false;
  UnitLimits nvidia_;
  std::once_flag once_;
  cl::Context context_ = nullptr;
  cl::Queue queue_ = nullptr;
};

constexpr const char* kCeilingKernels = R"(
__kernel void copy_f32x4(__global const float4* from, ulong skip_from, __global float4* to, ulong skip_to) {
  to[get_global_id(0)] = from[get_global_id(0)];
}
#ifdef TYPE
#if FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
// Eight chains that do not wait for each other.
__kernel void multiply_add(__global float* sink, ulong skip, int rounds, float a, float b) {
  const TYPE x = (TYPE)(a), y = (TYPE)(b);
  TYPE s0 = y, s1 = y, s2 = y, s3 = y, s4 = y, s5 = y, s6 = y, s7 = y;
  for (int i = 0; i < rounds; ++i) {
    s0 = mad(s0, x, y), s1 = mad(s1, x, y), s2 = mad(s2, x, y), s3 = mad(s3, x, y);
    s4 = mad(s4, x, y), s5 = mad(s5, x, y), s6 = mad(s6, x, y), s7 = mad(s7, x, y);
  }
  const TYPE sum = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
  float total = 0;
  for (int i = 0; i < (int)(sizeof(TYPE) / sizeof(SCALAR)); ++i) total += (float)((const SCALAR*)&sum)[i];
  sink[get_global_id(0)] = total;
}
#endif
)";

// Each rate is the best of a few launches, long enough that their beginning does not count.
Ceilings OpenClDeviceImpl::measure_ceilings(int) {
  const bool slow = info_.has("runs_on_cpu");
  const auto best_ms = [&](const Kernel& kernel, unsigned blocks, unsigned threads,
                           std::initializer_list<Argument> arguments) {
    double best = 0;
    for (int run = 0; run < 5; ++run) {
      LaunchShape shape;
      shape.grid[0] = blocks;
      shape.block[0] = threads;
      const double ms = time_ms({}, [&] { launch(kernel, shape, arguments, {}); });
      if (run > 0 && (best == 0 || ms < best)) best = ms;
    }
    return best;
  };
  const auto kernel = [&](const char* entry, std::vector<std::string> options) {
    const KernelSource source{std::string("ceilings ") + entry, kCeilingKernels, entry, std::move(options)};
    return load(compile(source), source);
  };
  Ceilings ceilings;
  constexpr unsigned kThreads = 256;
  {
    const std::size_t bytes = std::min(std::max<std::size_t>(4 * info_.cache_bytes, std::size_t{64} << 20),
                                       std::min(largest_, info_.memory_bytes / 8));
    const auto blocks = static_cast<unsigned>(bytes / 16 / kThreads);
    const Buffer from = allocate(bytes), to = allocate(bytes);
    const double ms = best_ms(*kernel("copy_f32x4", {}), blocks, kThreads, {from.pointer, to.pointer});
    ceilings.copy_gbps = 2.0 * 16 * kThreads * blocks / ms * 1e-6;
  }
  const auto arithmetic = [&](const std::string& type, int width) {
    const int rounds = slow ? 256 : 4096;
    const unsigned blocks = static_cast<unsigned>(info_.units) * (slow ? 16 : 32);
    const Buffer sink = allocate(std::size_t{blocks} * kThreads * 4);
    const double ms =
        best_ms(*kernel("multiply_add",
                        {"-DTYPE=" + type, std::string("-DSCALAR=") + (type[0] == 'h' ? "half" : "float"),
                         std::string("-DFP16=") + (type[0] == 'h' ? "1" : "0")}),
                blocks, kThreads, {sink.pointer, rounds, 0.999f, 0.001f});
    constexpr double kChains = 8;
    return 2.0 * kChains * width * rounds * kThreads * blocks / ms * 1e-6;
  };
  // Scalars for what runs as one lane of many, vectors for devices whose work-items own vectors.
  ceilings.f32_gflops =
      std::max(arithmetic("float", 1), arithmetic(slow ? "float16" : "float4", slow ? 16 : 4));
  ceilings.tf32_gflops = ceilings.f16_gflops = ceilings.bf16_gflops = ceilings.f32_gflops;
  if (info_.has("fp16")) ceilings.f16_gflops = std::max(ceilings.f32_gflops, arithmetic("half2", 2));
  return ceilings;
}

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
