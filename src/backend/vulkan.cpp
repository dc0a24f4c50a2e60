#include "src/backend/vulkan.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "src/backend/buffer_addresses.hpp"
#include "src/backend/clspv.hpp"
#include "src/backend/vulkan_kernel.hpp"

namespace faltung {
namespace {

namespace vk = vulkan;

// What Vulkan itself does not tell, from the makers' extensions where there are any.
int number_of_units(VkPhysicalDevice physical, const vk::Features& features) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{};
  nvidia.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
  VkPhysicalDeviceShaderCorePropertiesAMD amd{};
  amd.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD;
  VkPhysicalDeviceProperties2 all{};
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  if (features.has(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) all.pNext = &nvidia;
  if (features.has(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) all.pNext = &amd;
  vk::api()->GetPhysicalDeviceProperties2(physical, &all);
  const unsigned told =
      std::max(nvidia.shaderSMCount,
               amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray);
  constexpr unsigned kUsualUnits = 32;
  return static_cast<int>(told > 0 ? told : kUsualUnits);
}

class VulkanDevice : public Device {
 public:
  VulkanDevice(int ordinal, VkPhysicalDevice physical, unsigned family, const vk::Properties& properties)
      : physical_(physical), family_(family) {
    const VkPhysicalDeviceProperties& p = properties.device;
    const VkPhysicalDeviceVulkan12Properties& driver = properties.driver;
    info_.id = "vulkan:" + std::to_string(ordinal);
    info_.kind = "gpu";
    info_.dialect = "opencl";
    info_.description = p.deviceName;
    info_.driver = std::string(driver.driverName) + " " + driver.driverInfo + ", " + Clspv::get()->identity();
    VkPhysicalDeviceMemoryProperties memory{};
    vk::api()->GetPhysicalDeviceMemoryProperties(physical, &memory);
    for (unsigned i = 0; i < memory.memoryHeapCount; ++i) {
      if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0)
        info_.memory_bytes = std::max<std::size_t>(info_.memory_bytes, memory.memoryHeaps[i].size);
    }
    info_.local_bytes = p.limits.maxComputeSharedMemorySize;
    info_.block_threads = static_cast<int>(
        std::min(p.limits.maxComputeWorkGroupInvocations, p.limits.maxComputeWorkGroupSize[0]));
    largest_ = std::min<std::size_t>(p.limits.maxStorageBufferRange, info_.memory_bytes);
    push_constant_bytes_ = p.limits.maxPushConstantsSize;
    std::copy_n(p.limits.maxComputeWorkGroupCount, most_blocks_.size(), most_blocks_.begin());
    info_.unit = unit_limits(info_.description);
    info_.features = {"vulkan"};
    if (driver.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY) info_.features.emplace_back("large_registers");
    info_.units = number_of_units(physical, vk::Features(physical));
    // No feature runs_on_cpu: lavapipe runs what the others do, of which it is the test. (clspv makes wrong
    // code of the kernels' compact loops for CPUs: docs/notes/vulkan.md.)
    by_host_clock_ = p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    // Vulkan does not tell how large a cache is: so much is more than most, and what is timed beyond it is
    // timed from memory.
    constexpr std::size_t kUsualCacheBytes = std::size_t{64} << 20;
    if (!by_host_clock_) info_.cache_bytes = kUsualCacheBytes;
    info_.key = "vulkan-" + info_.description + "-" + info_.driver + "-" + std::to_string(p.driverVersion);
    std::replace(info_.key.begin(), info_.key.end(), ' ', '_');
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    return Clspv::get()->compile(source, push_constant_bytes_);
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    return std::make_shared<vk::ComputeKernel>(queue(), binary, source.entry, push_constant_bytes_);
  }

  // OpenCL's kernels take an address as a buffer and the bytes to skip in it: two parameters.
  using Device::launch;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream& stream) override {
    const auto& k = static_cast<const vk::ComputeKernel&>(kernel);
    constexpr std::size_t kMost = vk::ComputeKernel::kMostParameters;
    const auto what = [&] { return "launching kernel " + k.entry + " on " + info_.id; };
    own_queue_alone(stream);
    for (std::size_t axis = 0; axis < most_blocks_.size(); ++axis) {
      if (shape.grid[axis] > most_blocks_[axis])
        throw Error(Status::unsupported, what() + ": " + std::to_string(shape.grid[axis]) +
                                             " blocks along an axis; it runs " +
                                             std::to_string(most_blocks_[axis]));
    }
    // On the stack: a run of a plan allocates nothing.
    std::array<Argument, kMost> parameters;
    std::array<void*, kMost> buffer_of{};
    std::array<std::uint64_t, kMost> skipped;
    std::size_t count = 0;
    for (const Argument& argument : arguments) {
      if (count + 2 > kMost) throw Error(Status::internal, what() + ": more parameters than it takes");
      parameters[count++] = argument;
      if (!argument.is_address) continue;
      const BufferPlace place = find(*static_cast<void* const*>(argument.value), what);
      buffer_of[count - 1] = place.buffer;
      skipped[count] = place.offset;
      parameters[count] = skipped[count];
      ++count;
    }
    std::array<unsigned char, vk::ComputeKernel::kMostValueBytes> values{};
    std::array<VkDescriptorBufferInfo, kMost> buffers;
    std::array<VkWriteDescriptorSet, kMost> writes;
    unsigned written = 0;
    for (const SpirvArgument& wanted : k.arguments) {
      const bool is_value = wanted.kind == SpirvArgument::Kind::push_constant;
      if (wanted.ordinal >= count || is_value == parameters[wanted.ordinal].is_address ||
          (is_value && parameters[wanted.ordinal].bytes != wanted.bytes))
        throw Error(Status::internal, what() + ": parameter " + std::to_string(wanted.ordinal) +
                                          " is not what the kernel takes");
      if (is_value) {
        std::memcpy(values.data() + wanted.place, parameters[wanted.ordinal].value, wanted.bytes);
        continue;
      }
      void* const buffer = buffer_of[wanted.ordinal];
      if (buffer == nullptr)
        throw Error(Status::bad_problem, what() + ": an address that it reads or writes is null");
      buffers[written] = {static_cast<VkBuffer>(buffer), 0, VK_WHOLE_SIZE};
      VkWriteDescriptorSet write{};
      write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
      write.dstBinding = wanted.place;
      write.descriptorCount = 1;
      write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
      write.pBufferInfo = &buffers[written];
      writes[written++] = write;
    }
    queue()->submit([&](VkCommandBuffer commands) {
      vk::api()->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.pipeline);
      if (written > 0)
        vk::api()->CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.layout, 0, written,
                                           writes.data());
      if (k.value_bytes > 0)
        vk::api()->CmdPushConstants(commands, k.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, k.value_bytes,
                                    values.data());
      vk::api()->CmdDispatch(commands, shape.grid[0], shape.grid[1], shape.grid[2]);
    });
  }

  // By the device's clock; by the host's where it has none, or is the host.
  double time_ms(const Stream& stream, const std::function<void()>& work) override {
    own_queue_alone(stream);
    queue()->wait();
    const auto begin = std::chrono::steady_clock::now();
    const double ns = queue()->time_ns(work);
    const double wall =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return ns > 0 && !by_host_clock_ ? ns * 1e-6 : wall;
  }

  void synchronize(const Stream& stream) override {
    own_queue_alone(stream);
    queue()->wait();
  }

  Buffer allocate(std::size_t bytes) override {
    const std::string what = "allocating " + std::to_string(bytes) + " bytes on " + info_.id;
    if (bytes > largest_) {
      throw Error(Status::out_of_memory,
                  what + ": its largest buffer may have " + std::to_string(largest_) + " bytes");
    }
    const std::shared_ptr<vk::Queue> queue = this->queue();
    const vk::Memory memory =
        queue->allocate(std::max<std::size_t>(bytes, 16), VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, what);
    // Held before there is a range of addresses, which may be refused.
    const std::shared_ptr<const vk::Memory> held(new vk::Memory(memory), [queue](const vk::Memory* freed) {
      try {
        queue->wait();
      } catch (const Error&) {  // lost: nothing runs
      }
      queue->free(*freed);
      delete freed;
    });
    void* const address = reserve_range(memory.buffer, bytes, this);
    return {std::shared_ptr<void>(address, [held](void* begin) { release_range(begin); }), address, bytes};
  }

  void copy_in(const Buffer& to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    const BufferPlace place = find_for_copy(to.pointer, bytes);
    queue()->copy_in(static_cast<VkBuffer>(place.buffer), place.offset, from, bytes);
  }
  void copy_out(void* to, const Buffer& from, std::size_t bytes) override {
    if (bytes == 0) return;
    const BufferPlace place = find_for_copy(from.pointer, bytes);
    queue()->copy_out(to, static_cast<VkBuffer>(place.buffer), place.offset, bytes);
  }

 private:
  // Opened when the device is first used: a list of devices wakes none.
  std::shared_ptr<vk::Queue> queue() {
    std::call_once(once_, [&] { queue_ = std::make_shared<vk::Queue>(physical_, family_, info_.id); });
    return queue_;
  }

  void own_queue_alone(const Stream& stream) const {
    if (stream.native != nullptr)
      throw Error(Status::unsupported,
                  info_.id + " runs on a queue of its own: leave RunOptions::stream null");
  }

  // Null stays null: an argument that the kernel does not use.
  template <class What>
  BufferPlace find(const void* address, const What& what) const {
    if (address == nullptr) return {};
    const BufferPlace place = locate(address);
    if (place.buffer == nullptr || place.device != this) {
      throw Error(Status::bad_problem, what() + ": a pointer is no memory of " + info_.id +
                                           "; allocate it with a MemoryPool of " + info_.id);
    }
    return place;
  }
  BufferPlace find_for_copy(const void* address, std::size_t bytes) const {
    const auto what = [&] { return "copying " + std::to_string(bytes) + " bytes to or from " + info_.id; };
    const BufferPlace place = find(address, what);
    if (bytes > place.bytes_left) throw Error(Status::bad_problem, what() + ": the buffer has fewer");
    return place;
  }

  DeviceInfo info_;
  VkPhysicalDevice physical_;
  unsigned family_;
  std::size_t largest_ = 0;
  unsigned push_constant_bytes_ = 0;
  std::array<unsigned, 3> most_blocks_{};
  bool by_host_clock_ = false;
  std::once_flag once_;
  std::shared_ptr<vk::Queue> queue_;
};

// The first family of queues that computes.
std::optional<unsigned> computing_family(VkPhysicalDevice physical) {
  unsigned count = 0;
  vk::api()->GetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk::api()->GetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  for (unsigned i = 0; i < count; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::shared_ptr<Device>> make_vulkan_devices() {
  std::vector<std::shared_ptr<Device>> devices;
  unsigned count = 0;
  if (Clspv::get() == nullptr || vk::api() == nullptr ||
      vk::api()->EnumeratePhysicalDevices(vk::api()->instance, &count, nullptr) != VK_SUCCESS) {
    return devices;
  }
  std::vector<VkPhysicalDevice> all(count);
  if (vk::api()->EnumeratePhysicalDevices(vk::api()->instance, &count, all.data()) != VK_SUCCESS)
    return devices;
  for (VkPhysicalDevice physical : all) {
    const vk::Properties properties(physical);
    const std::optional<unsigned> family = computing_family(physical);
    if (properties.device.apiVersion < VK_API_VERSION_1_2 || !family || !vk::Features(physical).suffice())
      continue;
    const auto device =
        std::make_shared<VulkanDevice>(static_cast<int>(devices.size()), physical, *family, properties);
    if (device->info().memory_bytes > 0) devices.push_back(device);  // RADV's null device has none
  }
  return devices;
}

std::string vulkan_missing() {
  if (Clspv::get() == nullptr) return Clspv::missing();
  if (vk::api() == nullptr) return vk::missing();
  return "Vulkan serves no device of version 1.2 with 8-, 16- and 64-bit integers and push descriptors here";
}

}  // namespace faltung
