#include "src/backend/vulkan_kernel.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace faltung::vulkan {

ComputeKernel::ComputeKernel(std::shared_ptr<Queue> queue, const Binary& binary, std::string entry,
                             unsigned push_constant_bytes)
    : entry(std::move(entry)),
      arguments(spirv_arguments(binary.code, this->entry)),
      queue_(std::move(queue)) {
  try {
    make(binary, push_constant_bytes);
  } catch (...) {  // no destructor runs
    destroy();
    throw;
  }
}

void ComputeKernel::make(const Binary& binary, unsigned push_constant_bytes) {
  const std::string what = "making a pipeline of kernel " + entry;
  VkDevice device = queue_->device();
  std::vector<VkDescriptorSetLayoutBinding> bindings;
  if (arguments.size() > kMostParameters)
    throw Error(Status::unsupported,
                what + ": it has more parameters than " + std::to_string(kMostParameters));
  for (const SpirvArgument& argument : arguments) {
    if (argument.kind == SpirvArgument::Kind::push_constant) {
      value_bytes = std::max(value_bytes, (argument.place + argument.bytes + 3) / 4 * 4);
      continue;
    }
    bindings.push_back(
        {argument.place, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
  }
  const unsigned most_bytes = std::min(push_constant_bytes, kMostValueBytes);
  if (value_bytes > most_bytes)
    throw Error(Status::unsupported, what + ": its values are " + std::to_string(value_bytes) +
                                         " bytes, push constants may have " + std::to_string(most_bytes));
  VkDescriptorSetLayoutCreateInfo set{};
  set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  set.flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;
  set.bindingCount = static_cast<unsigned>(bindings.size());
  set.pBindings = bindings.data();
  check(api()->CreateDescriptorSetLayout(device, &set, nullptr, &set_), what);
  const VkPushConstantRange values{VK_SHADER_STAGE_COMPUTE_BIT, 0, value_bytes};
  VkPipelineLayoutCreateInfo layout_info{};
  layout_info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout_info.setLayoutCount = 1;
  layout_info.pSetLayouts = &set_;
  layout_info.pushConstantRangeCount = value_bytes > 0 ? 1 : 0;
  layout_info.pPushConstantRanges = &values;
  check(api()->CreatePipelineLayout(device, &layout_info, nullptr, &layout), what);
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = binary.code.size();
  std::vector<std::uint32_t> words(binary.code.size() / 4);
  std::memcpy(words.data(), binary.code.data(), binary.code.size());
  module_info.pCode = words.data();
  check(api()->CreateShaderModule(device, &module_info, nullptr, &module_), what);
  VkComputePipelineCreateInfo wanted{};
  wanted.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  if (queue_->tells_resources()) wanted.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  wanted.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  wanted.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  wanted.stage.module = module_;
  wanted.stage.pName = entry.c_str();
  wanted.layout = layout;
  check(api()->CreateComputePipelines(device, VK_NULL_HANDLE, 1, &wanted, nullptr, &pipeline), what);
}

ComputeKernel::~ComputeKernel() {
  try {
    queue_->wait();
  } catch (const Error&) {  // the device is lost, and runs nothing
  }
  destroy();
}

void ComputeKernel::destroy() const {
  VkDevice device = queue_->device();
  api()->DestroyPipeline(device, pipeline, nullptr);
  api()->DestroyShaderModule(device, module_, nullptr);
  api()->DestroyPipelineLayout(device, layout, nullptr);
  api()->DestroyDescriptorSetLayout(device, set_, nullptr);
}

std::map<std::string, double> ComputeKernel::statistics() const {
  std::map<std::string, double> found;
  if (!queue_->tells_resources()) return found;
  VkPipelineExecutableInfoKHR of{};
  of.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
  of.pipeline = pipeline;  // which has one executable, a compute shader
  const std::string what = "asking what became of kernel " + entry;
  unsigned count = 0;
  check(api()->GetPipelineExecutableStatisticsKHR(queue_->device(), &of, &count, nullptr), what);
  VkPipelineExecutableStatisticKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  std::vector<VkPipelineExecutableStatisticKHR> told(count, empty);
  check(api()->GetPipelineExecutableStatisticsKHR(queue_->device(), &of, &count, told.data()), what);
  VkPipelineInfoKHR whose{};
  whose.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR;
  whose.pipeline = pipeline;
  VkPipelineExecutablePropertiesKHR properties{};
  properties.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
  unsigned one = 1;
  if (api()->GetPipelineExecutablePropertiesKHR(queue_->device(), &whose, &one, &properties) >= 0 && one == 1)
    found["subgroup size"] = properties.subgroupSize;
  for (const VkPipelineExecutableStatisticKHR& s : told) {
    const auto value = [&]() -> double {
      switch (s.format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
          return s.value.b32 != 0 ? 1 : 0;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
          return static_cast<double>(s.value.i64);
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
          return static_cast<double>(s.value.u64);
        default:
          return s.value.f64;
      }
    };
    found[s.name] = value();
  }
  return found;
}

}  // namespace faltung::vulkan
