// The functions used of Vulkan, through the loader's library, which is opened at run time.
#ifndef FALTUNG_SRC_BACKEND_VULKAN_API_HPP_
#define FALTUNG_SRC_BACKEND_VULKAN_API_HPP_

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <string>

namespace faltung::vulkan {

// clang-format off
#define FALTUNG_VULKAN_FUNCTIONS(each) \
  each(EnumeratePhysicalDevices) each(EnumerateDeviceExtensionProperties) each(GetPhysicalDeviceProperties2) \
  each(GetPhysicalDeviceFeatures2) each(GetPhysicalDeviceMemoryProperties) \
  each(GetPhysicalDeviceQueueFamilyProperties) each(CreateDevice) each(DestroyDevice) each(GetDeviceQueue) \
  each(CreateBuffer) each(DestroyBuffer) each(GetBufferMemoryRequirements) each(AllocateMemory) each(FreeMemory) \
  each(BindBufferMemory) each(MapMemory) each(CreateShaderModule) each(DestroyShaderModule) \
  each(CreateDescriptorSetLayout) each(DestroyDescriptorSetLayout) each(CreatePipelineLayout) \
  each(DestroyPipelineLayout) each(CreateComputePipelines) each(DestroyPipeline) each(CreateCommandPool) \
  each(DestroyCommandPool) each(AllocateCommandBuffers) each(BeginCommandBuffer) each(EndCommandBuffer) \
  each(CmdPipelineBarrier) each(CmdBindPipeline) each(CmdPushDescriptorSetKHR) each(CmdPushConstants) \
  each(CmdDispatch) each(CmdCopyBuffer) each(CmdResetQueryPool) each(CmdWriteTimestamp) each(CreateQueryPool) \
  each(DestroyQueryPool) each(GetQueryPoolResults) each(QueueSubmit) each(QueueWaitIdle) \
  each(DestroyInstance) each(GetPipelineExecutablePropertiesKHR) \
  each(GetPipelineExecutableStatisticsKHR)
// clang-format on

struct Api {
  VkInstance instance;
  PFN_vkCreateInstance CreateInstance;
#define FALTUNG_VULKAN_MEMBER(name) PFN_vk##name name;
  FALTUNG_VULKAN_FUNCTIONS(FALTUNG_VULKAN_MEMBER)
#undef FALTUNG_VULKAN_MEMBER
};

// Null where there is no loader, or it makes no instance of Vulkan 1.2; missing() then says which.
const Api* api();
const std::string& missing();

// An instance of Vulkan 1.2; null where it makes none.
VkInstance new_instance(PFN_vkCreateInstance create);

// What a device says of itself, and of its driver.
struct Properties {
  explicit Properties(VkPhysicalDevice physical);
  VkPhysicalDeviceVulkan12Properties driver{};
  VkPhysicalDeviceProperties device{};
};

// Throws what another answer than success says, after `what` was being done.
void check(VkResult result, const std::string& what);

}  // namespace faltung::vulkan

#endif  // FALTUNG_SRC_BACKEND_VULKAN_API_HPP_
