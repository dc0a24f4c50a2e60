#include "src/backend/vulkan_queue.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "faltung/faltung.hpp"

namespace faltung::vulkan {
namespace {

// All that was written is there for all that comes, the host among it.
void order(VkCommandBuffer commands) {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT | VK_ACCESS_HOST_READ_BIT;
  api()->CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                            VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier,
                            0, nullptr, 0, nullptr);
}

}  // namespace

Features::Features(VkPhysicalDevice physical) {
  of_12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  of_11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  all.pNext = &of_12, of_12.pNext = &of_11;
  unsigned count = 0;
  if (api()->EnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr) == VK_SUCCESS) {
    extensions_.resize(count);
    api()->EnumerateDeviceExtensionProperties(physical, nullptr, &count, extensions_.data());
    extensions_.resize(count);
  }
  tells_resources.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR;
  if (has(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) of_11.pNext = &tells_resources;
  api()->GetPhysicalDeviceFeatures2(physical, &all);
  all.features.robustBufferAccess = VK_FALSE;  // it costs a comparison an access
}

bool Features::has(const char* extension) const {
  return std::any_of(extensions_.begin(), extensions_.end(), [&](const VkExtensionProperties& e) {
    return std::strcmp(e.extensionName, extension) == 0;
  });
}

bool Features::suffice() const {
  return has(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME) && all.features.shaderInt64 != 0 &&
         all.features.shaderInt16 != 0 && of_12.shaderInt8 != 0 && of_12.storageBuffer8BitAccess != 0 &&
         of_11.storageBuffer16BitAccess != 0;
}

Queue::Queue(VkPhysicalDevice physical, unsigned family, std::string name)
    : physical_(physical),
      name_(std::move(name)),
      submitting_("submitting to " + name_),
      waiting_("waiting for " + name_) {
  try {
    open(family);
  } catch (...) {  // no destructor runs
    close();
    throw;
  }
}

void Queue::open(unsigned family) {
  const Features features(physical_);
  tells_resources_ = features.tells_resources.pipelineExecutableInfo != 0;
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  const char* const extensions[] = {VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME,
                                    VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME};
  VkDeviceCreateInfo wanted{};
  wanted.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  wanted.pNext = &features.all;
  wanted.queueCreateInfoCount = 1;
  wanted.pQueueCreateInfos = &queue;
  wanted.enabledExtensionCount = tells_resources_ ? 2 : 1;
  wanted.ppEnabledExtensionNames = extensions;
  check(api()->CreateDevice(physical_, &wanted, nullptr, &device_), "opening " + name_);
  api()->GetDeviceQueue(device_, family, 0, &queue_);

  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = family;
  check(api()->CreateCommandPool(device_, &pool, nullptr, &pool_), "making commands for " + name_);
  VkCommandBufferAllocateInfo commands{};
  commands.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  commands.commandPool = pool_;
  commands.commandBufferCount = kInFlight;
  check(api()->AllocateCommandBuffers(device_, &commands, commands_.data()), "making commands for " + name_);

  unsigned count = 0;
  api()->GetPhysicalDeviceQueueFamilyProperties(physical_, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  api()->GetPhysicalDeviceQueueFamilyProperties(physical_, &count, families.data());
  if (families[family].timestampValidBits > 0) {
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    api()->GetPhysicalDeviceProperties2(physical_, &properties);
    tick_ns_ = static_cast<double>(properties.properties.limits.timestampPeriod);
    tick_bits_ = families[family].timestampValidBits;
    VkQueryPoolCreateInfo stamps{};
    stamps.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    stamps.queryType = VK_QUERY_TYPE_TIMESTAMP;
    stamps.queryCount = 2;
    check(api()->CreateQueryPool(device_, &stamps, nullptr, &stamps_), "making a clock for " + name_);
  }
}

Queue::~Queue() { close(); }

// Destroying what is null does nothing, but for the queue, which is there where the device is.
void Queue::close() {
  if (device_ == VK_NULL_HANDLE) return;
  if (next_ > 0) api()->QueueWaitIdle(queue_);
  free(staging_.memory);
  api()->DestroyQueryPool(device_, stamps_, nullptr);
  api()->DestroyCommandPool(device_, pool_, nullptr);
  api()->DestroyDevice(device_, nullptr);
}

Memory Queue::allocate(std::size_t bytes, VkMemoryPropertyFlags flags, const std::string& what) const {
  Memory made;
  VkBufferCreateInfo buffer{};
  buffer.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer.size = bytes;
  buffer.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  check(api()->CreateBuffer(device_, &buffer, nullptr, &made.buffer), what);
  try {
    VkMemoryRequirements needs{};
    api()->GetBufferMemoryRequirements(device_, made.buffer, &needs);
    VkPhysicalDeviceMemoryProperties memory{};
    api()->GetPhysicalDeviceMemoryProperties(physical_, &memory);
    unsigned type = 0;
    while (type < memory.memoryTypeCount && ((needs.memoryTypeBits >> type & 1) == 0 ||
                                             (memory.memoryTypes[type].propertyFlags & flags) != flags))
      ++type;
    if (type == memory.memoryTypeCount)
      throw Error(Status::out_of_memory, what + ": the driver has no memory of that kind");
    VkMemoryAllocateInfo wanted{};
    wanted.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    wanted.allocationSize = needs.size;
    wanted.memoryTypeIndex = type;
    check(api()->AllocateMemory(device_, &wanted, nullptr, &made.memory), what);
    check(api()->BindBufferMemory(device_, made.buffer, made.memory, 0), what);
  } catch (...) {
    free(made);
    throw;
  }
  return made;
}

void Queue::free(const Memory& memory) const {
  api()->DestroyBuffer(device_, memory.buffer, nullptr);
  api()->FreeMemory(device_, memory.memory, nullptr);
}

VkCommandBuffer Queue::begin_locked() {
  if (next_ == kInFlight) wait_locked();
  VkCommandBuffer commands = commands_[next_++];
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(api()->BeginCommandBuffer(commands, &begin), submitting_);
  order(commands);
  return commands;
}

void Queue::end_locked(VkCommandBuffer commands) {
  order(commands);
  check(api()->EndCommandBuffer(commands), submitting_);
  VkSubmitInfo submit{};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands;
  check(api()->QueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE), submitting_);
}

void Queue::wait() {
  const std::lock_guard lock(mutex_);
  wait_locked();
}

// RADV's null device, which only compiles, has no queue to wait for.
void Queue::wait_locked() {
  if (next_ == 0) return;
  check(api()->QueueWaitIdle(queue_), waiting_);
  next_ = 0;
}

const Queue::Staging& Queue::staging() {
  if (staging_.mapped == nullptr) {
    const std::string what = "making a place for copies to " + name_;
    // What an earlier call made and could not map is mapped now.
    if (staging_.memory.buffer == VK_NULL_HANDLE)
      staging_.memory = allocate(
          kStagingBytes, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, what);
    check(api()->MapMemory(device_, staging_.memory.memory, 0, VK_WHOLE_SIZE, 0, &staging_.mapped), what);
  }
  return staging_;
}

void Queue::copy_in(VkBuffer to, std::size_t offset, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Staging& between = staging();
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(kStagingBytes, bytes - done);
    std::memcpy(between.mapped, static_cast<const char*>(from) + done, part);
    const VkBufferCopy region{0, offset + done, part};
    submit_locked([&](VkCommandBuffer commands) {
      api()->CmdCopyBuffer(commands, between.memory.buffer, to, 1, &region);
    });
    wait_locked();
    done += part;
  }
}

void Queue::copy_out(void* to, VkBuffer from, std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Staging& between = staging();
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(kStagingBytes, bytes - done);
    const VkBufferCopy region{offset + done, 0, part};
    submit_locked([&](VkCommandBuffer commands) {
      api()->CmdCopyBuffer(commands, from, between.memory.buffer, 1, &region);
    });
    wait_locked();
    std::memcpy(static_cast<char*>(to) + done, between.mapped, part);
    done += part;
  }
}

double Queue::time_ns(const std::function<void()>& work) {
  const std::lock_guard lock(timing_);
  wait();
  const auto stamp = [this](unsigned index) {
    if (tick_ns_ == 0) return;
    submit([&](VkCommandBuffer commands) {
      api()->CmdResetQueryPool(commands, stamps_, index, 1);
      api()->CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps_, index);
    });
  };
  stamp(0);
  work();
  stamp(1);
  wait();
  if (tick_ns_ == 0) return -1;
  std::uint64_t ticks[2] = {};
  check(api()->GetQueryPoolResults(device_, stamps_, 0, 2, sizeof ticks, ticks, sizeof ticks[0],
                                   VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
        "reading the clock of " + name_);
  const std::uint64_t valid = ~std::uint64_t{0} >> (64 - tick_bits_);  // it wraps around
  return static_cast<double>((ticks[1] - ticks[0]) & valid) * tick_ns_;
}

}  // namespace faltung::vulkan
