// A kernel on a Vulkan device: a compute pipeline, what it is told of its arguments, and what the driver says
// became of it.
#ifndef FALTUNG_SRC_BACKEND_VULKAN_KERNEL_HPP_
#define FALTUNG_SRC_BACKEND_VULKAN_KERNEL_HPP_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/spirv_arguments.hpp"
#include "src/backend/vulkan_queue.hpp"

namespace faltung::vulkan {

class ComputeKernel : public Kernel {
 public:
  // Buffers and values a launch may have; BoundLaunch's own limits are lower.
  static constexpr unsigned kMostParameters = 64, kMostValueBytes = 256;

  // binary: SPIR-V of clspv's. Throws Error(unsupported) if it wants more than a launch gives.
  ComputeKernel(std::shared_ptr<Queue> queue, const Binary& binary, std::string entry,
                unsigned push_constant_bytes);
  // Never while a submission has it.
  ~ComputeKernel() override;
  ComputeKernel(const ComputeKernel&) = delete;
  ComputeKernel& operator=(const ComputeKernel&) = delete;

  // What the driver's compiler counted, by the driver's names, and "subgroup size"; empty where it does not
  // tell.
  std::map<std::string, double> statistics() const;

  const std::string entry;
  const std::vector<SpirvArgument> arguments;
  unsigned value_bytes = 0;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkPipeline pipeline = VK_NULL_HANDLE;

 private:
  void make(const Binary& binary, unsigned push_constant_bytes);
  void destroy() const;

  std::shared_ptr<Queue> queue_;
  VkDescriptorSetLayout set_ = VK_NULL_HANDLE;
  VkShaderModule module_ = VK_NULL_HANDLE;
};

}  // namespace faltung::vulkan

#endif  // FALTUNG_SRC_BACKEND_VULKAN_KERNEL_HPP_
