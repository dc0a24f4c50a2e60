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
#include "src/backend/spirv_arguments.hpp"
#include "src/backend/vulkan_queue.hpp"

namespace faltung {
namespace {

namespace vk = vulkan;

// A compute pipeline, and what it is told of its arguments.
class VulkanKernel : public Kernel {
 public:
  VulkanKernel(std::shared_ptr<vk::Queue> queue, const Binary& binary, std::string entry,
               unsigned push_constant_bytes)
      : entry(std::move(entry)),
        arguments(spirv_arguments(binary.code, this->entry)),
        queue_(std::move(queue)) {
    const std::string what = "making a pipeline of kernel " + this->entry;
    VkDevice device = queue_->device();
    std::vector<VkDescriptorSetLayoutBinding> bindings;
    for (const SpirvArgument& argument : arguments) {
      if (argument.kind == SpirvArgument::Kind::push_constant) {
        value_bytes = std::max(value_bytes, (argument.place + argument.bytes + 3) / 4 * 4);
        continue;
      }
      bindings.push_back(
          {argument.place, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    }
    if (value_bytes > push_constant_bytes)
      throw Error(Status::unsupported, what + ": its values are " + std::to_string(value_bytes) +
                                           " bytes, push constants may have " +
                                           std::to_string(push_constant_bytes));
    VkDescriptorSetLayoutCreateInfo set{};
    set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
    set.flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;
    set.bindingCount = static_cast<unsigned>(bindings.size());
    set.pBindings = bindings.data();
    try {
      vk::check(vk::api()->CreateDescriptorSetLayout(device, &set, nullptr, &set_), what);
      const VkPushConstantRange values{VK_SHADER_STAGE_COMPUTE_BIT, 0, value_bytes};
      VkPipelineLayoutCreateInfo layout_info{};
      layout_info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
      layout_info.setLayoutCount = 1;
      layout_info.pSetLayouts = &set_;
      layout_info.pushConstantRangeCount = value_bytes > 0 ? 1 : 0;
      layout_info.pPushConstantRanges = &values;
      vk::check(vk::api()->CreatePipelineLayout(device, &layout_info, nullptr, &layout), what);
      VkShaderModuleCreateInfo module_info{};
      module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
      module_info.codeSize = binary.code.size();
      std::vector<std::uint32_t> words(binary.code.size() / 4);
      std::memcpy(words.data(), binary.code.data(), binary.code.size());
      module_info.pCode = words.data();
      vk::check(vk::api()->CreateShaderModule(device, &module_info, nullptr, &module_), what);
      VkComputePipelineCreateInfo wanted{};
      wanted.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
      wanted.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
      wanted.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
      wanted.stage.module = module_;
      wanted.stage.pName = this->entry.c_str();
      wanted.layout = layout;
      vk::check(vk::api()->CreateComputePipelines(device, VK_NULL_HANDLE, 1, &wanted, nullptr, &pipeline),
                what);
    } catch (...) {
      destroy();
      throw;
    }
  }
  // Never while a submission has it.
  ~VulkanKernel() override {
    try {
      queue_->wait();
    } catch (const Error&) {  // the device is lost, and runs nothing
    }
    destroy();
  }
  VulkanKernel(const VulkanKernel&) = delete;
  VulkanKernel& operator=(const VulkanKernel&) = delete;

  const std::string entry;
  const std::vector<SpirvArgument> arguments;
  unsigned value_bytes = 0;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;

 private:
  void destroy() const {
    VkDevice device = queue_->device();
    vk::api()->DestroyPipeline(device, pipeline, nullptr);
    vk::api()->DestroyShaderModule(device, module_, nullptr);
    vk::api()->DestroyPipelineLayout(device, layout, nullptr);
    vk::api()->DestroyDescriptorSetLayout(device, set_, nullptr);
  }
  std::shared_ptr<vk::Queue> queue_;
  VkDescriptorSetLayout set_ = VK_NULL_HANDLE;
  VkShaderModule module_ = VK_NULL_HANDLE;
};

class VulkanDevice : public Device {
 public:
  VulkanDevice(int ordinal, VkPhysicalDevice physical, unsigned family,
               const VkPhysicalDeviceProperties2& chain, const VkPhysicalDeviceVulkan12Properties& driver)
      : physical_(physical), family_(family) {
    const VkPhysicalDeviceProperties& p = chain.properties;
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
    // Vulkan does not tell how many units a GPU has.
    constexpr int kUsualUnits = 32;
    info_.units = kUsualUnits;
    // No feature runs_on_cpu: lavapipe runs what the others do, of which it is the test. (The kernels'
    // compact loops for CPUs come out wrong on it.)
    by_host_clock_ = p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    info_.key = "vulkan-" + info_.description + "-" + info_.driver + "-" + std::to_string(p.driverVersion);
    std::replace(info_.key.begin(), info_.key.end(), ' ', '_');
  }

  const DeviceInfo& info() const override { return info_; }

  Binary compile(const KernelSource& source) override {
    return Clspv::get()->compile(source, push_constant_bytes_);
  }

  std::shared_ptr<Kernel> load(const Binary& binary, const KernelSource& source) override {
    return std::make_shared<VulkanKernel>(queue(), binary, source.entry, push_constant_bytes_);
  }

  // OpenCL's kernels take an address as a buffer and the bytes to skip in it.
  using Device::launch;
  void launch(const Kernel& kernel, const LaunchShape& shape, std::span<const Argument> arguments,
              const Stream& stream) override {
    const auto& k = static_cast<const VulkanKernel&>(kernel);
    const auto what = [&] { return "launching kernel " + k.entry + " on " + info_.id; };
    own_queue_alone(stream);
    for (std::size_t axis = 0; axis < most_blocks_.size(); ++axis) {
      if (shape.grid[axis] > most_blocks_[axis])
        throw Error(Status::unsupported, what() + ": " + std::to_string(shape.grid[axis]) +
                                             " blocks along an axis; it runs " +
                                             std::to_string(most_blocks_[axis]));
    }
    std::vector<BufferPlace> places(arguments.size());
    std::vector<Argument> parameters;
    std::vector<const BufferPlace*> place_of;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      parameters.push_back(arguments[i]);
      place_of.push_back(nullptr);
      if (!arguments[i].is_address) continue;
      places[i] = find(*static_cast<void* const*>(arguments[i].value), what);
      place_of.back() = &places[i];
      parameters.emplace_back(places[i].offset);
      place_of.push_back(nullptr);
    }
    std::vector<unsigned char> values(k.value_bytes);
    std::vector<VkDescriptorBufferInfo> buffers;
    buffers.reserve(k.arguments.size());
    std::vector<VkWriteDescriptorSet> writes;
    for (const SpirvArgument& wanted : k.arguments) {
      const bool is_value = wanted.kind == SpirvArgument::Kind::push_constant;
      if (wanted.ordinal >= parameters.size() || is_value == (place_of[wanted.ordinal] != nullptr) ||
          (is_value && parameters[wanted.ordinal].bytes != wanted.bytes))
        throw Error(Status::internal, what() + ": parameter " + std::to_string(wanted.ordinal) +
                                          " is not what the kernel takes");
      if (is_value) {
        std::memcpy(values.data() + wanted.place, parameters[wanted.ordinal].value, wanted.bytes);
        continue;
      }
      void* const buffer = place_of[wanted.ordinal]->buffer;
      if (buffer == nullptr)
        throw Error(Status::bad_problem, what() + ": an address that it reads or writes is null");
      buffers.push_back({static_cast<VkBuffer>(buffer), 0, VK_WHOLE_SIZE});
      VkWriteDescriptorSet write{};
      write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
      write.dstBinding = wanted.place;
      write.descriptorCount = 1;
      write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
      write.pBufferInfo = &buffers.back();
      writes.push_back(write);
    }
    queue()->submit([&](VkCommandBuffer commands) {
      vk::api()->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.pipeline);
      if (!writes.empty())
        vk::api()->CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.layout, 0,
                                           static_cast<unsigned>(writes.size()), writes.data());
      if (!values.empty())
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

bool has_push_descriptors(VkPhysicalDevice physical) {
  unsigned count = 0;
  if (vk::api()->EnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr) != VK_SUCCESS)
    return false;
  std::vector<VkExtensionProperties> extensions(count);
  if (vk::api()->EnumerateDeviceExtensionProperties(physical, nullptr, &count, extensions.data()) !=
      VK_SUCCESS)
    return false;
  return std::any_of(extensions.begin(), extensions.end(), [](const VkExtensionProperties& e) {
    return std::string(e.extensionName) == VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME;
  });
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
    VkPhysicalDeviceVulkan12Properties driver{};
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &driver;
    vk::api()->GetPhysicalDeviceProperties2(physical, &properties);
    const std::optional<unsigned> family = computing_family(physical);
    if (properties.properties.apiVersion < VK_API_VERSION_1_2 || !family || !has_push_descriptors(physical) ||
        !vk::Features(physical).suffice())
      continue;
    devices.push_back(std::make_shared<VulkanDevice>(static_cast<int>(devices.size()), physical, *family,
                                                     properties, driver));
  }
  return devices;
}

std::string vulkan_missing() {
  if (Clspv::get() == nullptr) return Clspv::missing();
  if (vk::api() == nullptr) return vk::missing();
  return "Vulkan serves no device of version 1.2 with 8-, 16- and 64-bit integers and push descriptors here";
}

}  // namespace faltung
