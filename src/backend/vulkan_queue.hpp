// A Vulkan device that was opened, with one queue of it: what is submitted runs in that order, and sees what
// was submitted before.
#ifndef FALTUNG_SRC_BACKEND_VULKAN_QUEUE_HPP_
#define FALTUNG_SRC_BACKEND_VULKAN_QUEUE_HPP_

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "src/backend/vulkan_api.hpp"

namespace faltung::vulkan {

// What a driver can of that which clspv's code asks for, as vkGetPhysicalDeviceFeatures2 fills it in.
struct Features {
  VkPhysicalDeviceVulkan12Features of_12{};
  VkPhysicalDeviceVulkan11Features of_11{};
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR tells_resources{};
  VkPhysicalDeviceFeatures2 all{};

  explicit Features(VkPhysicalDevice physical);
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
  bool has(const char* extension) const;
  // 64-, 16- and 8-bit integers, in memory too, and buffers that commands bring.
  bool suffice() const;

 private:
  std::vector<VkExtensionProperties> extensions_;
};

struct Memory {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
};

class Queue {
 public:
  // name: the device's, for messages.
  Queue(VkPhysicalDevice physical, unsigned family, std::string name);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  VkDevice device() const { return device_; }
  // Whether the driver says what became of a kernel.
  bool tells_resources() const { return tells_resources_; }
  Memory allocate(std::size_t bytes, VkMemoryPropertyFlags flags, const std::string& what) const;
  void free(const Memory& memory) const;

  // record(VkCommandBuffer) says what to run. Allocates nothing: a plan's run submits its launches.
  template <class Record>
  void submit(const Record& record) {
    const std::lock_guard lock(mutex_);
    submit_locked(record);
  }
  void wait();
  void copy_in(VkBuffer to, std::size_t offset, const void* from, std::size_t bytes);
  void copy_out(void* to, VkBuffer from, std::size_t offset, std::size_t bytes);
  // Nanoseconds on the device from before `work`, which submits, to when all is done; negative where the
  // queue has no clock.
  double time_ns(const std::function<void()>& work);

 private:
  // So many submissions, and the next one waits until the device is idle.
  static constexpr unsigned kInFlight = 256;
  static constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
  struct Staging {
    Memory memory;
    void* mapped = nullptr;
  };
  const Staging& staging();
  void open(unsigned family);
  void close();
  // With the mutex held.
  template <class Record>
  void submit_locked(const Record& record) {
    VkCommandBuffer commands = begin_locked();
    record(commands);
    end_locked(commands);
  }
  VkCommandBuffer begin_locked();
  void end_locked(VkCommandBuffer commands);
  void wait_locked();

  VkPhysicalDevice physical_;
  const std::string name_, submitting_, waiting_;
  bool tells_resources_ = false;
  double tick_ns_ = 0;  // 0: the queue has no clock
  unsigned tick_bits_ = 64;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkQueryPool stamps_ = VK_NULL_HANDLE;
  std::array<VkCommandBuffer, kInFlight> commands_{};
  unsigned next_ = 0;  // of those, the first that no submission has
  Staging staging_;
  std::mutex mutex_, timing_;
};

}  // namespace faltung::vulkan

#endif  // FALTUNG_SRC_BACKEND_VULKAN_QUEUE_HPP_
